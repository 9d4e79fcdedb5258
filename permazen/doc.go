// Package permazen stores typed objects in sorted rows, in the layout of Permazen. Objects have
// fields, indexes, references and counters. A database can contain several schemas.
//
// A DB holds the schema of the program. Its Begin and View make a Tx on rows in any store; package
// permazen/pages stores them on pages of Ledger. A Tx reaches objects by the names of their types
// and fields. Collection reads and writes objects as Go structs and derives the schema from the
// types.
//
//	P1  Every index row follows from an object, and every object has its index rows.
//	P2  An object has the schema that its first row names. A Tx of Begin migrates the object on
//	    its first use.
//	P3  No reference dangles, unless its field allows it.
//
// A Tx is for one goroutine at a time. It belongs to the transaction of its rows, which commits or
// rolls back. After a failed write the caller rolls back. A DB is safe for concurrent use.
//
// The package imports internal/base, ordered and permazen/{encoding,layout,schema}. It may change
// with any release.
package permazen
