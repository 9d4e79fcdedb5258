//go:build !unix

package filetree

import (
	"io/fs"
	"os"
	"time"
)

// setTime sets the modification time and the access time of a file in dir. The system cannot set
// those of a link below an open directory.
func setTime(dir *os.Root, name string, t time.Time) error {
	if info, err := dir.Lstat(name); err != nil || info.Mode().Type() == fs.ModeSymlink {
		return err
	}
	return dir.Chtimes(name, t, t)
}
