// Package ordered is what a record layer sees of a store: sorted keys with values, read and
// written.
//
// A layer such as a typed database decides which rows stand for its records. It does not care where
// the rows are: on a page of Ledger (package ordered/pages), in memory (Memory), or in a foreign
// file. So it takes a Reader or a Writer, and its tests run on Memory.
//
// Keys sort bytewise. A missing key is base.ErrNotFound, which the root package exports as
// ledger.ErrNotFound. Neither Readers nor Writers are safe for concurrent use, unless their own
// documentation says so.
//
// The package imports internal/base and nothing else of the module. It may change with any release.
package ordered
