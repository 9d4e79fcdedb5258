// Package vfs is the small file interface under which the log's segment files stand, so that tests can cut the
// power at every write, let any operation fail, and look at what is left.
//
// OS is the file system of the machine. Mem keeps files in memory and knows, for every file and every directory,
// what is durable and what a power cut may take. NewFaulty lets chosen operations fail; NewHooked calls a function
// after every operation that changes something.
//
// The package imports the standard library, golang.org/x/sys and internal/base, and nothing else of the module.
//
// Invariants:
//
//	I1: in Mem, what was written to a file and then synced survives every CrashClone, when its name does.
//	I2: in Mem, a name that was created, renamed or removed survives, or stays away, once SyncDir of its directory has
//	    returned nil.
//	I3: errors of every FS wrap those of package os, so that errors.Is(err, fs.ErrNotExist) and the like hold; an error
//	    for want of space also matches base.ErrNoSpace.
//
// All values are safe for concurrent use; a File may be read and written concurrently. The package starts no
// goroutines. Mem has one mutex, under which it calls nothing but the keep function of CrashClone; hooks are called
// without it. It may change with any release.
package vfs
