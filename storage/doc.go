// Package storage is the page store: it keeps the pieces, commits and tags of one page in an
// append-only log (package storage/segment) and their index in rows of a bbolt file, page.db
// (package storage/index). docs/format/records.md and docs/format/rows.md specify both.
//
// The log is authoritative: page.db can be deleted and is then rebuilt. A commit is durable when
// one batch, with the commit and its new nodes, has been appended and synced. All callers that
// commit at that moment share the batch (see Submit). The index follows later, in large sorted
// transactions (see Fold). Until then an in-memory overlay makes the durable records visible to
// readers.
//
// The same log and rows hold the state of sync: the places of pieces in the bucket, the commits and
// tag changes that the bucket has, and sync's own metadata (see SubmitSync). A piece that the
// bucket has need not be held: a Fetcher then fetches it. The package itself accesses no bucket.
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
//	I7  A piece that has no place in the bucket is never dropped: no record that removes places is
//	    submitted between the look for the place and the submission of the drop (Store.drops).
//	I8  What a held piece refers to is held or can be fetched, except for what Salvage has found
//	    to be gone. Collection deletes only what nothing refers to (see Collector).
//
// Lock order: a page's write turn (Lock), Journal.turn, Store.drops, the fold turn,
// Store.appendTurn, the mutex of the Reserve, Store.indexMu, Store.mu, then the locks of the log,
// the index and the cache. All up to indexMu are held across I/O; mu is not. Appends to bulk
// segments need no turn: mu guards the account of them (see holdAppends).
//
// The package imports btree, commit, split, flatbuffers, object, storage/segment, storage/index and
// internal packages. It does not import gc, merge or cloudsync: these decide, and storage executes.
// All methods are safe for concurrent use unless they say otherwise. It may change with any
// release.
package storage
