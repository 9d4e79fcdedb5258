// Package idb is the API of IndexedDB (https://www.w3.org/TR/IndexedDB/) on sorted rows: databases
// with versions, object stores, indexes, cursors, key ranges and transactions. Its rows are those
// of package indexeddb, so that a page with them can be exported to a browser, and one that came
// from a browser be used.
//
// The example has a database in memory. That of a page is made by
//
//	f := idb.New(pages.Rows(page, ledger.Lazy), nil)
//
// Where a script has requests and events, methods return results and errors. These are the
// differences:
//
//	script                       here
//	a transaction ends by        Tx.Commit, or Tx.Abort; one that is forgotten keeps those that
//	                             write
//	itself                       waiting
//	a failed request aborts,     the next request aborts, and Commit does, unless
//	                             Tx.PreventDefault is called
//	unless its event prevents
//	a new version waits for      it does not wait, and connections of the old version fail with
//	                             ErrInvalidState,
//	other connections to close   which also happens when another device has made it and it came by
//	                             sync
//	transactions that write      all that write to the same Rows run one after another
//	other object stores run at
//	the same time
//	blobs are objects            a value.Blob has the position of a Blob that is given with the
//	                             value
//
// A DB and a Factory may be used concurrently; a Tx and what it gives are for one goroutine at a
// time. Keys whose sortable form is longer than 1984 bytes and that begin with the same 1984 bytes
// are in the order of their hashes (X4 of package indexeddb).
//
// It imports internal/base, ordered, indexeddb and indexeddb/value. It may change with any release.
package idb
