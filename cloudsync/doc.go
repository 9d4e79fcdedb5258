// Package cloudsync keeps the pages of a repository in step with a bucket, and so with every other
// device that uses it (design section 9).
//
// A Syncer belongs to one repository and one bucket. Each open page has a Page, which by itself, in
// one goroutine beside one that waits for commits, looks for entries of others in the page's log
// and appends what was committed here; Sync is the barrier for who wants to know that both is done.
// What an entry means is package ingest's, what goes up is made by package outgoing, and cloudlog
// reads and appends; this package says when, how often, and what happens when it fails.
//
// # When it looks, and when it sends
//
// A commit is sent at once, without a look before it: who appends learns what others have appended.
// Else the log is looked at (one get) MinPoll after something has happened, and twice as long after
// each look that finds nothing, up to MaxPoll. A page that has read nothing looks once for
// checkpoints, and for what there may be behind the last entry that it could read; who is about to
// write a checkpoint looks whether another has; nothing else lists by itself. The position is
// verified, and the newest ring of the keyring looked for, when a session begins, every six hours,
// and before an append when an hour has passed. What entries of this device stand behind is looked
// at an hour after the first of them, and when the next session begins: see proveOwn.
//
// # Errors
//
// Every request is made again as bucket.RetryTable says. What fails after that is what callers get.
// In the background it is tried again for ever: after MinPoll, then after pauses that double up to
// MaxPoll; when only the user can help (rights, quota, a bucket that was wiped, rolled back or
// replaced), after an hour, or when somebody asks with Sync or Resume. Nothing local is ever given
// up because of what a bucket holds or does not hold.
//
// # Invariants, cited by the tests
//
//	I1: one page has one syncing goroutine at a time: who holds its turn.
//	I2: nothing is sent to a bucket whose keyring or log were not, at most an hour ago, those that
//	    the device has seen.
//	I3: the position moves in the same batch as what it stands for.
//	I4: a page that fails stops no other page.
//	I5: after Close no goroutine and no request is left.
//
// The package imports cloudlog, format, ingest, outgoing, pack, seal and bucket below it, and
// storage, commit, btree and object. It must not import a store of buckets, merge, or the root
// package: how heads are merged is given to it.
//
// Lock order: Page.leader, Page.turn, Syncer.formatTurn, Page.mu, Syncer.mu. The first three are
// held across I/O, the mutexes are not. All methods are safe for concurrent use. It may change with
// any release.
package cloudsync
