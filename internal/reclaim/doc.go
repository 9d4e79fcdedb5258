// Package reclaim gives space back that pages take.
//
// A Collector deletes the garbage of one open page and compacts its files, step by step. A
// Background has the collectors of all open pages take turns, within a budget.
//
// It may import storage, internal/base and internal/clock of the module. It knows nothing of
// handles, clouds and of who has a page open. Everything may be called concurrently.
package reclaim
