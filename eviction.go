package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/layout"
	"github.com/ledgerd/ledger/internal/presence"
	"github.com/ledgerd/ledger/internal/reclaim"
)

// EvictOptions say which pages lose their local copy. Pages are named, or chosen by FreeBytes and
// OlderThan: then the one that was closed longest ago goes first, and those that may not go are
// passed over.
type EvictOptions struct {
	// Pages are the pages, whatever their age. Empty: those that FreeBytes and OlderThan choose, of
	// which one must be set.
	Pages []PageRef
	// FreeBytes ends it when so many bytes are free that were not; 0: it goes on.
	FreeBytes int64
	// OlderThan leaves pages alone that were closed less than this ago; 0: none.
	OlderThan time.Duration
	// Values keeps the pages, open or not, and drops the content of their values that the bucket
	// has: it comes back when it is read. What was not read for a day goes first, in all the pages,
	// then what was not read for an hour, and of each what was stored first; this process knows
	// what it has read. Index pieces stay. The bytes are free once the page is compacted.
	Values bool
	// KeepBytes, with Values, lets so many bytes of values that the bucket has stay in all the
	// pages together; 0: none.
	KeepBytes int64
	// DryRun changes nothing: the report says what would be.
	DryRun bool
	// DiscardUnsynced evicts pages also when that loses what only this device has, and when the
	// bucket cannot be asked. It is for pages that are named.
	DiscardUnsynced bool
	// Blank evicts also pages into which nothing was ever put: they are gone then, and opening one
	// makes an empty page.
	Blank bool
}

func (o *EvictOptions) check() error {
	switch {
	case o.FreeBytes < 0 || o.OlderThan < 0 || o.KeepBytes < 0:
		return fmt.Errorf("a size or age below 0: %w", ErrInvalid)
	case len(o.Pages) == 0 && o.FreeBytes == 0 && o.OlderThan == 0 && !o.Values:
		return fmt.Errorf("want pages, a size to free, or an age: %w", ErrInvalid)
	case len(o.Pages) == 0 && o.DiscardUnsynced:
		return fmt.Errorf("what is not in the cloud is discarded of pages that are named only: %w", ErrInvalid)
	case o.KeepBytes > 0 && !o.Values:
		return fmt.Errorf("a size to keep is for values: %w", ErrInvalid)
	case o.Values && o.DiscardUnsynced:
		return fmt.Errorf("values that are not in the cloud are never dropped: %w", ErrInvalid)
	}
	return nil
}

// EvictBar says what keeps a page from being evicted. Values are only ever added.
type EvictBar uint8

// The bars.
const (
	// EvictFree: nothing does.
	EvictFree = EvictBar(reclaim.Free)
	// EvictOpen: somebody has the page open.
	EvictOpen = EvictBar(reclaim.InUse)
	// EvictNoCloud: no cloud is set, so it could not come back.
	EvictNoCloud = EvictBar(reclaim.NoCloud)
	// EvictUnsynced: it has commits, tags or pieces of values that the bucket does not have.
	EvictUnsynced = EvictBar(reclaim.Unsynced)
	// EvictOtherCloud: it was synced with another bucket than the present one.
	EvictOtherCloud = EvictBar(reclaim.OtherCloud)
	// EvictDamaged: it cannot be opened.
	EvictDamaged = EvictBar(reclaim.Damaged)
	// EvictAway: it is in the cloud only already.
	EvictAway = EvictBar(reclaim.Away)
	// EvictUnproved: the bucket could not be asked whether it is there and the right one.
	EvictUnproved = EvictBar(reclaim.Unproved)
	// EvictBlank: nothing was ever put into it, so no cloud has anything from which it could come
	// back.
	EvictBlank = EvictBar(reclaim.Blank)
)

var evictBars = [...]string{"none", "open", "no cloud", "unsynced", "other cloud", "damaged", "in the cloud only", "cloud out of reach", "blank"}

// String returns a few words, such as "unsynced".
func (b EvictBar) String() string {
	if int(b) < len(evictBars) {
		return evictBars[b]
	}
	return fmt.Sprintf("bar %d", uint8(b))
}

// Discardable reports whether EvictOptions.DiscardUnsynced lifts the bar.
func (b EvictBar) Discardable() bool { return reclaim.Bar(b).Discardable() }

// EvictResult is what became of one page.
type EvictResult struct {
	PageRef
	// Name is the page's human name, "" when there is none.
	Name string
	// Bytes is what was freed, or would be; for a page that stays, what it takes.
	Bytes int64
	// LastClosed is when the page was last closed; zero when that is not known.
	LastClosed time.Time
	// Bar says why the page stays, and Reason tells it to people; zero when it went.
	Bar    EvictBar
	Reason string
	// Discarded reports that something went with it that only this device had.
	Discarded bool
}

// EvictError reports a page that was named and stays. It matches ErrConflict.
type EvictError struct {
	Page   PageRef
	Name   string
	Bar    EvictBar
	Reason string
}

// Error implements error.
func (e *EvictError) Error() string {
	return fmt.Sprintf("page %s stays: %s", base.PageName(e.Page.Ledger, e.Name, e.Page.ID), e.Reason)
}

// Is makes it match ErrConflict.
func (e *EvictError) Is(target error) bool { return target == ErrConflict }

// EvictReport says what Evict did, or would do.
type EvictReport struct {
	// Evicted and Kept are the pages that were looked at, in the order of eviction. Pages that
	// FreeBytes left no need to look at are in neither.
	Evicted, Kept []EvictResult
	// FreedBytes is the sum of those of Evicted.
	FreedBytes int64
}

// Evict removes the local copies of pages that the bucket has; opening one brings it back. Only
// pages go that nobody has open and of which the bucket has everything, or that are empty and were
// never synced. A page that somebody opens meanwhile stays, or has left: then the opener waits and
// fetches it. A crash leaves each page whole or gone.
//
// Before anything goes the bucket is asked, once, whether it is there and the one that is
// remembered. Pages that are chosen and may not go are no error; for those that are named, the
// error joins an *EvictError for each. The report comes also with an error.
//
// Errors: ErrInvalid, ErrNotFound (a page that is named), ErrConflict (*EvictError), ErrReadOnly,
// ErrClosed, those of the file system and of ctx.
func (r *Repository) Evict(ctx context.Context, o EvictOptions) (EvictReport, error) {
	return r.evict(ctx, &o, false)
}

// evict is Evict; with openOnly values of pages go that somebody has open.
func (r *Repository) evict(ctx context.Context, o *EvictOptions, openOnly bool) (report EvictReport, err error) {
	if err := o.check(); err != nil {
		return report, fmt.Errorf("evict: %w", err)
	}
	eo := reclaim.EvictOptions{
		FreeBytes: o.FreeBytes, OlderThan: o.OlderThan, Values: o.Values, KeepBytes: o.KeepBytes, DryRun: o.DryRun,
		DiscardUnsynced: o.DiscardUnsynced, Blank: o.Blank, OpenOnly: openOnly,
	}
	for _, ref := range o.Pages {
		eo.Pages = append(eo.Pages, ref.key())
	}
	err = r.change(ctx, "evict", o.DryRun, func(ctx context.Context) error {
		got, err := r.reclaimer().Evict(ctx, eo)
		errs := []error{err}
		report.FreedBytes = got.FreedBytes
		for i := range got.Evicted {
			report.Evicted = append(report.Evicted, evictResult(&got.Evicted[i]))
		}
		for i := range got.Kept {
			c := evictResult(&got.Kept[i])
			report.Kept = append(report.Kept, c)
			if len(o.Pages) > 0 {
				errs = append(errs, &EvictError{c.PageRef, c.Name, c.Bar, c.Reason})
			}
		}
		return errors.Join(errs...)
	})
	return report, err
}

func evictResult(c *reclaim.Evicted) EvictResult {
	return EvictResult{refOf(c.Page), c.Name, c.Bytes, c.LastClosed, EvictBar(c.Bar), c.Reason, c.Discarded}
}

// reclaimer returns the repository as its pages are evicted.
func (r *Repository) reclaimer() *reclaim.Host {
	return &reclaim.Host{
		Disk: r.disk, Usage: r.usage, Clock: r.clock, Log: r.o.Logger, Prove: r.cloud.Prove, Where: r.pages.Where, UseOf: r.pages.UseOf, Store: r.storageOptions,
		Bucket: func() ([16]byte, bool, error) {
			id, ok, err := r.cloud.Bucket()
			return id, ok, err
		},
		Alone: func(ctx context.Context, k pageKey, fn func(func(context.Context, *layout.Absence) error) error) error {
			return r.pages.Take(ctx, k, func(a *presence.Alone[*pageStore, *Page]) error { return fn(a.Leave) })
		},
		Visit: func(ctx context.Context, k pageKey, fn func(context.Context, *reclaim.Collector) error) error {
			return r.visit(ctx, k, func(ctx context.Context, p *Page) error { return fn(ctx, p.shared.collector) })
		},
	}
}
