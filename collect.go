package ledger

import (
	"context"
	"time"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/gc"
	"github.com/ledgerd/ledger/internal/reclaim"
	"github.com/ledgerd/ledger/storage"
)

// Retention says which history of a page is kept. A commit stays when any of the rules keeps it;
// heads, tagged commits, and what merging the present heads needs stay always. The zero value keeps
// all.
type Retention struct {
	// Commits keeps the newest so many; 0: the rule is not there.
	Commits int
	// Age keeps the commits of so long a time, by their timestamps; 0: the rule is not there. It
	// counts back from now, with a cloud from the newest head, so that all devices keep the same.
	Age time.Duration
}

// CollectOptions say what Collect does. The zero value collects the garbage of all pages and gives
// no history up.
type CollectOptions struct {
	// Pages are the pages, nil all.
	Pages []PageRef
	// Retention, when not nil, gives up history first. For a repository with a cloud it becomes the
	// setting of the page in the bucket, for all devices, and takes effect there at once.
	Retention *Retention
	// DryRun only counts the commits that would be given up.
	DryRun bool
	// Progress, when not nil, is called from time to time on the calling goroutine, with what was
	// done so far on the page.
	Progress func(PageCollection)
}

// PageCollection says what was collected of a page.
type PageCollection struct {
	PageRef
	// Name is the page's human name, "" when there is none.
	Name string
	// Pruned counts the commits that were given up.
	Pruned int
	// Pieces and Nodes count what was deleted, Bytes what that takes in the segments: Compact gives
	// it back.
	Pieces, Nodes int
	Bytes         int64
	// InBucket reports that the retention was made the bucket's setting, or would be. What the
	// bucket has had of the commits is deleted by CollectCloud.
	InBucket bool
}

// Collect deletes what nothing refers to any more: what pruned commits alone reached, and what
// transactions have left that did not come to an end. With a retention it prunes commits first.
// Readers, writers and open snapshots go on meanwhile and keep what they see; what they hold is
// collected later. Space comes back to the system with Compact. It returns what was done also with
// an error, which joins a *PageError for each page that failed. Errors: ErrClosed, ErrReadOnly,
// ErrInvalid, ErrNotFound (of a page that is named and not on this device), ErrCorrupt (then Check
// says more, and nothing is deleted on account of what is damaged), those of the disk and of ctx;
// with a cloud and a retention those of Sync. With a cloud, history is given up in the bucket, for
// all devices, so a retention needs the network there.
func (r *Repository) Collect(ctx context.Context, o CollectOptions) (all []PageCollection, err error) {
	err = r.change(ctx, "collect garbage", false, func(ctx context.Context) error {
		if o.Retention != nil {
			if err := o.Retention.policy().Check(); err != nil {
				return err
			}
		}
		return r.visitAll(ctx, o.Pages, func(ctx context.Context, p *Page) error {
			c := PageCollection{PageRef: p.ref(), Name: p.Name()}
			err := p.collect(ctx, o, &c)
			if err == nil || c.Pruned > 0 && !o.DryRun || c.Pieces+c.Nodes > 0 {
				all = append(all, c)
			}
			return err
		})
	})
	return all, err
}

func (r Retention) policy() gc.Policy { return gc.Policy{Commits: r.Commits, Age: r.Age} }

func (p *Page) collect(ctx context.Context, o CollectOptions, c *PageCollection) error {
	if _, ok := p.ledger.repo.Cloud(); ok {
		if err := p.followBucket(ctx, o, c); err != nil {
			return err
		}
	} else if o.Retention != nil {
		var err error
		c.Pruned, err = reclaim.Prune(ctx, p.store, o.Retention.policy(), p.shared.positions(), p.ledger.repo.clock.Now(), o.DryRun)
		if err != nil {
			return err
		}
	}
	if o.DryRun {
		return nil
	}
	return p.shared.collector.All(ctx, func(st storage.CollectStats) {
		c.Pieces, c.Nodes, c.Bytes = st.Pieces, st.Nodes, st.Bytes
		if o.Progress != nil {
			o.Progress(*c)
		}
	})
}

// followBucket makes a retention the bucket's, and gives up there what it gives up, for all
// devices.
func (p *Page) followBucket(ctx context.Context, o CollectOptions, c *PageCollection) error {
	if o.Retention == nil {
		return nil
	}
	c.InBucket = true
	r := cloudsync.Retention{Last: uint64(o.Retention.Commits), Within: o.Retention.Age}
	return p.withSync(ctx, "give history up in the bucket", func(ctx context.Context, s *cloudsync.Page) error {
		got, err := s.CollectGarbage(ctx, cloudsync.GCOptions{DryRun: o.DryRun, Retention: &r})
		if err == nil {
			c.Pruned = got.Commits
		}
		return err
	})
}

// collecting returns what collects garbage in the background.
func (r *Repository) collecting() *reclaim.Background {
	o := &r.o.Collection
	return &reclaim.Background{Clock: r.clock, Interval: o.Interval, Time: o.Time, Bytes: o.Bytes, NoCompact: o.NoCompact, Open: func() (open []*reclaim.Collector) {
		for _, s := range r.pages.Stores(false) {
			open = append(open, s.collector)
		}
		return open
	}}
}

// GarbageState says what was collected of a page since it was opened.
type GarbageState struct {
	// Due reports that the next round will look for garbage.
	Due bool
	// Last is when a collection last came to its end, zero when none has.
	Last time.Time
	// Pieces and Nodes count what was deleted, Bytes what that takes in the segments until they are
	// compacted.
	Pieces, Nodes int
	Bytes         int64
	// Err says why the last collection failed; nil when it did not.
	Err error
}
