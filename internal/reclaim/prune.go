package reclaim

import (
	"context"
	"errors"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/gc"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/storage"
)

// Prune gives up the history of a page without a cloud, except what policy, tags or keep retain. It
// returns the number of commits, also with an error; with dry it only counts them. Commits in use
// stay until the next time. Errors: those of the store and of ctx.
func Prune(ctx context.Context, store *storage.Store, policy gc.Policy, keep []commit.ID, now time.Time, dry bool) (pruned int, err error) {
	tags, err := store.Tags(ctx)
	if err != nil {
		return 0, err
	}
	all, err := store.FindCommits(ctx, nil, false, math.MaxInt)
	if err != nil {
		return 0, err
	}
	page := gc.Page{History: store, Heads: store.Heads(), All: all, Keep: slices.Concat(slices.Collect(maps.Values(tags)), keep)}
	ids, err := gc.Prune(ctx, page, policy, now)
	if err != nil || len(ids) == 0 || dry {
		return len(ids), err
	}
	if err := cloudsync.Forget(ctx, store); err != nil { // a former cloud has no record of this
		return 0, err
	}
	kept, err := cloudsync.Prune(ctx, store, ids)
	if err == nil || errors.Is(err, base.ErrConflict) {
		return len(ids) - len(kept), nil
	}
	after := context.WithoutCancel(ctx) // completed work is reported
	for _, id := range ids {
		if _, err := store.Commit(after, id); errors.Is(err, base.ErrNotFound) || errors.Is(err, base.ErrGone) {
			pruned++
		}
	}
	return pruned, err
}
