// Package gc decides what may be deleted from a page: which commits its retention gives up, and how
// much of the garbage is collected at a time.
//
// Garbage is what nothing refers to. Pieces and nodes become garbage when the commits that reach
// them are pruned, when a journal is given up, or when a value is replaced before a commit has it.
// Package storage finds and deletes them by the rows of references (storage.Collector). This
// package first decides which commits are pruned, and gives the collector its budget.
//
// The package imports commit and internal packages and must not import storage or anything above
// it: it sees a page through interfaces. It has no goroutines and no state; its functions may be
// called concurrently. It may change with any release.
package gc
