// Package ordered is the interface of a store for record layers: sorted keys with values, read and
// written.
//
// A layer such as a typed database maps records to rows. The rows may be on a page of Ledger
// (package ordered/pages), in memory (Memory), or in a foreign file: the layer takes a Reader or a
// Writer, and its tests run on Memory.
//
// Keys sort bytewise. A missing key is base.ErrNotFound, which the root package exports as
// ledger.ErrNotFound. Neither Readers nor Writers are safe for concurrent use, unless their own
// documentation says so.
//
// The package imports only internal/base of the module. Its API may change with any release.
package ordered
