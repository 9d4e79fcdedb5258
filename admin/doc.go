// Package admin is for those who look after repositories, such as the program ledgerd: checks and
// repairs, garbage and space, figures, backups, and what a bucket has and tells. Apps need none of
// it: a repository collects its garbage and keeps Options.Quota by itself. The round of an operator
// is Check, CheckCloud, Backup, Collect and CollectCloud.
//
// Status tells the state of all pages, Usage what takes space, Metrics the requests and bytes of
// sync, Stats the counters of an open page. Tree, Nodes, Pieces and Rows show how a page is built.
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
// Options are pointers, and nil means their zero value. A call about several pages goes on when one
// fails; its result has what was done, also with an error, which joins a *ledger.PageError for each
// page that failed. The errors, and names that are not found here, are those of package ledger. A
// zero commit id means the newest head.
//
// All functions may be called concurrently, with each other and with all of package ledger. The
// package stands on the engines behind the root, which it reaches through internal/bridge. It holds
// no state and no format. Its names may change with any release.
package admin
