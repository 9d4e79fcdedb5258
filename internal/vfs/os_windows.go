package vfs

import (
	"errors"
	"syscall"
)

// System errors for a full disk: ERROR_HANDLE_DISK_FULL and ERROR_DISK_FULL.
const (
	errHandleDiskFull = syscall.Errno(39)
	errDiskFull       = syscall.Errno(112)
)

// syncDir does nothing: a directory cannot be opened to sync it, and NTFS journals names in order.
func syncDir(string) error { return nil }

func isNoSpace(err error) bool {
	return errors.Is(err, errDiskFull) || errors.Is(err, errHandleDiskFull) || errors.Is(err, syscall.ENOSPC)
}
