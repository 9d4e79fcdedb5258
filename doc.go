// Package ledger is an embeddable, versioned, content-addressed page store.
//
// A [Repository] is one directory. It holds ledgers, usually one per app, and a ledger holds pages.
// A [Page] is an ordered map from keys to values of any size, with transactions, snapshots and its
// whole history:
//
//	cloud := &ledger.Cloud{URL: url, KeyFile: key}
//	repo, err := ledger.Open(ctx, dir, &ledger.Options{Cloud: cloud})
//	defer repo.Close()
//	page, err := repo.Page(ctx, "notes", "inbox")
//	defer page.Close()
//	err = page.Put(ctx, []byte("greeting"), []byte("hello"))
//	value, err := page.Get(ctx, []byte("greeting"))
//
// Without a cloud, pass nil for the options. [Repository.Pages] lists the pages of all ledgers, and
// [Repository.OpenPage] opens one of these, or the page that a ledger has under no name: its root
// page, which is PageRef{Ledger: "notes"}. Each [Page.Put] is one transaction. Group related
// changes in one [Page.Update], and related reads in one [Page.View].
//
// # What is promised
//
// When a call that commits returns nil, the commit survives a crash of the process and of the
// machine. A commit whose call did not return nil is stored completely or not at all. A [Snapshot]
// never changes. Pages with equal content have the same root on every device. Reading damaged bytes
// gives an error that matches [ErrCorrupt], never wrong data. [Options] bound the memory, whatever
// the size of values, transactions or history.
//
// # Reading and writing
//
// [Page.View] runs a function on a snapshot, and [Page.Update] in a transaction; [Page.Snapshot]
// and [Page.Begin] return them. Update closures of one page run one after another, each on the
// newest head; concurrent callers share one sync of the disk. A transaction from Begin keeps its
// base. If the page has newer commits at Commit, the transaction's commit becomes a second head,
// which is merged later, or Commit fails with [ErrConflict].
//
// This package copies the key and value slices that it is given. The slices that it returns belong
// to the caller, except where a doc comment says "borrowed".
//
// # Branches and merging
//
// A page may have several heads: transactions on one base make siblings, which neither block nor
// lose each other. A Page handle follows its own branch: it reads and writes on the newest head
// that is, or descends from, the last commit that the handle saw. [Page.Refresh] moves the handle
// to the newest head of the page.
//
// By default, several heads are merged in the background while a handle is open.
// [Page.WaitForMerge] waits for that, and [Page.Merge] merges at once. A change that only one side
// made is kept. When both sides changed a key to different content, a [Strategy] decides. A
// [MergeRule] chooses it for the keys with a prefix: the last one wins, a [Resolver] of the app, or
// one of package rules, for values such as counters, and for a namespace whose keys belong
// together. [Options].MergeRules gives the rules of each page. [Page.Conflicts] lists the decisions
// and their rules. Devices that merge the same heads by the same rules make the same commit,
// provided that the rules depend on their arguments alone.
//
// # Devices and the cloud
//
// [Options].Cloud or [Repository.SetCloud] makes a repository one of the devices that share a
// bucket. The bucket is all that devices share; no server is needed. [Clone] makes a new device
// from a bucket. By default all pages, open or not, are then synced in the background, and pages of
// other devices are downloaded; [SyncOptions] change that. [Repository.Sync] and [Page.Sync] return
// when everything is uploaded and downloaded, [Page.WaitSynced] when one commit is in the bucket.
// Devices work offline for any time. Objects in the bucket are sealed with a key that only the
// devices have, in a file (see keys.CreateFile) or from a passphrase; a plaintext bucket has to be
// requested.
//
// Values of priority [Lazy] are downloaded when they are read, and older versions of a page on
// request; such reads can fail with [ErrNetwork]. [Snapshot.Prefetch] downloads values before they
// are needed. Buckets in directories (dir:PATH) are built in. gcs.Opener of package cloudsync/gcs
// and s3.Opener of package cloudsync/s3 go into [Options].Buckets; a program without them does not
// link those packages.
//
// When a bucket was emptied, rolled back or replaced, sync stops with [ErrCloudRolledBack] or
// [ErrCloudReplaced] and changes nothing on this device. Reupload of package admin repairs the
// bucket.
//
// # Looking after a repository
//
// A repository collects its garbage and enforces Options.Quota itself. Package admin has the other
// maintenance: checks and repairs, eviction, compaction, figures, backups.
//
// # Concurrency
//
// Repository, Page and Snapshot are safe for concurrent use; a Tx, an Iter and a Value are for one
// goroutine at a time. Every call that can wait takes a context and obeys it, but finishes the
// write of a batch once that has begun. Close of a repository or page waits for running calls, but
// not for closures and loops of the caller: their next call fails with [ErrClosed]. Close cancels
// the context of code of the app that a merge runs, such as a Resolver, and waits for that code. No
// goroutine remains after Close.
//
// # Errors
//
// Compare errors with errors.Is against the sentinels of this package; [CorruptError],
// [LockedError] and [FormatError] carry details. [KindOf] says what to do about an error.
// docs/errors.md lists all errors.
//
// # Inside
//
// The package is a facade: a method converts its arguments and calls an engine below internal/. A
// [Page] is a handle of package session. Package merging merges the heads of a page, cloudlink
// syncs pages with the cloud, reclaim frees space, checkup verifies and repairs, and presence
// records where each page is. The packages admin, keys and rules reach the engines by package
// bridge. The package defines no format. It must not import cmd, cloudsync/gcs or cloudsync/s3.
//
// Repository.mu is not held during I/O. The cloud's turn is taken before a page's sync turn; both
// are held during I/O. A run of merges may wait for the page's write turn, so the holder of that
// turn must not wait for a merge.
package ledger
