package ledger_test

import (
	"context"
	"fmt"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
	"github.com/ledgerd/ledger/gc"
)

// The tests in the package itself cannot import package admin, which imports it.
var _ = ledger.SetAdmin(ledger.Administration{
	Check: func(ctx context.Context, r *ledger.Repository) error {
		report, err := admin.Check(ctx, r, nil)
		if err == nil && !report.OK() {
			err = fmt.Errorf("check: %+v", report)
		}
		return err
	},
	Collect: func(ctx context.Context, r *ledger.Repository, keep *gc.Policy, dry bool) (pruned int, err error) {
		done, err := admin.Collect(ctx, r, &admin.CollectOptions{Retention: keep, DryRun: dry})
		for _, c := range done {
			pruned += c.Pruned
		}
		return pruned, err
	},
	Erase: func(ctx context.Context, r *ledger.Repository, page ledger.PageRef, key []byte) (int, error) {
		e, err := admin.Erase(ctx, r, page, key, nil)
		return e.Commits, err
	},
	Evict: func(ctx context.Context, r *ledger.Repository, dry bool, pages ...ledger.PageRef) (evicted []ledger.PageRef, freed int64, err error) {
		report, err := admin.Evict(ctx, r, &admin.EvictOptions{Pages: pages, DryRun: dry})
		for _, e := range report.Evicted {
			evicted = append(evicted, e.PageRef)
		}
		return evicted, report.FreedBytes, err
	},
	Usage: func(ctx context.Context, r *ledger.Repository) (pages []ledger.PageBar, garbage int64, err error) {
		u, err := admin.Usage(ctx, r)
		for _, p := range u.Pages {
			pages = append(pages, ledger.PageBar{PageInfo: p.PageInfo, Bar: p.Bar})
		}
		return pages, u.Garbage, err
	},
})
