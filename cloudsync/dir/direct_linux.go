package dir

import (
	"os"

	"golang.org/x/sys/unix"
)

// setDirect makes later writes to f bypass the page cache or not. It fails on file systems without
// such writes.
func setDirect(f file, on bool) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var callErr error
	err = conn.Control(func(fd uintptr) {
		var flags int
		if flags, callErr = unix.FcntlInt(fd, unix.F_GETFL, 0); callErr != nil {
			return
		}
		flags &^= unix.O_DIRECT
		if on {
			flags |= unix.O_DIRECT
		}
		_, callErr = unix.FcntlInt(fd, unix.F_SETFL, flags)
	})
	if err == nil {
		err = callErr
	}
	if err != nil {
		return &os.PathError{Op: "fcntl", Path: f.Name(), Err: err}
	}
	return nil
}
