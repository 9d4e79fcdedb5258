// Package session is the work on one open page: it reads values and scans, keeps transactions and
// snapshots, makes commits, follows a branch, and tells the history.
//
// A Page is one session on a page. Its sessions share an Env, which has the page's store and the
// few things that a session needs of the repository: a clock, a logger, limits, and functions that
// fetch a tree and have heads merged. A Snapshot reads one version of the page, and a Tx reads and
// changes one; both begin with a Page, and end with it at the latest. Entries come as the tree has
// them, and are borrowed; an Origin reads their values. The caller makes of them what its own users
// see.
//
// The package imports neither the root package, nor cloudsync, nor what keeps a repository's
// directory: it knows one store. It must not merge; Env.WantMerge does.
//
// Page and Snapshot are safe for concurrent use. A Tx, an Iter and a Value are for one goroutine at
// a time, except Value.ReadAt. A call enters the gate of its Page, so that Close of the Page waits
// for it; what waits inside ends when the gate closes. Locks: Page.mu is not held during I/O; the
// lock of a Sink is, and belongs to one caller.
package session
