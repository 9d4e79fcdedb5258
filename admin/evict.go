package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/internal/bridge"
	"github.com/ledgerd/ledger/internal/reclaim"
)

// EvictOptions say which pages lose their local copy. Pages are named, or chosen by FreeBytes and
// OlderThan: then the one that was closed longest ago goes first, and those that may not go are
// passed over.
type EvictOptions struct {
	// Pages are the pages, whatever their age. Empty: those that FreeBytes and OlderThan choose, of
	// which one must be set.
	Pages []ledger.PageRef
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
		return fmt.Errorf("a size or age below 0: %w", ledger.ErrInvalid)
	case len(o.Pages) == 0 && o.FreeBytes == 0 && o.OlderThan == 0 && !o.Values:
		return fmt.Errorf("want pages, a size to free, or an age: %w", ledger.ErrInvalid)
	case len(o.Pages) == 0 && o.DiscardUnsynced:
		return fmt.Errorf("what is not in the cloud is discarded of pages that are named only: %w", ledger.ErrInvalid)
	case o.KeepBytes > 0 && !o.Values:
		return fmt.Errorf("a size to keep is for values: %w", ledger.ErrInvalid)
	case o.Values && o.DiscardUnsynced:
		return fmt.Errorf("values that are not in the cloud are never dropped: %w", ledger.ErrInvalid)
	}
	return nil
}

// EvictBar says what keeps a page from being evicted. String gives a few words, such as "unsynced";
// Discardable reports whether EvictOptions.DiscardUnsynced lifts the bar. Values are only ever
// added.
type EvictBar = reclaim.Bar

// The bars.
const (
	// EvictFree: nothing does.
	EvictFree = reclaim.Free
	// EvictOpen: somebody has the page open.
	EvictOpen = reclaim.InUse
	// EvictNoCloud: no cloud is set, so it could not come back.
	EvictNoCloud = reclaim.NoCloud
	// EvictUnsynced: it has commits, tags or pieces of values that the bucket does not have.
	EvictUnsynced = reclaim.Unsynced
	// EvictOtherCloud: it was synced with another bucket than the present one.
	EvictOtherCloud = reclaim.OtherCloud
	// EvictDamaged: it cannot be opened.
	EvictDamaged = reclaim.Damaged
	// EvictAway: it is in the cloud only already.
	EvictAway = reclaim.Away
	// EvictUnproved: the bucket could not be asked whether it is there and the right one.
	EvictUnproved = reclaim.Unproved
	// EvictBlank: nothing was ever put into it, so no cloud has anything from which it could come
	// back.
	EvictBlank = reclaim.Blank
)

// EvictResult is what became of one page.
type EvictResult struct {
	ledger.PageRef
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

// EvictReport says what Evict did, or would do.
type EvictReport struct {
	// Evicted and Kept are the pages that were looked at, in the order of eviction. Pages that
	// FreeBytes left no need to look at are in neither.
	Evicted, Kept []EvictResult
	// FreedBytes is the sum of those of Evicted.
	FreedBytes int64
}

// Evict removes the local copies of pages that the bucket has; opening one brings it back. Only
// pages go that no app has open, those that are held open to sync them aside, and of which the
// bucket has everything, or that are empty and were never synced. A page that somebody opens
// meanwhile stays, or has left: then the opener waits and fetches it. A crash leaves each page
// whole or gone.
//
// Before anything goes the bucket is asked, once, whether it is there and the one that is
// remembered. Pages that are chosen and may not go are no error; for those that are named, the
// error joins an *EvictError for each. The report comes also with an error.
//
// Errors: ErrInvalid, ErrNotFound (a page that is named), ErrConflict (*EvictError), ErrReadOnly,
// ErrClosed, those of the file system and of ctx.
func Evict(ctx context.Context, repo *ledger.Repository, o *EvictOptions) (report EvictReport, err error) {
	how := given(o)
	if err := how.check(); err != nil {
		return report, fmt.Errorf("evict: %w", err)
	}
	r := of(repo)
	err = r.Change(ctx, "evict", how.DryRun, func(ctx context.Context) error {
		got, err := r.Space.Evict(ctx, reclaim.EvictOptions{
			Pages: keysOf(how.Pages), FreeBytes: how.FreeBytes, OlderThan: how.OlderThan, Values: how.Values, KeepBytes: how.KeepBytes,
			DryRun: how.DryRun, DiscardUnsynced: how.DiscardUnsynced, Blank: how.Blank,
		})
		report = EvictReport{Evicted: evictResults(got.Evicted), Kept: evictResults(got.Kept), FreedBytes: got.FreedBytes}
		errs := []error{err}
		for i := range report.Kept {
			if k := &report.Kept[i]; len(how.Pages) > 0 {
				errs = append(errs, &ledger.EvictError{Page: k.PageRef, Name: k.Name, Bar: k.Bar, Reason: k.Reason})
			}
		}
		return errors.Join(errs...)
	})
	return report, err
}

func evictResults(all []reclaim.Evicted) (out []EvictResult) {
	for _, c := range all {
		out = append(out, EvictResult{refOf(c.Page), c.Name, c.Bytes, c.LastClosed, c.Bar, c.Reason, c.Discarded})
	}
	return out
}

// KeepSpace does at once what is done from time to time by itself: it evicts pages, and drops
// values that the cloud has, until Options.Quota, FreeSpaceFloor and ValueBytes are kept. Without
// these it does nothing. Errors: ErrNoSpace when more would have to go than may, ErrReadOnly,
// ErrClosed, those of the file system and of ctx.
func KeepSpace(ctx context.Context, repo *ledger.Repository) error {
	r := bridge.Of(repo)
	return r.Change(ctx, "keep space", false, r.Quota.Keep)
}

// DeleteLedger deletes all pages of a ledger on this device, as Repository.DeletePage does. The
// first page that is refused ends it; those before are deleted and returned. Errors: those of
// Repository.DeletePage; ErrNotFound when it has no page.
func DeleteLedger(ctx context.Context, repo *ledger.Repository, name string, o *ledger.DeleteOptions) (all []ledger.DeletedPage, err error) {
	pages, err := repo.Pages(ctx)
	if err != nil {
		return nil, fmt.Errorf("delete: %w", err)
	}
	pages = slices.DeleteFunc(pages, func(p ledger.PageInfo) bool { return p.Ledger != name })
	if len(pages) == 0 {
		return nil, fmt.Errorf("delete: ledger %q: %w", name, ledger.ErrNotFound)
	}
	for _, p := range pages {
		d, err := repo.DeletePage(ctx, p.PageRef, o)
		if err != nil {
			return all, err
		}
		all = append(all, d)
	}
	return all, nil
}
