// Package kill has the tests that kill a process and look at what it leaves (promise 1 of
// README.md): a writer; and the program as it syncs, clones, changes its cloud, imports,
// collects, compacts and evicts, which is also interrupted, run twice at once, and given full disks
// and a bucket that cannot be written. LEDGER_TIER=2 kills more often, and syncs a value of 2 GiB.
// It has no code of its own.
package kill
