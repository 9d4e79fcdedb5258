// Package checkpoint reads and writes the checkpoints of a page: a header, and the runs of records
// that it names. Runs are immutable and shared by later checkpoints, so that writing one costs only
// what changed since the one before (see package wire).
//
// A reader sees the runs of one kind as one: ordered by key, each key once, as the newest run has
// it. A writer adds new or changed records, and some runs are then merged. Memory is a block of
// each run, of up to 1 MiB; output goes to a temporary file.
//
// It also reads the bodies of entries. Pages are outside the package. Of the module it imports
// bucket, epoch, seal and wire of cloudsync, internal/base and internal/spool. It starts no
// goroutine. A Store may be used concurrently; a Header may not, while Add changes it. The package
// may change with any release.
package checkpoint
