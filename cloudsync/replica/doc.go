// Package replica makes a page of this device the replica of a page in a bucket: it is the page of
// package pagelog, on package storage. What comes in is verified here, wholly, before storage gets
// it. What goes out is made here, and uploaded before an entry names it.
//
//	Apply, Adopt   take an entry of the log
//	Enter          joins an epoch: takes its checkpoint, or what that has and the page lacks
//	Next           makes the body of the next entry from what is unsynced
//	Propose        writes the checkpoint of a new epoch
//	BuildTree      builds the tree of a commit that came without one
//
// # What is where
//
// The log state of package epoch stands in storage. A commit of storage that is neither unsynced
// nor waiting to be pruned (State.GiveUp) is a commit of the log. Its nearest ancestors that are
// here are its parents, but for those commits that State.Near names. Pieces have their places in
// storage. A place in a pack counts as long as the manifest or an entry of the epoch names the
// pack, and a place in an entry counts within the epoch. The rest is State: rows of sync_metadata,
// written in the batch with what they stand for.
//
// # Verification
//
// A member of the bucket may be faulty, or lie. An entry or a checkpoint that is bad in any way has
// no effect, and the error names the object.
//
//   - Commits: their ids, by parsing them again; parents are here, came before, or are listed as
//     given up (Near is not nil); generation and timestamp follow from the parents that are here.
//     The tree is built here, by applying the difference to the tree of its base, and its root is
//     the commit's.
//   - Differences: keys ascend, sizes are within limits, a value stands in its change if and only
//     if it is not longer than btree.InlineLimit, values are named by digests of values.
//   - Values: every piece of an EAGER value is here when its commit becomes visible, and sizes add
//     up through all index pieces. The root of a LAZY value is here or has a place. Pieces that
//     nobody has sent may be missing where a body or a checkpoint says so (wire.Missing).
//   - Pieces: they are what their digests say, no tree nodes, and index pieces parse.
//   - Explanations belong to a merge of the same entry. Tags name commits that are here.
//
// # Batches
//
// Commits, tags, places, State and the position of an entry are one batch of storage. Ahead of it
// go large things that are true by themselves: pieces as transient ones, places in packs, the
// history of a checkpoint as commits that came ahead. Enter may be repeated after a crash, as the
// position is written with the last batch.
//
// # Folds
//
// A device that comes from behind may have unsynced commits on commits that are given up. These
// stay here until the unsynced heads are merged with the log's: first the heads of the log with
// each other, then the result with one unsynced head after the other (Folding). Nothing is kept of
// that, as it follows from the graph: State.Near leads to what is given up as long as it is here.
// Only the edges that say that the log's head descends from it are added. What goes out is reduced
// to what the log keeps. Before the merges nothing goes out.
//
// Memory is bounded by constants and by 100 bytes for each commit of a checkpoint, but for State.
// Of the module the package imports bucket, checkpoint, epoch, pack, pagelog, progress, seal and
// wire of cloudsync, storage and what is below that. It reads no clock. The calls of one Page run
// one at a time; local writers may go on beside them. It may change with any release.
package replica
