// Package replica makes a page of this device the replica of a page in a bucket: it implements the
// page of package pagelog on package storage. It verifies all incoming data completely before
// storage gets it. It makes outgoing data, and uploads it before an entry names it.
//
//	Apply, Adopt   take an entry of the log
//	Enter          joins an epoch: takes its checkpoint, or the part that the page lacks
//	Next           makes the body of the next entry from unsynced data
//	Propose        writes the checkpoint of a new epoch
//	BuildTrees     builds the trees of treeless commits
//
// # Where the state is kept
//
// The log state of package epoch is kept in storage. A commit of storage is a commit of the log if
// it is neither unsynced nor waiting to be pruned (State.GiveUp). Its nearest ancestors stored here
// are its parents, unless State.Near names others. Storage records the places of pieces. A place in
// a pack counts as long as the manifest or an entry of the epoch names the pack; a place in an
// entry counts within the epoch. The rest is State: rows of sync_metadata, written in the batch
// with the data they describe.
//
// # Verification
//
// A member of the bucket may be faulty, or lie. An entry or a checkpoint that is bad in any way has
// no effect, and the error names the object.
//
//   - Commits: the ids, by parsing the commits again. Parents are here, stand earlier, or are
//     listed as given up (Near is not nil). Generation and timestamp follow from the parents here.
//     The device builds the tree by applying the difference to the tree of its base; the root must
//     be the commit's.
//   - Differences: keys ascend, sizes are within limits, values are named by digests of values. A
//     value is inline if and only if it is not longer than btree.InlineLimit.
//   - Values: every piece of an EAGER value is here when its commit becomes visible, and sizes add
//     up through all index pieces. The root of a LAZY value is here or has a place. Pieces may be
//     missing where a body or a checkpoint says so (wire.Missing).
//   - Pieces: they match their digests, are no tree nodes, and index pieces parse.
//   - Explanations belong to a merge of the same entry. Tags name commits that are here.
//
// # Batches
//
// Commits, tags, places, State and the position of an entry are one batch of storage. Large data
// that is true by itself is written before the batch: pieces as transient ones, places in packs,
// the history of a checkpoint as commits received ahead (storage.ReceivedCommit). Enter may be
// repeated after a crash, since the last batch contains the position.
//
// # Given-up commits
//
// A device that was away may have unsynced commits that stand on given-up commits. These stay
// stored until all such commits are in the log, as bases of merges: State.Near leads to them as
// long as they are here. Nothing goes out while a merge of the heads needs one (ErrWaits). Outgoing
// data is reduced to what the log keeps.
//
// Memory is bounded by constants and by 100 bytes for each commit of a checkpoint, except State. Of
// the module the package imports bucket, checkpoint, epoch, pack, pagelog, progress, seal and wire
// of cloudsync, storage and what is below that. It reads no clock. The calls of one Page run one at
// a time; local writers may run concurrently. The package may change with any release.
package replica
