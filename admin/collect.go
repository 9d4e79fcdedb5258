package admin

import (
	"context"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/gc"
	"github.com/ledgerd/ledger/internal/bridge"
	"github.com/ledgerd/ledger/internal/reclaim"
	"github.com/ledgerd/ledger/storage"
)

// Retention says which history of a page is kept: that of the newest Commits, and of so long an Age
// by their timestamps; 0 means that the rule is not there. Age counts back from now, with a cloud
// from the newest head, so that all devices keep the same. A commit stays when any of the rules
// keeps it; heads, tagged commits, and what merging the present heads needs stay always. The zero
// value keeps all. See gc.Policy for its fields.
type Retention = gc.Policy

// CollectOptions say what Collect does. The zero value collects the garbage of all pages and gives
// no history up.
type CollectOptions struct {
	// Pages are the pages, nil all; an empty list that is not nil means none.
	Pages []ledger.PageRef
	// Retention, when not nil, gives up history first. For a repository with a cloud it becomes the
	// setting of the page in the bucket, for all devices, and takes effect there at once.
	Retention *Retention
	// DryRun only counts the commits that would be given up.
	DryRun bool
	// Progress, when not nil, is called from time to time on the calling goroutine, with the result
	// so far of the page.
	Progress func(PageCollection)
}

// PageCollection is the result of Collect for one page.
type PageCollection struct {
	ledger.PageRef
	// Name is the page's human name, "" when there is none.
	Name string
	// Pruned counts the commits that were given up.
	Pruned int
	// Pieces and Nodes are the numbers of those that were deleted. Bytes is their length in the
	// segments, which Compact gives back.
	Pieces, Nodes int
	Bytes         int64
	// InBucket reports that the retention was made the bucket's setting, or would be. What the
	// bucket has had of the commits is deleted by CollectCloud.
	InBucket bool
}

// Collect deletes pieces and nodes to which nothing refers any more: those of pruned commits, and
// those of transactions that did not come to an end. With a retention it prunes commits first.
// Readers, writers and open snapshots go on meanwhile; the pieces that they hold are collected
// later. Space comes back to the system with Compact. The result comes also with an error, which
// joins a *PageError for each page that failed.
//
// With a cloud, a retention gives history up in the bucket, for all devices, and so needs the
// network. Errors: ErrClosed, ErrReadOnly, ErrInvalid, ErrNotFound (a named page is not on this
// device), ErrCorrupt (Check says more; damage never has anything deleted), those of the disk and
// of ctx; with a cloud and a retention those of Sync.
func Collect(ctx context.Context, repo *ledger.Repository, o *CollectOptions) (all []PageCollection, err error) {
	r, c := of(repo), collection{repo: repo, o: given(o)}
	err = r.Change(ctx, "collect garbage", false, func(ctx context.Context) error {
		if c.o.Retention != nil {
			if err := c.o.Retention.Check(); err != nil {
				return err
			}
		}
		return r.visitAll(ctx, c.o.Pages, func(ctx context.Context, p *bridge.Page) error {
			done := PageCollection{PageRef: refOf(p.Key), Name: p.Name}
			err := c.page(ctx, p, &done)
			if err == nil || done.Pruned > 0 && !c.o.DryRun || done.Pieces+done.Nodes > 0 {
				all = append(all, done)
			}
			return err
		})
	})
	return all, err
}

// collection is one call of Collect.
type collection struct {
	repo *ledger.Repository
	o    CollectOptions
}

func (c *collection) page(ctx context.Context, p *bridge.Page, done *PageCollection) (err error) {
	if c.o.Retention != nil {
		if _, done.InBucket = c.repo.Cloud(); done.InBucket {
			done.Pruned, err = c.pruneInBucket(ctx, p)
		} else {
			done.Pruned, err = reclaim.Prune(ctx, p.Store, *c.o.Retention, p.Positions(), bridge.Of(c.repo).Clock.Now(), c.o.DryRun)
		}
	}
	if err != nil || c.o.DryRun {
		return err
	}
	return p.Collector.All(ctx, func(st storage.CollectStats) {
		done.Pieces, done.Nodes, done.Bytes = st.Pieces, st.Nodes, st.Bytes
		if c.o.Progress != nil {
			c.o.Progress(*done)
		}
	})
}

// pruneInBucket makes the retention the bucket's, and gives up there what it gives up, for all
// devices.
func (c *collection) pruneInBucket(ctx context.Context, p *bridge.Page) (pruned int, err error) {
	r := cloudsync.Retention{Last: uint64(c.o.Retention.Commits), Within: c.o.Retention.Age}
	err = p.WithSync(ctx, "give history up in the bucket", func(ctx context.Context, s *cloudsync.Page) error {
		got, err := s.CollectGarbage(ctx, cloudsync.GCOptions{DryRun: c.o.DryRun, Retention: &r})
		if err == nil {
			pruned = got.Commits
		}
		return err
	})
	return pruned, err
}
