package index

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"

	"go.etcd.io/bbolt"

	"github.com/ledgerd/ledger/internal/base"
)

// shrinkSuffix is appended to the name of the file that Shrink makes.
const shrinkSuffix = ".new"

// FreeBytes returns how many bytes of the file are free pages or follow the last page, and its
// length. Errors: base.ErrClosed, *base.CorruptError, those of the file system.
func (f *File) FreeBytes() (free, total int64, err error) {
	err = f.View(func(tx Tx) error {
		info, err := f.file.Stat()
		if err != nil {
			return fmt.Errorf("look for free pages: %w", err)
		}
		st := f.bolt.Stats()
		used := tx.(*viewTx).bolt.Size() - int64(st.FreePageN+st.PendingPageN)*int64(f.bolt.Info().PageSize)
		free, total = info.Size()-used, info.Size()
		return nil
	})
	return free, total, err
}

// Shrink writes the rows to a new file and replaces the old file by it, which gives free pages back
// to the file system. Updates wait; views continue until the files are exchanged. A crash leaves
// either file. After an error the old file is in use, unless every later call returns that error
// too. Errors: ctx, base.ErrClosed, base.ErrReadOnly, base.ErrNoSpace, *base.CorruptError, those of
// the file system.
func (f *File) Shrink(ctx context.Context) error {
	made := f.path + shrinkSuffix
	f.mu.RLock()
	f.write.Lock()
	defer f.write.Unlock()
	err := f.writable("shrink index")
	if err == nil {
		err = f.copyTo(ctx, made)
	}
	f.mu.RUnlock()
	if err != nil {
		return err
	}
	n, err := OpenFile(made, Options{NoSync: f.noSync})
	if err != nil {
		return errors.Join(err, remove(made))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return errors.Join(fmt.Errorf("shrink index: %w", base.ErrClosed), n.Close(), remove(made))
	}
	if err := os.Rename(made, f.path); err != nil {
		return errors.Join(fmt.Errorf("shrink index: %w", err), n.Close(), remove(made))
	}
	old := f.bolt
	f.bolt, f.file, f.seen = n.bolt, n.file, n.seen
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer f.guard(&err)()
	if err = old.Close(); err == nil {
		err = syncParent(f.path)
	}
	if err != nil {
		err = fmt.Errorf("shrink index: %w", err)
		f.failed.CompareAndSwap(nil, &err)
	}
	return err
}

// copyTo writes the rows to a new file, durably.
func (f *File) copyTo(ctx context.Context, name string) (err error) {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("shrink index: %w", err)
	}
	if err := remove(name); err != nil {
		return fmt.Errorf("shrink index: %w", err)
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer f.guard(&err)()
	to, err := bbolt.Open(name, 0o600, &bbolt.Options{
		Timeout: lockWait, FreelistType: bbolt.FreelistMapType, NoSync: true, NoStatistics: true, PageSize: f.bolt.Info().PageSize,
	})
	if err != nil {
		return fmt.Errorf("shrink index: %w", spaceError(err))
	}
	err = bbolt.Compact(to, f.bolt, 1<<20)
	if err == nil {
		err = to.Sync()
	}
	if err = errors.Join(err, to.Close()); err != nil {
		return errors.Join(fmt.Errorf("shrink index: %w", spaceError(err)), remove(name))
	}
	return nil
}

func remove(name string) error {
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// syncParent makes a name durable where directories can be synced.
func syncParent(name string) error {
	d, err := os.Open(filepath.Dir(name))
	if err != nil {
		return err
	}
	_ = d.Sync() // some systems cannot; a crash may then leave the old file, which has the same rows
	return d.Close()
}
