// Package wire has the names and the bytes of the objects that sync puts into a bucket: those of a
// page, as package epoch defines it, and beside the pages the names of the keyring's rings and the
// announcements. Package seal defines what is sealed, and how. The meaning of an object for a page
// is outside this package. docs/cloud-format.md describes the bytes for a second implementation.
//
// # Objects
//
//	keys/...                      a ring of the keyring: its name alone, see package seal
//	pages/...                     the announcement of a page
//	{dir}/epochs/{k}              an epoch: EncodeEpoch
//	{dir}/log/{E}/{n}             an entry: the stream of a body, or the sealed epoch that a
//	                              closing entry proposes
//	{dir}/packs/{E}/{id}          a pack: pieces of values, differences of trees, or the stream of
//	                              a body that is too long for its entry
//	{dir}/checkpoints/{E}/{id}    the stream of a checkpoint, or one of its runs
//
// E is the random id of the epoch during which the object was written. Names of one page share
// {dir}, which does not identify the page without the bucket's keys. Each object is bound to page
// and epoch by its label, so that it does not open in another place.
//
// # Streams
//
// Data of variable length is a stream: a version byte, then records. A record is one byte for its
// type, its length (uvarint), and its fields. A reader holds one record at a time, so a stream may
// be longer than memory. The kind of a stream determines its records:
//
//	body          Size, Gone, Pack, Piece, Missing, Commit, Explanation, Tag, Retention
//	checkpoint    Base, Run, Snapshot, Tag, Retention
//	run           Commit, or Pack, or Gone, or Missing
//
// Records stand in this order, and records of one type in the order of their keys, each key once.
// An Explanation follows its Commit. So one content has one stream, and a reader proves that with
// only the last record.
//
// # Checkpoints
//
// A checkpoint consists of immutable runs, which later checkpoints share, so that a cut costs only
// what changed. Runs of one type are read from the newest to the oldest, and the first record of a
// key counts. A commit whose nearest ancestors have changed, or a pack that is no longer named, is
// written again in a newer run. A commit in a run of type Gone is not kept, and a Pack with Dropped
// is no longer named. MergeRuns decides when runs are merged, like the levels of a log-structured
// merge tree (O'Neil et al., 1996). Similarly the tree of the heads is a chain of snapshots, each a
// difference from the one before, and the first one from the empty tree.
//
// # Authors
//
// Each entry and each epoch has, inside the seal, the public key of its device and a signature of
// the whole content and its place. The id of the device follows from the key. An object with any
// other signature does not open: seal.ErrBadSignature.
//
// # Invariants, cited by the tests
//
//	I1: one content has one byte string; what a decoder accepts, encoding gives again.
//	I2: decoders refuse what encoders do not write, and bytes after the end, with a
//	    *base.CorruptError, and a newer version with a *base.FormatError.
//	I3: no decoder allocates more than a small multiple of its input, nor more than
//	    MaxRecordBytes for a record.
//
// Of the module the package imports epoch and seal of cloudsync, btree, commit, flatbuffers,
// object, internal/base and internal/limits. It does I/O only through readers and writers of the
// caller. Its functions may be called concurrently. The package may change with any release.
package wire
