// Package session handles one open page: it reads values and scans, holds transactions and
// snapshots, makes commits, follows a branch, and reads the history.
//
// A Page is one session on a page. All sessions of a page share an Env: the page's store and the
// session's dependencies on the repository, which are a clock, a logger, limits, and functions that
// fetch a tree and request merges. A Snapshot reads one version of the page, and a Tx reads and
// changes one; both are made by a Page and end with it at the latest. Entries are borrowed from the
// tree; an Origin reads their values. The caller converts them for its own users.
//
// The package imports neither the root package, nor cloudsync, nor the packages that manage a
// repository's directory: it uses one store. It must not merge; Env.WantMerge requests merges.
//
// Page and Snapshot are safe for concurrent use. A Tx, an Iter and a Value are for one goroutine at
// a time, except Value.ReadAt. A call enters the gate of its Page, and Close of the Page waits for
// it; the waits of a call end when the gate closes. Locks: Page.mu is not held during I/O; the turn
// of a storage.Journal is.
package session
