// Package reclaim frees space that pages take.
//
// A Collector deletes the garbage of one open page and compacts its files, step by step. A
// Background runs the collectors of all open pages in turn, within a budget. A Quota enforces
// limits on the space of pages. A Host evicts pages that the bucket has completely, and drops
// values that the bucket has. Prune gives history up, and Holders finds the commits to erase.
//
// The package decides what to remove; package presence removes pages, and storage drops data. It
// may import storage and the packages below it, cloudsync's data in a page, pageusage, and the
// internal packages that find files and track the use of pages. It does not use handles and
// buckets, but functions in its options. All may be called concurrently.
package reclaim
