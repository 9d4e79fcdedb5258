// Package ledger is an embeddable, versioned, content-addressed page store.
//
// A [Repository] is one directory. It holds ledgers, usually one per app, and a [Ledger] holds pages. A [Page]
// is an ordered map from keys to values of any size, with transactions, snapshots and its whole history:
//
//	repo, err := ledger.Open(ctx, dir, nil)
//	notes, err := repo.Ledger("notes")
//	page, err := notes.Page(ctx, "inbox")
//	id, err := page.Update(ctx, func(tx *ledger.Tx) error {
//		return tx.Put(ctx, []byte("greeting"), []byte("hello"))
//	})
//
// # What is promised
//
// When a call that commits returns nil, the commit survives a crash of the process and of the machine; a commit
// that was not reported is there wholly or not at all. A [Snapshot] never changes. Pages of equal content have
// the equal root on every device. Bytes that are not what was written give an error that matches [ErrCorrupt],
// never wrong data. Memory is bounded by [Options], not by the size of values, transactions or history.
//
// # Reading and writing
//
// [Page.View] and [Page.Update] run a function on a snapshot or in a transaction; [Page.Snapshot] and
// [Page.Begin] hand them out. Update closures of one page run one after another, each on the newest head, and
// all who wait share one sync of the disk. A transaction from Begin keeps its base: when the page has moved on
// meanwhile, its commit stands beside the others as a second head, or is refused with [ErrConflict].
//
// Key and value slices given to this package are copied, and those that it returns belong to the caller, except
// where a doc comment says "borrowed".
//
// # Concurrency
//
// Repository, Ledger, Page and Snapshot are safe for concurrent use; a Tx, an Iter and a Value are for one
// goroutine at a time. Every call that can wait takes a context and obeys it; the write of a batch, once begun, is
// finished whatever the context says. Close of a repository or page waits for the calls that run, but not for
// closures and loops of the caller: their next call gets [ErrClosed]. No goroutine remains after Close.
//
// # Errors
//
// Errors are compared with errors.Is against the sentinels of this package; [CorruptError], [LockedError] and
// [FormatError] carry details. [KindOf] tells what to do about an error.
//
// # Inside
//
// The package composes storage, btree, split, commit and pageusage and holds no format but that of the file
// `repository`. It must not import server or cmd. Lock order: Repository.mu, pageState.mu, Tx.mu; none
// is held during I/O except Tx.mu, which belongs to one caller.
package ledger
