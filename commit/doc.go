// Package commit holds commits: immutable versions of a page that form a graph. It makes them,
// names them, orders them and walks their graph; callers store them.
//
// Invariants, cited by the tests:
//
//	I1: the id of a commit is the SHA-256 of its canonical bytes; Parse accepts canonical bytes
//	    only.
//	I2: the first commit of a page is the same everywhere. It is implied: never stored, and never
//	    looked up.
//	I3: a commit's generation is 1 more than the greatest of its parents', so a parent always
//	    precedes its child in the order of generation. Its timestamp is the reading of a clock,
//	    and does not order parent and child.
//	I4: a merge commit depends on its parents and its root alone.
//	I5: any commit, whatever its timestamp, can have a child, whose timestamp is at most
//	    limits.MaxAhead ahead of the clock of the device that makes it.
//
// Commits are read as bytes from disk and cloud. Parse verifies what one commit shows, CheckParents
// what follows from its parents; the walks verify that generations decrease towards the parents, so
// that the walks end.
//
// Of the module the package imports flatbuffers, object, internal/base and internal/limits. It
// starts no goroutines and holds no state; its values are safe for concurrent use. It may change
// with any release.
package commit
