package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/ledgerd/ledger"
	"github.com/spf13/cobra"
)

func (a *app) keyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "key",
		GroupID: groupCloud,
		Short:   "Make and compare keys of clouds",
		Long: `A cloud is sealed with a master key of 32 random bytes, which stands in a small text file. Every
device of the cloud needs it, and nobody can read the cloud without it: not its owner, and not
you if you lose it. Keep a copy where the bucket is not.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "init PATH",
		Short: "Make a new key",
		Long: `Make a new key from the system's randomness and write it to the new file PATH, which only its
owner can read. A file that is there is never overwritten.`,
		Example: "  ledgerd key init ~/ledger.key",
		Args:    cobra.ExactArgs(1),
		RunE:    a.run(func(_ context.Context, _ *cobra.Command, args []string) error { return a.keyInit(args[0]) }),
	}, &cobra.Command{
		Use:   "show PATH",
		Short: "Verify a key file and show which key it holds",
		Long: `Verify the key file PATH and print an id that tells its key from others and nothing else about it:
files with the same id hold the same key.`,
		Example: "  ledgerd key show ~/ledger.key",
		Args:    cobra.ExactArgs(1),
		RunE:    a.run(func(_ context.Context, _ *cobra.Command, args []string) error { return a.keyShow(args[0], "") }),
	})
	return cmd
}

func (a *app) keyInit(path string) error {
	err := ledger.CreateKeyFile(path)
	if errors.Is(err, fs.ErrExist) {
		return withHint(err, "a key is never overwritten: name another file, or use the one that is there")
	}
	if err != nil {
		return err
	}
	return a.keyShow(path, "made ")
}

// keyFileJSON is a key file as --json prints it.
type keyFileJSON struct {
	Path string `json:"path"`
	ID   string `json:"id"`
}

func (a *app) keyShow(path, done string) error {
	id, err := ledger.KeyFileID(path, true)
	if errors.Is(err, ledger.ErrCorrupt) {
		return withHint(fmt.Errorf("read key: %w", err), "the key file is damaged, or is none: name one that ledgerd key init has made, or the copy of the key that you have kept")
	}
	if err != nil {
		return fmt.Errorf("read key: %w", err)
	}
	if a.json {
		return a.emit(keyFileJSON{path, id})
	}
	if !a.quiet {
		a.printf("%skey %s in %s\n", done, id, quoted(path))
	}
	return nil
}
