// Package ledger is an embeddable, versioned, content-addressed page store.
//
// A [Repository] is one directory. It holds ledgers, usually one per app, and a [Ledger] holds
// pages. A [Page] is an ordered map from keys to values of any size, with transactions, snapshots
// and its whole history:
//
//	cloud := &ledger.Cloud{URL: url, KeyFile: key}
//	repo, err := ledger.Open(ctx, dir, &ledger.Options{Cloud: cloud})
//	defer repo.Close()
//	page, err := repo.Page(ctx, "notes", "inbox")
//	defer page.Close()
//	err = page.Put(ctx, []byte("greeting"), []byte("hello"))
//	value, err := page.Get(ctx, []byte("greeting"))
//
// Without a cloud, pass nil for the options. Each [Page.Put] is a transaction; changes that belong
// together are one [Page.Update], and reads that belong together one [Page.View].
//
// # What is promised
//
// When a call that commits returns nil, the commit survives a crash of the process and of the
// machine; a commit that was not reported is there wholly or not at all. A [Snapshot] never
// changes. Pages of equal content have the equal root on every device. Bytes that are not what was
// written give an error that matches [ErrCorrupt], never wrong data. Memory is bounded by
// [Options], not by the size of values, transactions or history.
//
// # Reading and writing
//
// [Page.View] and [Page.Update] run a function on a snapshot or in a transaction; [Page.Snapshot]
// and [Page.Begin] hand them out. Update closures of one page run one after another, each on the
// newest head, and all who wait share one sync of the disk. A transaction from Begin keeps its
// base: when the page has moved on meanwhile, its commit stands beside the others as a second head,
// which is merged, or is refused with [ErrConflict].
//
// Key and value slices given to this package are copied, and those that it returns belong to the
// caller, except where a doc comment says "borrowed".
//
// # Branches and merging
//
// A page may have several heads: transactions on one base make siblings, which neither block nor
// lose each other. A Page handle follows its own branch: it reads and writes on the newest head
// that is, or descends from, the commit that it saw last. [Page.Refresh] takes it to the newest
// head of all.
//
// Unless [MergeOptions] say otherwise, several heads are merged in the background as long as a
// handle is open; [Page.WaitForMerge] waits for that, and [Page.Merge] merges at once. A change
// that one side has made stands. Where both have changed a key to different content, a [Strategy]
// decides, chosen by [MergeRules] for a ledger, a page or the keys with a prefix: the last one
// wins, a [Resolver] of the app, or one of package rules, for values such as counters, and for a
// namespace whose keys belong together. [Page.Conflicts] tells what was decided, and by which rule.
// Devices that merge the same heads by the same rules make the same commit, provided that the rules
// look at nothing but what they are given.
//
// # Devices and the cloud
//
// [Options].Cloud, or [Repository.SetCloud], makes a repository one of the devices that share a
// bucket, which is all that they have in common: no server runs anywhere. [Clone] makes a new
// device of what a bucket has. From then on all pages are synced in the background, open or not,
// and pages of other devices come by themselves, unless [SyncOptions] say otherwise.
// [Repository.Sync] and [Page.Sync] return when all is up and down, [Page.WaitSynced] when a commit
// is. Everything works without the network, for as long as it takes. What goes into the bucket is
// sealed with a key that only the devices have, in a file (see keys.CreateFile) or from a
// passphrase; a plaintext bucket has to be asked for.
//
// Values of priority [Lazy] come to a device when they are read there, and older versions of a page
// when they are asked for; then reading can fail with [ErrNetwork]. [Page.Prefetch] brings values
// before they are needed. Buckets in directories (dir:PATH) are built in; gcs.Opener of package
// cloudsync/gcs and s3.Opener of package cloudsync/s3 go into [Options].Buckets, so that a program
// which does without links nothing of them.
//
// When a bucket was emptied, rolled back or replaced, sync stops with [ErrCloudRolledBack] or
// [ErrCloudReplaced], and nothing here is touched; Reupload of package admin makes the bucket whole
// again.
//
// # Looking after a repository
//
// A repository collects its garbage and keeps Options.Quota by itself. What remains for those who
// look after it is in package admin: checks and repairs, eviction, compaction, figures, backups.
//
// # Concurrency
//
// Repository, Ledger, Page and Snapshot are safe for concurrent use; a Tx, an Iter and a Value are
// for one goroutine at a time. Every call that can wait takes a context and obeys it; the write of
// a batch, once begun, is finished whatever the context says. Close of a repository or page waits
// for the calls that run, but not for closures and loops of the caller: their next call gets
// [ErrClosed]. It does wait for code of the app that a merge runs, such as a Resolver, whose
// context it ends. No goroutine remains after Close.
//
// # Errors
//
// Errors are compared with errors.Is against the sentinels of this package; [CorruptError],
// [LockedError] and [FormatError] carry details. [KindOf] tells what to do about an error. A table
// of all of them is in docs/errors.md.
//
// # Inside
//
// The package is a facade: a method converts its arguments and hands the work to an engine below
// internal/. A [Page] is a handle of package session; merging has the heads of a page come
// together, cloudlink keeps pages and the cloud in step, reclaim gives space back, checkup verifies
// and repairs, and presence says where each page is. The packages admin, keys and rules reach the
// engines by package bridge. The package holds no format. It must not import cmd, cloudsync/gcs or
// cloudsync/s3.
//
// Repository.mu is not held during I/O. The cloud's turn is taken before a page's sync turn, and
// both are held during I/O. A run of merges may wait for the page's write turn; whoever has that
// turn must not wait for a merge.
package ledger
