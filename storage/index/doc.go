// Package index keeps sorted rows in named buckets: in a bbolt file, or in memory. It is the layer
// under the page store's index, which is derived from the log and can be rebuilt; so it reports
// damage at once and never tries to repair it.
//
// It may import internal/base, bbolt and github.com/tidwall/btree, and nothing else of the module.
// It does not interpret rows.
//
// Invariants:
//
//	I1  Nothing that bbolt does escapes: its panics, and page faults in its mapping, become a
//	    *base.CorruptError. After the first one every View and Update returns that error.
//	I2  A page of the file is parsed only after it has been verified: by itself (layout, order),
//	    and against what refers to it (id, key range). Branch pages, bucket headers and the list
//	    of free pages are verified by OpenFile, leaves at their first use. A cycle of pages can
//	    therefore neither be followed forever nor overflow the stack.
//	I3  A panic that the caller's own function raises is not an error of the file: the transaction
//	    is rolled back and the panic goes on.
//	I4  A failed sync makes a file read-only until it is opened again, because a second sync that
//	    succeeds proves nothing.
//	I5  File and Memory give the same results for the same calls.
//
// The file has one level of buckets. bbolt has no checksums except in its two meta pages: a changed
// byte inside a key or value that leaves the order intact is not noticed here, so rows whose
// content cannot be checked otherwise carry a checksum of their own.
//
// Transactions are safe for concurrent use: any number of View run beside one Update, each on the
// state that the last finished Update left. The results of a transaction (Tx, Bucket, Cursor and
// every slice) belong to the goroutine that runs the function and are invalid when the function
// returns. A View inside an Update's function, or the reverse, may deadlock.
//
// It may change with any release.
package index
