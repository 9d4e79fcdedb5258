package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/filetree"
)

type putFlags struct {
	pageArg
	Key   oneKey   `arg:""`
	Value []string `arg:"..."`
	writeFlags
	File      string `flag:"file,f" usage:"read the value from this file, or from the standard input if -"`
	Lazy      bool   `flag:"lazy" usage:"let other devices fetch the value on first use"`
	IfAbsent  bool   `flag:"if-absent" usage:"only if the key has no entry"`
	IfPresent bool   `flag:"if-present" usage:"only if the key has an entry"`
	IfEqual   string `flag:"if-equal" usage:"only if the key has exactly this value"`
	Message   string `flag:"message,m" usage:"commit message"`
}

func (a *app) put(ctx context.Context, f putFlags) error {
	value, err := a.valueSource(ctx, f)
	if err != nil {
		return err
	}
	defer value.Close() // opened for reading: an error loses nothing
	return a.page(ctx, f.Page, creates, func(page *ledger.Page) error {
		before, after, err := a.write(ctx, page, f.Parent, f.Message, func(tx *ledger.Tx) error {
			return a.putIn(ctx, tx, value, f)
		})
		if err != nil {
			return fmt.Errorf("put %s: %w", a.shortKey(f.Key), err)
		}
		return a.finish(ctx, page, f.mergeFlags, after, before != after, "put "+a.shortKey(f.Key))
	})
}

// valueSource opens the value that put stores.
func (a *app) valueSource(ctx context.Context, f putFlags) (io.ReadCloser, error) {
	switch given := len(f.Value) == 1; {
	case given && f.File != "":
		return nil, usagef("the value is given twice, as VALUE and with --file")
	case given:
		return io.NopCloser(strings.NewReader(f.Value[0])), nil
	case f.File == "":
		return nil, usagef("there is no value: give VALUE, -f FILE, or -f - for the standard input")
	case f.File == "-":
		value, err := readAhead(ctx, a.process.Stdin)
		if err != nil {
			return nil, fmt.Errorf("read value: %w", err)
		}
		return io.NopCloser(value), nil
	}
	file, err := openFile(ctx, a.path(f.File), os.O_RDONLY)
	if err != nil {
		return nil, fmt.Errorf("read value: %w", err)
	}
	info, err := file.Stat()
	if err == nil && info.IsDir() {
		err = withHint(usagef("read value: %s is a directory", quoted(f.File)), "%s",
			a.command("import", f.Page.text, f.File))
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if info.Mode().IsRegular() {
		return file, nil
	}
	slow, err := readAhead(ctx, file)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read value: %w", err), file.Close())
	}
	return struct {
		io.Reader
		io.Closer
	}{slow, file}, nil
}

// putIn puts the value if the condition holds, and updates the attributes of an imported file.
func (a *app) putIn(ctx context.Context, tx *ledger.Tx, value io.Reader, f putFlags) error {
	key := f.Key
	old, err := tx.Stat(ctx, key)
	absent := errors.Is(err, ledger.ErrNotFound)
	if err != nil && !absent {
		return err
	}
	if err := a.condition(ctx, old, absent, f); err != nil {
		return err
	}
	err = tx.PutReader(ctx, key, value, -1, choose(f.Lazy, ledger.Lazy, ledger.Eager))
	if err != nil || absent {
		return err
	}
	now, err := tx.Stat(ctx, key)
	if err != nil {
		return err
	}
	same, err := filetree.SameValue(ctx, old, now)
	if err != nil || same {
		return err
	}
	return filetree.Touch(ctx, tx, key, a.process.Clock.Now())
}

// condition returns ledger.ErrConflict if the entry does not satisfy the flags.
func (a *app) condition(ctx context.Context, old ledger.Entry, absent bool, f putFlags) error {
	hasEqual := a.changed("if-equal")
	switch {
	case f.IfAbsent && !absent:
		return classedf(ledger.ErrConflict, "the key has an entry")
	case f.IfPresent && absent, hasEqual && absent:
		return classedf(ledger.ErrConflict, "the key has no entry")
	case !hasEqual:
		return nil
	}
	if old.Size == int64(len(f.IfEqual)) { // avoids reading a long value
		value, err := old.Value(ctx)
		if err != nil {
			return err
		}
		if string(value) == f.IfEqual {
			return nil
		}
	}
	return classedf(ledger.ErrConflict, "the key has another value")
}
