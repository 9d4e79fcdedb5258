//go:build !linux

package vfs

import "os"

// fdatasync is a full sync where the system has nothing less; on darwin package os asks the disk to
// flush its cache.
func fdatasync(f *os.File) error { return f.Sync() }

func preallocate(*os.File, int64) error { return nil }
