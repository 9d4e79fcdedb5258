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

// EvictOptions select the pages whose local copy is removed, by name or by FreeBytes and OlderThan.
// The latter evict the least recently closed page first, and skip pages that cannot be evicted.
type EvictOptions struct {
	// Pages are the pages to evict, whatever their age. When empty, FreeBytes or OlderThan must be
	// set.
	Pages []ledger.PageRef
	// FreeBytes stops after so many bytes have been freed; 0: no limit.
	FreeBytes int64
	// OlderThan skips pages that were closed more recently than this; 0 skips none.
	OlderThan time.Duration
	// Values keeps the pages, open or not, and drops the content of values that the bucket has;
	// reading a value downloads it again. Dropped first, over all pages, is content not read for a
	// day, then content not read for an hour, and within each the content stored first. Only reads
	// of this process count. Index pieces stay. Compaction of the page frees the bytes.
	Values bool
	// KeepBytes, with Values, is the total of bytes of values that the bucket has to keep in all
	// pages; 0: none.
	KeepBytes int64
	// DryRun changes nothing: the report says what would be evicted.
	DryRun bool
	// DiscardUnsynced evicts named pages even if data that only this device has is lost, or the
	// bucket cannot be reached.
	DiscardUnsynced bool
	// Blank evicts also pages that were never written: they no longer exist, and opening one makes
	// an empty page.
	Blank bool
}

// Check reports options that exclude each other, or select nothing. Errors: ErrInvalid.
func (o *EvictOptions) Check() error {
	switch {
	case o.FreeBytes < 0 || o.OlderThan < 0 || o.KeepBytes < 0:
		return fmt.Errorf("a size or age is below 0: %w", ledger.ErrInvalid)
	case len(o.Pages) == 0 && o.FreeBytes == 0 && o.OlderThan == 0 && !o.Values:
		return fmt.Errorf("name pages, or give a size to free or an age, or select values: %w", ledger.ErrInvalid)
	case len(o.Pages) == 0 && o.DiscardUnsynced:
		return fmt.Errorf("unsynced data can be discarded only of pages that are named: %w", ledger.ErrInvalid)
	case o.KeepBytes > 0 && !o.Values:
		return fmt.Errorf("a size to keep is for values: %w", ledger.ErrInvalid)
	case o.Values && o.DiscardUnsynced:
		return fmt.Errorf("values that are not in the cloud are never dropped: %w", ledger.ErrInvalid)
	}
	return nil
}

// EvictBar is the reason why a page cannot be evicted. String returns a short text, such as
// "unsynced"; Discardable reports whether EvictOptions.DiscardUnsynced overrides the bar. New
// versions may add values.
type EvictBar = reclaim.Bar

// The values of EvictBar.
const (
	// EvictFree: the page can be evicted.
	EvictFree = reclaim.Free
	// EvictOpen: the page is open.
	EvictOpen = reclaim.InUse
	// EvictNoCloud: no cloud is set from which the page could be downloaded again.
	EvictNoCloud = reclaim.NoCloud
	// EvictUnsynced: the page has commits, tags or pieces of values that the bucket does not have.
	EvictUnsynced = reclaim.Unsynced
	// EvictOtherCloud: the page was synced with another bucket than the present one.
	EvictOtherCloud = reclaim.OtherCloud
	// EvictDamaged: the page cannot be opened.
	EvictDamaged = reclaim.Damaged
	// EvictAway: the page is already in the cloud only.
	EvictAway = reclaim.Away
	// EvictUnproved: the bucket could not be reached to verify its identity.
	EvictUnproved = reclaim.Unproved
	// EvictBlank: the page was never written, so no cloud has a copy.
	EvictBlank = reclaim.Blank
)

// EvictResult is the result for one page.
type EvictResult struct {
	ledger.PageRef
	// Name is the page's human name, "" when there is none.
	Name string
	// Bytes is the space that was or would be freed; for a kept page, its size.
	Bytes int64
	// LastClosed is when the page was last closed; zero when not recorded.
	LastClosed time.Time
	// Bar is why the page stays, and Reason the text for users; zero for an evicted page.
	Bar    EvictBar
	Reason string
	// Discarded reports that data was lost that only this device had.
	Discarded bool
}

// EvictReport is the result of Evict.
type EvictReport struct {
	// Evicted and Kept are the pages considered, in the order of eviction. Pages left over once
	// FreeBytes was reached are in neither.
	Evicted, Kept []EvictResult
	// FreedBytes is the sum over Evicted.
	FreedBytes int64
}

// Evict removes the local copies of pages that the bucket has; opening one downloads it again. It
// evicts only pages that no app has open (background sync does not count), and that the bucket has
// completely, or that are empty and were never synced. An app that opens a page meanwhile either
// keeps it, or waits and downloads it again. A crash leaves each page whole or evicted.
//
// Before the first eviction, one request verifies that the bucket is reachable and the recorded
// one. A page that FreeBytes or OlderThan selects and that cannot be evicted is no error; for named
// pages the error joins an *EvictError for each. The report is valid also with an error.
//
// Errors: ErrInvalid, ErrNotFound (a named page), ErrConflict (*EvictError), ErrReadOnly,
// ErrClosed, those of the file system and of ctx.
func Evict(ctx context.Context, repo *ledger.Repository, o *EvictOptions) (report EvictReport, err error) {
	how := given(o)
	if err := how.Check(); err != nil {
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

// KeepSpace does the periodic work at once: it evicts pages, and drops values that the cloud has,
// until Options.Quota, FreeSpaceFloor and ValueBytes are met. Without these options it does
// nothing. Errors: ErrNoSpace when it cannot free enough, ErrReadOnly, ErrClosed, those of the file
// system and of ctx.
func KeepSpace(ctx context.Context, repo *ledger.Repository) error {
	r := bridge.Of(repo)
	return r.Change(ctx, "keep space", false, r.Quota.Keep)
}

// DeleteLedger deletes all pages of a ledger on this device, as Repository.DeletePage does. It
// stops at the first page that cannot be deleted, and returns the pages deleted before. Errors:
// those of Repository.DeletePage; ErrNotFound when the ledger has no page.
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
