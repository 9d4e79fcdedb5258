package cli

import (
	"context"
	"fmt"
	"io/fs"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/keys"
	"github.com/spf13/cobra"
)

func (a *app) keyCommand() *cobra.Command {
	return a.group("key", a.keyInitCommand(), a.keyShowCommand(), a.keyListCommand(), a.keyAddCommand(), a.keyRemoveCommand(), a.keyRotateCommand(), a.keyRecoverCommand())
}

type keyInitFlags struct {
	Path string `arg:""`
	newPassphrase
	Protect bool `flag:"protect" usage:"seal the key with a passphrase that is asked for"`
}

func (a *app) keyInitCommand() *cobra.Command {
	return verb(a, "key init", keyInitFlags{}, func(ctx context.Context, f keyInitFlags) error {
		pass, err := f.getIf(ctx, a, f.Protect)
		if err != nil {
			return err
		}
		return a.keyInit(a.path(f.Path), pass)
	})
}

type keyShowFlags struct {
	Path []string `arg:"..."`
	passphraseFlag
}

func (a *app) keyShowCommand() *cobra.Command {
	return verb(a, "key show", keyShowFlags{}, func(ctx context.Context, f keyShowFlags) error {
		if len(f.Path) == 0 {
			return a.keyPair(ctx)
		}
		path := a.path(f.Path[0])
		pass, err := f.ofKeyFile(ctx, a, path)
		if err != nil {
			return err
		}
		return a.keyShow(path, "", pass)
	})
}

func (a *app) keyInit(path string, pass []byte) error {
	if err := keys.CreateFile(path, pass); err != nil {
		return hintFor(err, fs.ErrExist, "a key is never overwritten: name another file, or use the one that is there")
	}
	return a.keyShow(path, "made ", pass)
}

func (a *app) keyShow(path, done string, pass []byte) error {
	id, err := keys.FileID(path, true, pass)
	if err != nil {
		return hintFor(fmt.Errorf("read key: %w", err), ledger.ErrCorrupt,
			"the key file is damaged, or is none: name one that ledgerd key init has made, or the copy of the key that you have kept")
	}
	a.result(object{"path", path, "id", id}, "%skey %s in %s\n", done, id, quoted(path))
	return nil
}
