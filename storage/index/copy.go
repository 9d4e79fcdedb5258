package index

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"

	"go.etcd.io/bbolt"
)

// FreeBytes returns how many bytes of the file are free pages or follow the last page, and its
// length. Errors: base.ErrClosed, *base.CorruptError, those of the file system.
func (f *File) FreeBytes() (free, total int64, err error) {
	err = f.View(func(tx Tx) error {
		info, err := f.file.Stat()
		if err != nil {
			return fmt.Errorf("look for free pages: %w", err)
		}
		st := f.bolt.Stats()
		used := tx.(*fileTx).bolt.Size() - int64(st.FreePageN+st.PendingPageN)*int64(f.bolt.Info().PageSize)
		free, total = info.Size()-used, info.Size()
		return nil
	})
	return free, total, err
}

// CopyTo writes the rows to a new file, durably, and without free pages. Views and updates go on:
// the copy has the rows of one moment. After an error no file is left. Errors: ctx, base.ErrClosed,
// base.ErrNoSpace, *base.CorruptError, those of the file system.
func (f *File) CopyTo(ctx context.Context, name string) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	f.mu.RLock()
	defer f.mu.RUnlock()
	if err := cmp.Or(ctx.Err(), f.usable(false)); err != nil {
		return fmt.Errorf("copy index: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("copy index: %w", spaceError(err)), os.RemoveAll(name))
		}
	}()
	defer f.guard(&err)()
	if err := os.RemoveAll(name); err != nil { // a crash may have left it
		return err
	}
	to, err := bbolt.Open(name, 0o600, &bbolt.Options{
		Timeout: lockWait, FreelistType: bbolt.FreelistMapType, NoSync: true, NoStatistics: true, PageSize: f.bolt.Info().PageSize,
	})
	if err != nil {
		return err
	}
	err = bbolt.Compact(to, f.bolt, 1<<20)
	if err == nil {
		err = to.Sync()
	}
	return errors.Join(err, to.Close())
}
