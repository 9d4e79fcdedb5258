// Package mem is a bucket in memory, for tests: it does what real buckets do to their users, from a
// seed. Requests are refused with 409, 412, 429 and 5xx, answers are lost after the write has
// landed, bodies are slow, cut or changed, a name takes one write a second, and the whole bucket
// can be wiped or rolled back to an earlier state. Clock is a clock that a test moves.
//
// The package imports cloudsync/bucket and internal/clock of the module, and nothing that knows of
// pages. Invariants: what a call has stored is visible to every later call, unless Rollback, Wipe
// or Replace was called between; the faults of the calls of one kind for one name follow from the
// seed, and not from calls for other names; without faults it is an honest Bucket.
//
// A Bucket is safe for concurrent use. It has one mutex, under which it reads the clock and calls
// nothing else. The package starts no goroutines. It may change with any release.
package mem
