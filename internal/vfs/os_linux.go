package vfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// fdatasync syncs the content and the metadata needed to find it, but not the times.
func fdatasync(f *os.File) error {
	return onFD(f, "fdatasync", unix.Fdatasync)
}

func preallocate(f *os.File, size int64) error {
	if size <= 0 {
		return nil
	}
	err := onFD(f, "fallocate", func(fd int) error {
		return unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, 0, size)
	})
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return nil
	}
	return err
}

// onFD calls fn with the descriptor of f, and again after an interrupt by a signal. f cannot be
// closed meanwhile.
func onFD(f *os.File, op string, fn func(fd int) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return &os.PathError{Op: op, Path: f.Name(), Err: err}
	}
	var callErr error
	err = conn.Control(func(fd uintptr) {
		for {
			if callErr = fn(int(fd)); !errors.Is(callErr, unix.EINTR) {
				return
			}
		}
	})
	if err == nil {
		err = callErr
	}
	if err != nil {
		return &os.PathError{Op: op, Path: f.Name(), Err: err}
	}
	return nil
}
