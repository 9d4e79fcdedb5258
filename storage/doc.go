// Package storage is the page store: it keeps the pieces, commits and tags of one page in an
// append-only log (package storage/segment) and their index in rows of a bbolt file, page.db
// (package storage/index). docs/format/records.md and docs/format/rows.md specify both.
//
// The log is the truth and page.db can be deleted: it is rebuilt. A commit is durable when the one
// batch that holds its new nodes and the commit itself has been appended and synced; all who commit
// at that moment share the batch (see Submit). The index learns of it later, in large sorted
// transactions (see Fold). Until then an overlay in memory makes what is durable visible to
// readers.
//
// What sync needs is kept in the same log and rows: where in the bucket pieces are, which commits
// and changes of tags it has, and its own metadata (see SubmitSync). A piece that the bucket has
// need not be held: then a Fetcher gives it. The package itself knows no bucket.
//
// Invariants, cited by number in code and tests:
//
//	I1  Whatever a durable commit reaches is durable: a batch relies only on pieces in itself, in
//	    batches before it in its segment, and before the ends of other segments that it names.
//	I2  Readers, watchers and View see durable commits only; NewestHead may be ahead of them.
//	I3  The index reflects a prefix of the log's batch numbers, named by its state row, and
//	    nothing after it.
//	I4  The state row and what decides about heads are written in one transaction, after all other
//	    rows of a fold.
//	I5  When an append fails, every commit that was chained on it fails, and heads go back to the
//	    last durable ones.
//	I6  A page-local number, once given to a digest, is never given to another.
//	I7  What a record of sync does to a piece depends on the records before it: all rows of pieces
//	    that such records are about are written in the transaction of I4, so that a fold which is
//	    done again finds what it found.
//	I8  A piece that has no place in the bucket is never dropped: that is decided where the record
//	    of the drop stands in the log.
//
//	I9  What a held piece refers to is held, or can be fetched, but for what Salvage has found
//	    gone: deleting takes what nothing refers to, and only that (see Collector).
//
// Lock order: a page's write turn (Lock), the fold turn, Store.appendTurn, Store.indexMu, Store.mu,
// then the locks of the log, the index and the cache. The turns and indexMu are held across I/O; mu
// is not. Appends to bulk segments need no turn: mu guards the account of them (see holdAppends).
//
// The package imports btree, commit, split, flatbuffers, object, storage/segment, storage/index and
// what is internal. It does not import gc, merge or cloudsync: those decide, storage executes. All
// methods are safe for concurrent use unless they say otherwise. It may change with any release.
package storage
