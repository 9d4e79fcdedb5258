package reclaim

import (
	"context"
	"fmt"
	"time"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/internal/presence"
	"github.com/ledgerd/ledger/storage"
)

// coldness is the order in which values are dropped: first, in all pages, those not read for the
// first duration, then those of the next.
var coldness = [...]time.Duration{24 * time.Hour, time.Hour, 0}

// runValues drops values of the candidates that the bucket has.
func (e *evictor) runValues(ctx context.Context, candidates []Evicted) error {
	var free []*Evicted
	held := int64(0)
	for i := range candidates {
		c := &candidates[i]
		ok, n, err := e.measureValues(ctx, c)
		if err != nil {
			return err
		}
		if ok {
			free = append(free, c)
			held += n
		}
	}
	want := held
	if e.o.KeepBytes > 0 {
		want = held - e.o.KeepBytes
	}
	if e.o.FreeBytes > 0 {
		want = min(want, e.o.FreeBytes)
	}
	if want > 0 && !e.o.DryRun {
		if err := e.host.Prove(ctx); err != nil {
			for _, c := range free {
				e.keep(c, unproved(err))
			}
			return ctx.Err()
		}
	}
	err := e.dropValues(ctx, free, want)
	for _, c := range free {
		if c.Bytes > 0 || len(e.o.Pages) > 0 {
			e.report.Evicted = append(e.report.Evicted, *c)
		}
	}
	return err
}

// dropValues drops the wanted number of bytes of values of pages that allow it, the coldest first.
func (e *evictor) dropValues(ctx context.Context, pages []*Evicted, want int64) error {
	for _, cold := range coldness {
		for _, c := range pages {
			left := want - e.report.FreedBytes
			if left <= 0 {
				return nil
			}
			if e.o.DryRun && cold > 0 {
				continue // all counts below would count it twice
			}
			err := e.withValues(ctx, c, func(ctx context.Context, p *Collector) error {
				o := dropOptions(p.page.Store)
				o.Bytes, o.NotReadFor, o.DryRun = left, cold, e.o.DryRun
				n, err := p.page.Store.DropCold(ctx, o)
				c.Bytes += n
				e.report.FreedBytes += n
				if n > 0 && !e.o.DryRun {
					p.Dropped(n)
				}
				return err
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// withValues calls fn with a page whose values may be dropped.
func (e *evictor) withValues(ctx context.Context, c *Evicted, fn func(context.Context, *Collector) error) error {
	err := e.host.Visit(ctx, c.Page, func(ctx context.Context, open *Collector) error {
		err := fn(ctx, open)
		open.page.Damaged(err)
		return err
	})
	if err != nil {
		return fmt.Errorf("drop values of page %s: %w", e.host.Usage.Text(c.Page), err)
	}
	return nil
}

// measureValues reports whether values of a page may be dropped, and their total bytes.
func (e *evictor) measureValues(ctx context.Context, c *Evicted) (ok bool, held int64, err error) {
	if e.o.OpenOnly && e.host.UseOf(c.Page) == presence.Nobody {
		return false, 0, nil
	}
	err = e.withValues(ctx, c, func(ctx context.Context, p *Collector) error {
		why, err := e.host.barOfValues(ctx, p.page.Store)
		if err != nil {
			return err
		}
		if why.Bar != Free {
			e.keep(c, why)
			return nil
		}
		ok = true
		o := dropOptions(p.page.Store)
		o.DryRun = true
		held, err = p.page.Store.DropCold(ctx, o)
		return err
	})
	return ok, held, err
}

// dropOptions spare values of an upload in flight, whose commits are not in the bucket yet.
func dropOptions(store *storage.Store) storage.DropOptions {
	return storage.DropOptions{Spare: func(ctx context.Context) (func(*storage.CloudPlace) bool, error) { return cloudsync.Sent(ctx, store) }}
}

// barOfValues returns why the values of a page may not be dropped: they could not be downloaded
// again. Values that the bucket does not have always stay.
func (h *Host) barOfValues(ctx context.Context, store *storage.Store) (Departed, error) {
	at, err := cloudsync.StandingOf(ctx, store)
	if err != nil {
		return Departed{}, err
	}
	why, err := h.barOfBucket(at)
	if err == nil && why.Bar == Free && !at.At.Joined() {
		why = Departed{Bar: Unsynced, Reason: "it was never synced"}
	}
	return why, err
}
