// Package checkpoint reads and writes the checkpoints of a page: a header, and the runs of records
// that it names. Runs are immutable and pass from checkpoint to checkpoint, so that writing one
// costs what changed since the one before (see package wire).
//
// A reader sees the runs of one kind as one: ordered by key, each key once, as the newest run has
// it. A writer adds the records that are new or changed, and some runs become one then. Memory is
// that of one record for each run, and of a frame of its object; what is written lies in a
// temporary file.
//
// The package knows no page. Of the module it imports bucket, epoch, seal and wire of cloudsync,
// internal/base and internal/spool. It starts no goroutine. A Store may be used concurrently; a
// Header may not, while Add changes it. It may change with any release.
package checkpoint
