//go:build !unix

package filetree

import (
	"fmt"
	"os"
	"time"
)

// setTime sets the modification time and the access time of a file in dir.
func setTime(dir *os.Root, name string, t time.Time) error {
	if err := dir.Chtimes(name, t, t); err != nil {
		return fmt.Errorf("set time: %w", cause(err))
	}
	return nil
}

// setLinkTime does nothing: the system cannot set the time of a link below an open directory.
func setLinkTime(*os.Root, string, time.Time) error { return nil }
