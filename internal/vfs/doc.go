// Package vfs is the small file interface below the log's segment files. With it, tests can cut the
// power at every write, let any operation fail, and inspect the result (package vfstest).
//
// OS is the file system of the machine. Mem keeps files in memory, for repositories that end with
// their process.
//
// Errors of every FS wrap those of package os, so that errors.Is(err, fs.ErrNotExist) and the like
// hold; an error for a full disk also matches base.ErrNoSpace.
//
// The package imports the standard library, golang.org/x/sys and internal/base, and nothing else of
// the module. All values are safe for concurrent use; a File may be read and written concurrently.
// The package starts no goroutines. Its API may change with any release.
package vfs
