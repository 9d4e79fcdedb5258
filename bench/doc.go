// Package bench measures Ledger against references: the disk, cp, bbolt.
//
// It is a Go module of its own, so that its dependencies never become dependencies of Ledger. It
// has only benchmarks. Each benchmark measures both sides alternately in the same run. It reports
// the ratio of medians and the absolute figures, since times depend on the machine. README.md has
// the command, docs/performance.md the rows and their scope.
//
// No package may import bench. Its goroutines run only within a benchmark. It may change with any
// release.
package bench
