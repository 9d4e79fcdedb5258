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

// Retention limits the kept history of a page: the newest Commits, and those up to Age old by their
// timestamps; 0 turns a rule off. Age counts back from now or, with a cloud, from the newest head,
// so that all devices keep the same commits. A commit is kept if any rule keeps it; heads, tagged
// commits, and commits that a merge of the present heads needs are always kept. The zero value
// keeps all. See gc.Policy for its fields.
type Retention = gc.Policy

// CollectOptions configure Collect. The zero value collects the garbage of all pages and gives no
// history up.
type CollectOptions struct {
	// Pages are the pages, nil all; an empty list that is not nil means none.
	Pages []ledger.PageRef
	// Retention, when not nil, gives up history first. With a cloud it becomes the retention of the
	// page in the bucket, for all devices, and applies there at once.
	Retention *Retention
	// DryRun only counts the commits that would be given up.
	DryRun bool
	// Progress, when not nil, is called from time to time on the calling goroutine, with the
	// present page and the bytes collected from it.
	Progress func(ledger.Progress)
}

// PageCollection is the result of Collect for one page.
type PageCollection struct {
	ledger.PageRef
	// Name is the page's human name, "" when there is none.
	Name string
	// Pruned counts the commits that were given up.
	Pruned int
	// Pieces and Nodes count the deleted ones. Bytes is their size in the segments, which Compact
	// frees.
	Pieces, Nodes int
	Bytes         int64
	// InBucket reports that the retention was or would be set in the bucket. CollectCloud deletes
	// the bucket's copies of the commits.
	InBucket bool
	// Heads is how many heads the bucket has. With several no history is given up there until they
	// are merged.
	Heads int
}

// Collect deletes unreferenced pieces and nodes: those of pruned commits and of unfinished
// transactions. With a retention it prunes commits first. Readers, writers and open snapshots
// continue; pieces that they hold are collected later. Compact returns the space to the system. The
// result is valid also with an error, which joins a *PageError for each page that failed.
//
// With a cloud, a retention gives history up in the bucket, for all devices, and so needs the
// network. Errors: ErrClosed, ErrReadOnly, ErrInvalid, ErrNotFound (a named page is not on this
// device), ErrCorrupt (see Check; nothing is deleted because of damage), those of the disk and of
// ctx; with a cloud and a retention those of Sync.
func Collect(ctx context.Context, repo *ledger.Repository, o *CollectOptions) (all []PageCollection, err error) {
	r, c := of(repo), collection{repo: repo, o: given(o)}
	err = r.Change(ctx, "collect garbage", c.o.DryRun, func(ctx context.Context) error {
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
			err = c.pruneInBucket(ctx, p, done)
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
			c.o.Progress(ledger.Progress{Bytes: done.Bytes, Now: p.Key.Text(p.Name)})
		}
	})
}

// pruneInBucket sets the bucket's retention, and gives history up there for all devices.
func (c *collection) pruneInBucket(ctx context.Context, p *bridge.Page, done *PageCollection) error {
	r := cloudsync.Retention{Last: uint64(c.o.Retention.Commits), Within: c.o.Retention.Age}
	return p.WithSync(ctx, "give history up in the bucket", func(ctx context.Context, s *cloudsync.Page) error {
		got, err := s.CollectGarbage(ctx, cloudsync.GCOptions{DryRun: c.o.DryRun, Retention: &r})
		if err == nil {
			done.Pruned, done.Heads = got.Commits, got.Heads
		}
		return err
	})
}
