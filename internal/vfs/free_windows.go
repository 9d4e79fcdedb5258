package vfs

import (
	"fmt"
	"math"

	"golang.org/x/sys/windows"
)

// FreeBytes returns how many bytes the user may still write to the disk with dir. Errors: those of
// the file system.
func FreeBytes(dir string) (int64, error) {
	path, err := windows.UTF16PtrFromString(dir)
	if err != nil {
		return 0, fmt.Errorf("look for free space in %s: %w", dir, err)
	}
	var free uint64
	if err := windows.GetDiskFreeSpaceEx(path, &free, nil, nil); err != nil {
		return 0, fmt.Errorf("look for free space in %s: %w", dir, err)
	}
	return int64(min(free, math.MaxInt64)), nil
}
