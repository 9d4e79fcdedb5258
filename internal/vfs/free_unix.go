//go:build linux || darwin || freebsd || dragonfly

package vfs

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// FreeBytes returns how many bytes the user may still write to the disk with dir. Errors: those of
// the file system.
func FreeBytes(dir string) (int64, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(dir, &s); err != nil {
		return 0, fmt.Errorf("look for free space in %s: %w", dir, err)
	}
	return int64(s.Bavail) * int64(s.Bsize), nil
}
