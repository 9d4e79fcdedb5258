// Package cli holds the commands of ledgerd. A command parses its arguments, calls the public
// packages of Ledger, and prints.
//
// [Main] is one run of the program. It takes its arguments, streams, environment and clock from the
// caller, so that tests can run it in their own process. It returns the exit code.
//
// Invariants, cited by the tests:
//
//	C1  A verb that reads opens the repository read-only and creates nothing. A verb that needs
//	    data from the cloud opens it for writing, to store that data, before the verb prints.
//	C2  A verb that writes makes at most one commit, and none when it fails. Merges of the
//	    remaining heads follow as commits of their own, and the verb reports them.
//	C3  No content of a page reaches a terminal unescaped, except the value that get prints.
//	C4  With --json every line of the standard output is one JSON object.
//	C5  Lines, blocks and tables for people follow from the members of the same objects (object).
//	    Only histories, decisions of merges, contents and lists of names have texts of their own.
//
// internal/archtest lists the permitted imports. Main may be called concurrently if each call has
// its own streams. The package may change with any release.
package cli
