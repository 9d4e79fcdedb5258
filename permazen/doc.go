// Package permazen stores typed objects in sorted rows, in the layout of Permazen: objects with
// fields, indexes, references and counters, under schemas of which several can be in one database.
//
// A DB knows the schema of the program. Its Begin and View make a Tx of rows, which can be
// anywhere: package permazen/pages has them on pages of Ledger. Objects are reached by the names of
// their types and fields; Collection has them as Go structs, with a schema that is derived from the
// types.
//
//	P1  Every index row follows from an object, and every object has its index rows.
//	P2  An object has the schema that its first row names. Begin migrates it when it is first
//	    used.
//	P3  No reference dangles, unless its field allows it.
//
// A Tx is for one goroutine at a time; it belongs to the transaction of its rows, which commits it
// or rolls it back. When a method fails while it writes, roll back. A DB may be used concurrently.
//
// The package imports internal/base, ordered and permazen/{encoding,layout,schema}. It may change
// with any release.
package permazen
