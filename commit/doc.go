// Package commit holds commits: immutable versions of a page that form a graph.
// It makes them, names them, orders them and walks their graph; where they are stored is its
// callers' concern.
//
// Invariants, cited by the tests:
//
//	I1: the id of a commit is the SHA-256 of its canonical bytes; Parse accepts canonical bytes
//	    only.
//	I2: the first commit of a page is the same everywhere. It is implied: never stored, and never
//	    asked for.
//	I3: a commit's generation is 1 more than the greatest of its parents', so a parent always
//	    stands before its child in the order of generation. Its timestamp is what a clock said,
//	    and orders no parent and child.
//	I4: a merge commit depends on its parents and its root alone.
//	I5: on any commit, whatever its timestamp, another one can be made, whose timestamp is at most
//	    limits.MaxAhead ahead of the clock of the device that makes it.
//
// Commits come in as bytes from disk and cloud. Parse verifies what can be seen in one commit,
// CheckParents what follows from its parents; the walks verify that generations fall towards the
// parents, so that they end.
//
// Of the module the package imports flatbuffers, object, internal/base and internal/limits. It
// starts no goroutines and holds no state; its values may be used concurrently. It may change with
// any release.
package commit
