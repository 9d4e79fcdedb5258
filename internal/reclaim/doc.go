// Package reclaim gives space back that pages take.
//
// A Collector deletes the garbage of one open page and compacts its files, step by step. A
// Background has the collectors of all open pages take turns, within a budget. A Quota keeps bounds
// of what pages take. A Host evicts pages of which the bucket has everything, and drops values that
// it has. Prune gives history up, and Holders finds the commits that are to be erased.
//
// The package decides what may go; package presence has it go, and storage drops. It may import
// storage and what is below it, what cloudsync keeps in a page, pageusage, and of internal what
// finds files and says who has a page. It knows nothing of handles and buckets: it gets functions.
// All may be called concurrently.
package reclaim
