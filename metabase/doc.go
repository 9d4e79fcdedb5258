// Package metabase reads and writes the metadata database of an object store node. The database
// records which objects exist, their headers, and which objects are removed or locked. Searches
// find objects by their attributes.
//
// The same operations run on two kinds of stores. [File] is a bbolt file of version 2, 3 or 4, as
// the node writes it. [Read] and [Write] take the sorted rows of package ordered, such as a page of
// Ledger; each bucket is then a namespace of package keyspace (see docs/metabase.md). One ordered
// view of buckets serves both stores, so each operation exists once.
//
// Invariants, cited by the tests:
//
//	M1  Objects, graves, marks and locks are primary rows. Every other row follows from them.
//	    Verify derives the other rows again and compares.
//	M2  The stored bytes of an object are those that were put, without the payload. Nothing is
//	    marshalled again.
//	M3  An operation that fails with an error about its arguments has changed nothing. After any
//	    other error the caller rolls the transaction back.
//	M4  An interrupted migration continues when the file is opened again.
//	M5  A file is verified, page by page, before any row of it is used. Damage never makes a call
//	    panic, run for ever, or use memory out of proportion to the request.
//
// The package may import internal/base, keyspace, ordered, bbolt and the wire format of protocol
// buffers. A [File] is safe for concurrent use. A [View] or [Tx] is for one goroutine and is valid
// until the function that received it returns. The package may change with any release.
package metabase
