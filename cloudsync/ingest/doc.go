// Package ingest is the one door through which what a bucket says becomes part of a page: entries
// of the log and checkpoints are verified here, wholly, before storage gets them.
//
// Bytes come in opened and decoded (packages seal and format prove who sealed them, and that they
// are canonical). What they mean is judged here: a member of the bucket may be buggy, or lie. An
// entry that is bad in any way has no effect, and the error names the object.
//
// # What is verified
//
//   - Entries follow each other: number and hash of the one before, from the position that the page
//     has.
//   - Commits: their ids, by parsing them again; their parents are here or came before; generation
//     and timestamp follow from the parents. The tree is built here, by applying the diff to the
//     tree of its base, and its root is the commit's.
//   - Changes: keys ascend, sizes are within limits, a value stands in its change if and only if it
//     is not longer than btree.InlineLimit, values are named by digests of values.
//   - Values: every piece of an EAGER value is here when its commit becomes visible, and sizes add
//     up through all index pieces. The root of a LAZY value is here, or the bucket has said where
//     it is. Only in a page of which an entry or a checkpoint says that it lacks pieces, they may
//     be missing: after a bucket was lost, devices send what they have. Such pieces are counted
//     (Result.Missing), and come when somebody sends them.
//   - Pieces: they are what their digests say, no tree nodes, and index pieces parse.
//   - Explanations belong to a merge commit of the same entry. Tags name commits that are here. An
//     entry condemns nothing that it brings.
//
// # What a call leaves behind
//
// Commits, tags, places and the position of an entry are one batch of storage, so that the position
// never runs ahead of the data. Small entries that follow each other share a batch. Ahead of it go,
// for large entries, pieces of values as transient ones, and places of pieces in bounded batches;
// pieces that were fetched from older packs are stored when they come; and the history of a
// checkpoint with much of it, when all else of the checkpoint is good. All of these are true by
// themselves, so that they do no harm when the entry turns out to be bad, or the process ends.
//
// # Rules
//
// Memory is bounded by constants, not by what is read: diffs stream, packs stream, values are
// walked piece by piece. Of each commit of a checkpoint 50 bytes are held; the commits themselves
// wait in a temporary file, and go to the page a part at a time, when they are many, ahead of the
// heads. No index piece is walked twice in one value, so that an index that lists the same piece
// again and again costs what it takes in storage.
//
// The package imports, of the module, format, pack, seal and bucket of cloudsync, storage and what
// is below it. It must not import protocol, cloudlog, outgoing or the worker. It starts no
// goroutines, and reads no clock. The calls of one Page run one at a time; local writers may go on
// beside them. It may change with any release.
package ingest
