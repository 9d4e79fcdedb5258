package admin

import (
	"context"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/internal/bridge"
)

// CompactOptions say what Compact does. The zero value compacts all pages.
type CompactOptions struct {
	// Pages are the pages, nil all; an empty list that is not nil means none.
	Pages []ledger.PageRef
	// DryRun only says what would come back.
	DryRun bool
	// Progress, when not nil, is called from time to time on the calling goroutine with the page
	// that is looked at, how many bytes of its files have been, and of how many.
	Progress func(c PageCompaction, done, total int64)
}

// PageCompaction says what compaction has done to the files of a page. Sizes are in bytes.
type PageCompaction struct {
	ledger.PageRef
	// Name is the page's human name, "" when there is none.
	Name string
	// Before and After are what its segments and page.db took and take. What was written meanwhile
	// counts.
	Before, After int64
	// Freed came back: segments that were written anew without what was deleted, and free pages of
	// page.db. After a DryRun it is what would, about.
	Freed int64
	// Segments counts those that were written anew.
	Segments int
}

// Compact gives the space of what was deleted back to the system: it writes those segments of the
// pages anew of which a fifth or more is garbage, a few at a time, and page.db when more than half
// of it is free. Readers and writers go on. It takes room for what is live in one segment, or half
// of page.db, before it gives any back; on a full disk what the page's reserve has. A crash at any
// moment loses nothing; what is left over goes when the page is opened next. ctx may end it at any
// time: what was done stays done.
//
// A page that cannot be compacted does not keep the others from it. The result has the pages that
// were, also with an error. Errors match ErrClosed, ErrReadOnly, ErrNotFound (of a page that is
// named and not on this device), ErrNoSpace or ErrCorrupt, or are those of the disk and of ctx.
func Compact(ctx context.Context, repo *ledger.Repository, o *CompactOptions) (all []PageCompaction, err error) {
	r, how := of(repo), given(o)
	err = r.Change(ctx, "compact", false, func(ctx context.Context) error {
		return r.visitAll(ctx, how.Pages, func(ctx context.Context, p *bridge.Page) error {
			c := PageCompaction{PageRef: refOf(p.Key), Name: p.Name}
			var progress func(done, total int64)
			if how.Progress != nil {
				progress = func(done, total int64) { how.Progress(c, done, total) }
			}
			done, err := p.Collector.Compact(ctx, how.DryRun, progress)
			c.Before, c.After, c.Segments = done.Before, done.After, done.Replaced
			c.Freed = done.Freed + done.IndexBefore - done.IndexAfter
			if err == nil || c.Freed != 0 {
				all = append(all, c)
			}
			return err
		})
	})
	return all, err
}
