//go:build unix

package profile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/ledgerd/ledger/internal/base"
)

// sqlLocks is the offset at which SQLite locks its files.
const sqlLocks, sqlLockBytes = 0x40000000, 512

// lockSQLite fails for a file that a browser has open.
func lockSQLite(path string) (unlock func() error, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	holder := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: sqlLocks, Len: sqlLockBytes}
	if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &holder); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	if holder.Type != unix.F_UNLCK {
		return nil, errors.Join(&base.LockedError{Path: path, PID: int(holder.Pid)}, f.Close())
	}
	return f.Close, nil
}

// lock takes the lock of a LevelDB directory, so that no browser can open it. A directory without a
// lock file was never open.
func lock(path string) (unlock func() error, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return func() error { return nil }, nil
	}
	if err != nil {
		return nil, err
	}
	l := unix.Flock_t{Type: unix.F_RDLCK, Whence: io.SeekStart}
	err = unix.FcntlFlock(f.Fd(), unix.F_SETLK, &l)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		holder := unix.Flock_t{Type: unix.F_RDLCK, Whence: io.SeekStart}
		if err := unix.FcntlFlock(f.Fd(), unix.F_GETLK, &holder); err != nil || holder.Type == unix.F_UNLCK {
			holder.Pid = 0
		}
		err = &base.LockedError{Path: path, PID: int(holder.Pid)}
	} else if err != nil {
		err = fmt.Errorf("lock %s: %w", path, err)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f.Close, nil
}
