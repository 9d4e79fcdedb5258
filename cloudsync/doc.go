// Package cloudsync keeps the pages of a repository in step with a bucket, and so with every other
// device that uses it (design section 9).
//
// A Syncer belongs to one repository and one bucket. Each open page has a Page. In the background
// it looks for what others have appended to the page's log and appends what was committed here;
// Sync is the barrier for a caller who waits until both are done. Package pagelog reads and appends
// the log and goes from epoch to epoch. What an entry or a checkpoint means to the page is package
// replica's. This package says when and how often that is done, and what happens when it fails.
//
// # When it looks, and when it sends
//
// A commit is sent at once, without a look before it: a device that appends learns what others have
// appended. Else the log is read on (one get) MinPoll after something has happened, and twice as
// long after each read that finds nothing, up to MaxPoll. The epochs are listed when a session
// begins and once a day. The log is audited when a session begins, an hour after its first entry,
// and every day, some hours before the epochs are listed. The keyring is verified when a
// session begins, every six hours, and before an append when an hour has passed.
//
// # Cuts
//
// A cut begins an epoch and makes the log short for who comes new. A device makes one when many
// entries, or many bytes, have come since the last one, and when retention or Erase gives history
// up.
//
// # Errors
//
// Every request is made again as bucket.RetryTable says. What fails after that is what callers get.
// In the background it is tried again for ever: after MinPoll, then after pauses that double up to
// MaxPoll. When only the user can help (rights, quota, a bucket that was wiped, rolled back or
// replaced) it is tried after an hour, or when somebody calls Sync or Resume. A bucket that has
// lost or changed something is repaired by the next device that notices (pagelog.Log.Renew), if
// that has a page to repair it from. Nothing local is ever given up because of what a bucket does
// not hold.
//
// # Invariants, cited by the tests
//
//	I1: one page has one syncing goroutine at a time: the one that holds its turn.
//	I2: nothing is sent to a bucket whose keyring was not, at most an hour ago, the known one.
//	I3: the position moves in the same batch as what it stands for.
//	I4: a page that fails stops no other page.
//	I5: after Close no goroutine and no request is left.
//
// The package imports pagelog, replica, pack, wire, epoch, seal and bucket below it, and storage,
// commit and object. It must not import a store of buckets, merge, or the root package: how heads
// are merged is given to it.
//
// Lock order: Page.leader, Page.turn, Syncer.keysTurn, Page.mu, Syncer.mu. The first three are held
// across I/O, the mutexes are not. All methods are safe for concurrent use. It may change with any
// release.
package cloudsync
