package admin

import (
	"context"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/internal/bridge"
)

// CompactOptions configure Compact. The zero value compacts all pages.
type CompactOptions struct {
	// Pages are the pages, nil all; an empty list that is not nil means none.
	Pages []ledger.PageRef
	// DryRun only measures what would be freed.
	DryRun bool
	// Progress, when not nil, is called from time to time on the calling goroutine with the present
	// page, and the bytes of its files.
	Progress func(ledger.Progress)
}

// PageCompaction is the result of compaction for a page. Sizes are in bytes.
type PageCompaction struct {
	ledger.PageRef
	// Name is the page's human name, "" when there is none.
	Name string
	// Before and After are the sizes of its segments and page.db, including concurrent writes.
	Before, After int64
	// Freed is the space freed by rewritten segments and by free pages of page.db. After a DryRun
	// it is an estimate.
	Freed int64
	// Segments counts the rewritten segments.
	Segments int
}

// Compact returns the space of deleted data to the system. It rewrites those segments of the pages
// of which a fifth or more is garbage, a few at a time, and page.db when more than half of it is
// free. Readers and writers continue. It needs room for the live data of one segment, or half of
// page.db, before it frees any; on a full disk it uses the reserve of the repository. A crash loses
// nothing; the next open of the page removes leftover files. ctx may end it at any time: completed
// work is kept.
//
// A page that cannot be compacted does not stop the others. The result has the compacted pages,
// also with an error. Errors match ErrClosed, ErrReadOnly, ErrNotFound (a named page is not on this
// device), ErrNoSpace or ErrCorrupt, or are those of the disk and of ctx.
func Compact(ctx context.Context, repo *ledger.Repository, o *CompactOptions) (all []PageCompaction, err error) {
	r, how := of(repo), given(o)
	err = r.Change(ctx, "compact", false, func(ctx context.Context) error {
		return r.visitAll(ctx, how.Pages, func(ctx context.Context, p *bridge.Page) error {
			c := PageCompaction{PageRef: refOf(p.Key), Name: p.Name}
			var progress func(done, total int64)
			if how.Progress != nil {
				progress = func(done, total int64) {
					how.Progress(ledger.Progress{Bytes: done, TotalBytes: total, Now: p.Key.Text(p.Name)})
				}
			}
			done, err := p.Collector.Compact(ctx, how.DryRun, progress)
			c.Before, c.After, c.Freed, c.Segments = done.Before, done.After, done.Freed, done.Replaced
			if err == nil || c.Freed != 0 {
				all = append(all, c)
			}
			return err
		})
	})
	return all, err
}
