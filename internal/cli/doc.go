// Package cli holds the commands of ledgerd: it parses arguments, calls package ledger and
// filetree, and prints.
//
// [Main] is one run of the program. It takes its arguments, streams, environment and clock from the
// caller, so that tests run it in their own process, and returns the exit code.
//
// Invariants, cited by the tests:
//
//	C1  A verb that reads opens the repository for reading only and creates nothing. One that
//	    needs what is only in the cloud opens it for writing, to keep what it fetches, and does so
//	    before it has printed anything.
//	C2  A verb that writes makes at most one commit, and none when it fails; the merges of heads
//	    that are left then come on top, and are told.
//	C3  Nothing that comes from a page reaches a terminal unescaped, except the value that get was
//	    asked for.
//	C4  With --json every line of the standard output is one JSON object.
//
// The package must not import what stands below package ledger except internal/clock. Main may be
// called concurrently with streams of its own. It may change with any release.
package cli
