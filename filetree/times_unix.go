//go:build unix

package filetree

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// setTime sets the modification time and the access time of a file or link in dir. It does not use
// Root.Chtimes, which cannot set the time of a link and takes times in 64-bit nanoseconds, which
// end in the year 2262.
func setTime(dir *os.Root, name string, t time.Time) error {
	ts, err := unix.TimeToTimespec(t)
	if err != nil {
		return err
	}
	f, err := dir.Open(".")
	if err != nil {
		return err
	}
	err = unix.UtimesNanoAt(int(f.Fd()), name, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW)
	return errors.Join(err, f.Close())
}
