// Package idb implements the API of IndexedDB (https://www.w3.org/TR/IndexedDB/) on sorted rows:
// databases with versions, object stores, indexes, cursors, key ranges and transactions. The rows
// have the form of package indexeddb. So a page can be exported to a browser, and a page imported
// from a browser can be used.
//
// The example has a database in memory. For databases on a page, call
//
//	f := idb.New(pages.Rows(page, ledger.Lazy), nil)
//
// Where a script has requests and events, methods return results and errors. These are the
// differences:
//
//	script                       here
//	a transaction ends           the caller ends it with Tx.Commit or Tx.Abort; an unfinished
//	by itself                    transaction blocks other writers
//	a failed request aborts,     the next request and Commit abort, unless Tx.PreventDefault is
//	unless its event prevents    called before
//	a new version waits for      it does not wait; connections of the old version fail with
//	other connections to close   ErrInvalidState, also when another device made the new version
//	                             and sync brought it here
//	transactions that write      all writing transactions on the same Rows run one after another
//	other object stores run at
//	the same time
//	blobs are objects            a value.Blob has the position of a Blob that is passed with the
//	                             value
//
// A DB and a Factory may be used concurrently. A Tx and the objects that it returns are for one
// goroutine at a time. Keys with a sortable form longer than 1984 bytes that agree in the first
// 1984 bytes are ordered by their hashes (X4 of package indexeddb).
//
// The package imports internal/base, ordered, indexeddb and indexeddb/value. The API may change
// with any release.
package idb
