package cli

import (
	"context"

	"github.com/ledgerd/ledger"
)

type fetchFlags struct {
	pageArg
	Prefix prefix `arg:""`
	passphraseFlag
	At string `flag:"at" usage:"revision to fetch (default HEAD)"`
}

func (a *app) fetch(ctx context.Context, f fetchFlags) error {
	return a.page(ctx, f.Page, changes, func(page *ledger.Page) error {
		if awaitsSync(ctx, page) {
			if err := page.Sync(ctx); err != nil {
				return err
			}
		}
		return a.snapshot(ctx, page, f.At, func(snap *ledger.Snapshot) error {
			r, err := a.fetchValues(ctx, snap, f.Prefix.bytes)
			if err != nil {
				return err
			}
			a.outcome(false, choose(r.Values == 0, "no long values to fetch", "fetched"), object{"page", pageText(page), "longValues", r.Values, "pieces", r.Pieces, "bytes", size(r.Bytes)})
			return nil
		})
	})
}

// awaitsSync reports a page without a commit in a repository with a cloud. Its first sync may have
// failed.
func awaitsSync(ctx context.Context, page *ledger.Page) bool {
	_, cloud := page.Repository().Cloud()
	heads, err := page.Heads(ctx)
	return cloud && err == nil && len(heads) == 1 && heads[0].Generation == 0
}

// fetchValues fetches the missing values below a prefix, and shows the progress.
func (a *app) fetchValues(ctx context.Context, snap *ledger.Snapshot, prefix []byte) (ledger.PrefetchResult, error) {
	p := a.startProgress(ctx, "fetching", "values")
	defer p.finish()
	return snap.Prefetch(ctx, prefix, func(r ledger.PrefetchResult) {
		p.update(func(c *counters) { c.files, c.bytes = r.Values, r.Bytes })
	})
}
