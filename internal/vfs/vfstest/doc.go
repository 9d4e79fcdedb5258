// Package vfstest has file systems for tests: Mem keeps files in memory and tracks, for every file
// and directory, what is durable and what a power cut may lose. NewFaulty makes chosen operations
// fail; NewHooked calls a function after every operation that changes something. No product code
// imports it.
//
// Invariants:
//
//	I1: in Mem, content that was written to a file and then synced survives every CrashClone in
//	    which the file's name survives.
//	I2: in Mem, the creation, renaming or removal of a name survives once SyncDir of its directory
//	    has returned nil.
//
// All values are safe for concurrent use; a File may be read and written concurrently. The package
// starts no goroutines. Mem has one mutex, under which it calls only the keep function of
// CrashClone; hooks are called without it.
package vfstest
