// Package kill has the tests that kill a process and check the files that it leaves (promise 1 of
// README.md). One is a writer. The other is the program as it syncs, clones, changes its cloud,
// imports, collects, compacts and evicts. It is also interrupted, run twice at once, and given full
// disks and a read-only bucket. LEDGER_TIER=2 kills more often, and syncs a value of 2 GiB. The
// package has no code of its own.
package kill
