// Package bench measures Ledger against what it is compared with: the disk, cp, bbolt.
//
// It is a Go module of its own, so that what it needs never becomes a dependency of Ledger, and has
// nothing but benchmarks. Each one measures both sides in the same run, in turns, and reports the
// ratio of medians beside the absolute figures, since times depend on the machine. README.md has
// the command, docs/performance.md the rows and their reach.
//
// Nothing may import it. It starts goroutines only within a benchmark. It may change with any
// release.
package bench
