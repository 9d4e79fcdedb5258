package cli

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
)

type gcFlags struct {
	consent
	Pages      pageRefs `arg:"..."`
	KeepLast   int      `flag:"keep-last" usage:"keep the newest \x60N\x60 commits of each page"`
	KeepWithin age      `flag:"keep-within" usage:"keep commits younger than this time, such as 12h, 30d, 8w or 1y"`
	Compact    bool     `flag:"compact" usage:"free the space of deleted data"`
}

func (a *app) gc(ctx context.Context, f gcFlags) error {
	o := admin.CollectOptions{Pages: f.Pages}
	if f.KeepLast < 0 || f.KeepLast == 0 && a.changed("keep-last") {
		return usagef("--keep-last is %d, want 1 or more", f.KeepLast)
	}
	danger := ""
	if f.KeepLast > 0 || f.KeepWithin > 0 {
		o.Retention = &admin.Retention{Commits: f.KeepLast, Age: time.Duration(f.KeepWithin)}
		danger = "given-up history cannot be restored"
	}
	return a.destroy(ctx, f.consent, danger, func(dry bool) error {
		o.DryRun = dry
		return a.change(ctx, func(repo *ledger.Repository) error { return a.collect(ctx, repo, o, f.Compact) })
	})
}

// collect collects the garbage of the pages of o, and then compacts them if compact is set. A page
// that cannot be collected does not prevent compaction: on a full disk, compaction frees room.
func (a *app) collect(ctx context.Context, repo *ledger.Repository, o admin.CollectOptions, compact bool) error {
	p := a.startProgress(ctx, "collecting", "pages")
	o.Progress = p.follow
	pages, err := admin.Collect(ctx, repo, &o)
	p.finish()
	for _, c := range pages {
		a.collected(c, o.DryRun)
	}
	if errors.Is(err, ledger.ErrNotFound) && !is[*ledger.PageError](err) { // of the named pages, before any work
		return withHint(bare(err), "%s", a.fetchHint())
	}
	done := len(pages) > 0
	if compact && ctx.Err() == nil {
		freed, compactErr := a.compact(ctx, repo, admin.CompactOptions{Pages: o.Pages, DryRun: o.DryRun})
		done, err = done || freed, errors.Join(err, compactErr)
	}
	return partly(err, done && !o.DryRun)
}

func (a *app) collected(c admin.PageCollection, dry bool) {
	a.outcome(dry, "collected", object{
		"page", nameOf(c.Ledger, c.Name, c.ID), "givenUpCommits", c.Pruned, "deletedPieces", c.Pieces, "deletedNodes", c.Nodes,
		"deletedBytes", size(c.Bytes), "retentionInBucket", c.InBucket, "unmergedHeads?", unmerged(c.Heads),
	})
}

// unmerged returns the number of heads in a bucket if they delay the end of history, else 0.
func unmerged(heads int) int { return choose(heads > 1, heads, 0) }

// compact compacts the pages of o. freed reports whether that released any space.
func (a *app) compact(ctx context.Context, repo *ledger.Repository, o admin.CompactOptions) (freed bool, err error) {
	p := a.startProgress(ctx, "compacting", "pages")
	o.Progress = p.follow
	pages, err := admin.Compact(ctx, repo, &o)
	p.finish()
	if err == nil || len(pages) > 0 {
		a.compacted(pages, o.DryRun)
	}
	return slices.ContainsFunc(pages, func(c admin.PageCompaction) bool { return c.Freed > 0 }), err
}

// compacted prints the results of Compact.
func (a *app) compacted(pages []admin.PageCompaction, dry bool) {
	total := int64(0)
	for _, c := range pages {
		total += c.Freed
		a.outcome(dry, "compacted", object{
			"page", nameOf(c.Ledger, c.Name, c.ID), "bytesBefore", size(c.Before), "bytesAfter", size(c.After), "freedBytes", size(c.Freed),
			"segments", c.Segments,
		})
	}
	if len(pages) != 1 {
		a.summary("%s of %s %s\n", sizeText(total), countText(len(pages), "pages"), choose(dry, "would be freed", "freed"))
	}
}
