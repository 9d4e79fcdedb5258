// Package wire has the names and the bytes of what sync puts into a bucket: for a page, as package
// epoch means it, and beside the pages the names of the keyring's rings and the announcements. What
// is sealed, and how, is package seal's; what an object means to a page is not known here.
// docs/cloud-format.md describes the bytes for a second implementation.
//
// # Objects
//
//	keys/...                      a ring of the keyring: its name alone, see package seal
//	pages/...                     the announcement of a page
//	{dir}/epochs/{k}              an epoch: AppendEpoch
//	{dir}/log/{E}/{n}             an entry: a head, and the stream of a body or the sealed epoch
//	                              that a closing entry proposes
//	{dir}/packs/{E}/{id}          a pack: pieces of values, differences of trees, or the stream of
//	                              a body that is too long for its entry
//	{dir}/checkpoints/{E}/{id}    the stream of a checkpoint, or one of its runs
//
// E is the random id of the epoch in whose life the object was written. Names of one page share
// {dir}, which tells nobody without the bucket's keys which page it is. Each object is bound to
// page and epoch by its label, so that it does not open in another place.
//
// # Streams
//
// Whatever has a variable length is a stream: a version byte, then records. A record is one byte
// for its type, its length (uvarint), and its fields. A reader holds one record at a time, so a
// stream may be longer than memory. What a stream may hold depends on what it is for:
//
//	body          Size, Gone, Pack, Piece, Missing, Commit, Explanation, Tag, Retention
//	checkpoint    Base, Run, Snapshot, Tag, Retention
//	run           Commit, or Pack, or Gone, or Missing
//
// Records stand in this order, and records of one type in the order of their keys, each key once.
// An Explanation follows its Commit. So one content has one stream, and a reader proves that with
// the last record alone.
//
// # Checkpoints
//
// A checkpoint is made of immutable runs, which pass from checkpoint to checkpoint, so that a cut
// costs what changed. Runs of one type are read from the newest to the oldest, and the first record
// of a key counts: a commit whose nearest ancestors have changed and a pack that is not named any
// more are written again in a newer run. A commit that a run of type Gone lists is not kept, and a
// Pack with Dropped is not used any more. MergeRuns says when runs become one, as the levels of a
// log-structured merge tree do (O'Neil et al., 1996). In the same way the tree of the heads is a
// chain of snapshots, each a difference from the one before, and the first one from the empty tree.
//
// # Authors
//
// Each entry and each epoch carries, inside the seal, the public key of the device that wrote it,
// from which the id of the device follows, and its signature over all of it and its place. It does
// not open with another signature: seal.ErrBadSignature.
//
// # Invariants, cited by the tests
//
//	I1: one content has one byte string; what a decoder accepts, encoding gives again.
//	I2: decoders refuse what encoders do not write, and bytes behind the end, with a
//	    *base.CorruptError, and a newer version with a *base.FormatError.
//	I3: no decoder allocates more than a small multiple of its input, nor more than
//	    MaxRecordBytes for a record.
//
// Of the module the package imports epoch and seal of cloudsync, commit, object, internal/base and
// internal/limits. It does no I/O but for the readers and writers that it is given, and starts no
// goroutine. Its functions may be called concurrently. It may change with any release.
package wire
