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
	return a.pageAt(ctx, f.Page, changes, f.At, func(page *ledger.Page, snap *ledger.Snapshot) error {
		r, err := a.fetchValues(ctx, snap, f.Prefix.bytes)
		if err != nil {
			return err
		}
		a.outcome(false, "fetched", object{"page", pageText(page), "longValues", r.Values, "pieces", r.Pieces, "bytes", size(r.Bytes)})
		return nil
	})
}

// fetchValues fetches the missing values below a prefix, and shows the progress.
func (a *app) fetchValues(ctx context.Context, snap *ledger.Snapshot, prefix []byte) (ledger.PrefetchResult, error) {
	p := a.startProgress(ctx, "fetching", "values")
	defer p.finish()
	return snap.Prefetch(ctx, prefix, func(r ledger.PrefetchResult) {
		p.update(func(c *counters) { c.files, c.bytes = r.Values, r.Bytes })
	})
}
