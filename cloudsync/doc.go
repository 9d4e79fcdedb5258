// Package cloudsync keeps the pages of a repository in sync with a bucket, and so with every other
// device that uses the bucket (docs/sync.md).
//
// A Syncer belongs to one repository and one bucket. Each open page has a Page. In the background
// the Page reads new entries of the page's log and appends the commits made here. Page.Sync is the
// barrier for a caller that waits until both are done. Package pagelog reads and appends the log
// and goes from epoch to epoch. Package replica gives entries and checkpoints their meaning for the
// page. This package decides when and how often that is done, and handles failures.
//
// # When it looks, and when it sends
//
// A commit is sent at once, without a look before it: a device that appends learns of all entries
// that others have appended. Otherwise the log is read on (one get) MinPoll after an event, and
// twice as long after each read that finds nothing, up to MaxPoll. The epochs are listed when a
// session begins and once a day. The log is audited when a session begins, an hour after its first
// entry, and every day, some hours before the epochs are listed. The keyring is verified when a
// session begins, every six hours, and before an append when an hour has passed.
//
// # Cuts
//
// A cut begins an epoch and makes the log short for new devices. A device cuts when the log has
// grown by many entries, or many bytes, since the last cut, and when retention or Erase gives
// history up.
//
// # Errors
//
// Every request is retried as bucket.RetryTable says. Callers get the errors that remain. The
// background retries for ever: after MinPoll, then after pauses that double up to MaxPoll. When
// only the user can help (rights, quota, a bucket that was wiped, rolled back or replaced) it
// retries after an hour, or when the app calls Sync or Resume. A bucket that has lost or changed
// objects is repaired by the next device that notices (pagelog.Log.Renew) and has a page to repair
// it from. A missing object in a bucket never makes a device give local data up.
//
// # Invariants, cited by the tests
//
//	I1: one page has one syncing goroutine at a time: the one that holds its turn.
//	I2: nothing is sent to a bucket whose keyring was not, at most an hour ago, the known one.
//	I3: the position moves in the same batch as what it stands for.
//	I4: a page that fails stops no other page.
//	I5: after Close no goroutine is left, and no request of a page.
//
// The package imports pagelog, replica, pack, wire, epoch, seal and bucket below it, and storage,
// commit and object. It must not import a store of buckets, merge, or the root package: the caller
// supplies the function that merges heads.
//
// Lock order: Page.leader, Page.turn, Syncer.keysTurn, Page.mu, Syncer.mu. The first three are held
// across I/O, the mutexes are not. All methods are safe for concurrent use. The package may change
// with any release.
package cloudsync
