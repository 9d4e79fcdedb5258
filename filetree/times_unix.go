//go:build unix

package filetree

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// setTime sets the modification time and the access time of a file in dir.
func setTime(dir *os.Root, name string, t time.Time) error {
	if err := setTimeAt(dir, name, t); err != nil {
		return fmt.Errorf("set time: %w", err)
	}
	return nil
}

// setLinkTime sets the modification time of a link in dir.
func setLinkTime(dir *os.Root, name string, t time.Time) error {
	return setTimeAt(dir, name, t)
}

// setTimeAt does not follow links. It does not use Root.Chtimes, which cannot set the time of a
// link and takes times in 64-bit nanoseconds, which end in the year 2262.
func setTimeAt(dir *os.Root, name string, t time.Time) error {
	ts, err := timespec(t)
	if err != nil {
		return err
	}
	f, err := dir.Open(".")
	if err != nil {
		return err
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return errors.Join(err, f.Close())
	}
	var setErr error
	err = conn.Control(func(fd uintptr) {
		setErr = unix.UtimesNanoAt(int(fd), name, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW)
	})
	return errors.Join(err, setErr, f.Close())
}

func timespec(t time.Time) (unix.Timespec, error) {
	var ts unix.Timespec
	ts.Sec, ts.Nsec = secondsOf(ts.Sec, t.Unix()), nanosOf(ts.Nsec, t.Nanosecond())
	if int64(ts.Sec) != t.Unix() {
		return ts, fmt.Errorf("set time to %d seconds: not possible on this system", t.Unix())
	}
	return ts, nil
}

type integer interface{ ~int32 | ~int64 }

// secondsOf and nanosOf convert to the width of the fields on this system.
func secondsOf[T integer](_ T, v int64) T { return T(v) }
func nanosOf[T integer](_ T, v int) T     { return T(v) }
