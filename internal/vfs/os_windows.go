package vfs

import (
	"errors"
	"syscall"
)

// Errors of the system for want of space: ERROR_HANDLE_DISK_FULL and ERROR_DISK_FULL.
const (
	errHandleDiskFull = syscall.Errno(39)
	errDiskFull       = syscall.Errno(112)
)

// syncDir does nothing: a directory cannot be opened for syncing, and NTFS journals names in order.
func syncDir(string) error { return nil }

func isNoSpace(err error) bool {
	return errors.Is(err, errDiskFull) || errors.Is(err, errHandleDiskFull) || errors.Is(err, syscall.ENOSPC)
}
