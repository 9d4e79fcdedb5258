// Package mem is a bucket in memory, for tests. From a seed it simulates the faults of real
// buckets. Requests are refused with 409, 412, 429 and 5xx, answers are lost after the write has
// landed, bodies are slow, cut or changed, and a name accepts one write a second. The whole bucket
// can be wiped or rolled back to an earlier state. Clock is a clock that a test moves.
//
// The package imports cloudsync/bucket and internal/clock of the module, and no package of pages.
// Invariants: a stored object is visible to every later call, unless Rollback, Wipe or Replace was
// called in between. The faults of the calls of one kind for one name follow from the seed, and not
// from calls for other names. Without faults it is an honest Bucket.
//
// A Bucket is safe for concurrent use. It has one mutex, under which it reads the clock and calls
// nothing else. The package starts no goroutines. It may change with any release.
package mem
