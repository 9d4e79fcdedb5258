// Package vfstest has file systems for tests: Mem keeps files in memory and knows, for every file
// and every directory, what is durable and what a power cut may take. NewFaulty lets chosen
// operations fail; NewHooked calls a function after every operation that changes something. No
// product code imports it.
//
// Invariants:
//
//	I1: in Mem, what was written to a file and then synced survives every CrashClone, when its
//	    name does.
//	I2: in Mem, a name that was created, renamed or removed survives, or stays away, once SyncDir
//	    of its directory has returned nil.
//
// All values are safe for concurrent use; a File may be read and written concurrently. The package
// starts no goroutines. Mem has one mutex, under which it calls nothing but the keep function of
// CrashClone; hooks are called without it.
package vfstest
