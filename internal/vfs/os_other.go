//go:build !linux

package vfs

import "os"

// fdatasync is a full sync on systems without a lesser one; on darwin package os also flushes the
// disk's cache.
func fdatasync(f *os.File) error { return f.Sync() }

func preallocate(*os.File, int64) error { return nil }
