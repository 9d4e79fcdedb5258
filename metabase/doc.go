// Package metabase reads and writes the metadata database of an object store node: which objects
// there are, what they say of themselves, which were removed, and which are locked. It finds
// objects by their attributes.
//
// The same operations run on two kinds of stores. [File] is a bbolt file as the node writes it, of
// version 2, 3 or 4. [Read] and [Write] take sorted rows as package ordered has them, such as a
// page of Ledger; there each bucket is a namespace of package keyspace (see docs/metabase.md). Both
// are seen through one ordered view of buckets, so that every operation is written once.
//
// Invariants, cited by the tests:
//
//	M1  Every row but the objects, graves, marks and locks follows from these alone. Verify
//	    derives them again and compares.
//	M2  The bytes of an object are kept as they came, without its payload. Nothing is marshalled
//	    again.
//	M3  An operation that fails with an error about its arguments has changed nothing. After any
//	    other error the caller gives up the transaction.
//	M4  A migration that was interrupted goes on when the file is opened again.
//	M5  A file is verified, page by page, before any row of it is used. No damage makes a call
//	    panic, run for ever, or use memory that does not follow from what was asked.
//
// The package may import internal/base, keyspace, ordered, bbolt and the wire format of protocol
// buffers. A [File] is safe for concurrent use. A [View] or [Tx] is for one goroutine, and ends
// with the function that it was given to. The package may change with any release.
package metabase
