// Package admin maintains repositories, for programs such as ledgerd: checks and repairs, garbage
// and space, figures, backups, and inspection of a bucket. Apps do not need it: a repository
// collects its garbage and enforces Options.Quota itself. The routine of an operator is Check,
// CheckCloud, Backup, Collect and CollectCloud.
//
// Status returns the state of all pages, Usage their disk space, Metrics the requests and bytes of
// sync, Stats the counters of an open page. Tree, Nodes, Pieces and Rows show the structure of a
// page.
//
// The functions take a repository, or a page, that package ledger has opened:
//
//	report, err := admin.Check(ctx, repo, &admin.CheckOptions{Repair: true})
//	collected, err := admin.Collect(ctx, repo, &admin.CollectOptions{
//		Retention: &admin.Retention{Age: 90 * 24 * time.Hour}})
//	compacted, err := admin.Compact(ctx, repo, nil)
//	evicted, err := admin.Evict(ctx, repo, &admin.EvictOptions{FreeBytes: 1 << 30})
//	status, err := admin.Status(ctx, repo)
//
// Options are pointers, and nil means their zero value. A call on several pages continues after one
// fails. Its result has the work done, also with an error; the error joins a *ledger.PageError for
// each page that failed. Errors and names not defined here are those of package ledger. A zero
// commit id means the newest head.
//
// All functions may be called concurrently, with each other and with all of package ledger. The
// package reaches the engines of the root through internal/bridge. It holds no state and no format.
// Its API may change with any release.
package admin
