package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/layout"
	"github.com/ledgerd/ledger/internal/presence"
	"github.com/ledgerd/ledger/pageusage"
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
	EvictFree EvictBar = iota
	// EvictOpen: somebody has the page open.
	EvictOpen
	// EvictNoCloud: no cloud is set, so it could not come back.
	EvictNoCloud
	// EvictUnsynced: it has commits, tags or pieces of values that the bucket does not have.
	EvictUnsynced
	// EvictOtherCloud: it was synced with another bucket than the present one.
	EvictOtherCloud
	// EvictDamaged: it cannot be opened.
	EvictDamaged
	// EvictAway: it is in the cloud only already.
	EvictAway
	// EvictUnproved: the bucket could not be asked whether it is there and the right one.
	EvictUnproved
	// EvictBlank: nothing was ever put into it, so no cloud has anything from which it could come
	// back.
	EvictBlank
)

var evictBars = [...]string{"none", "open", "no cloud", "unsynced", "other cloud", "only here", "damaged", "in the cloud only", "cloud out of reach", "blank"}

// String returns a few words, such as "unsynced".
func (b EvictBar) String() string {
	if int(b) < len(evictBars) {
		return evictBars[b]
	}
	return fmt.Sprintf("bar %d", uint8(b))
}

// Discardable reports whether EvictOptions.DiscardUnsynced lifts the bar.
func (b EvictBar) Discardable() bool {
	switch b {
	case EvictNoCloud, EvictUnsynced, EvictOtherCloud, EvictUnproved, EvictBlank:
		return true
	}
	return false
}

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
	return (&evictor{repo: r, o: o}).evictAll(ctx)
}

func (e *evictor) evictAll(ctx context.Context) (EvictReport, error) {
	if err := e.o.check(); err != nil {
		return e.report, fmt.Errorf("evict: %w", err)
	}
	err := e.repo.change(ctx, "evict", e.o.DryRun, e.run)
	return e.report, err
}

// evictor is one call of Evict.
type evictor struct {
	repo     *Repository
	o        EvictOptions
	report   EvictReport
	openOnly bool  // leave pages alone that nobody has open
	unproved error // why the bucket could not be asked
	refused  []error
}

func (e *evictor) run(ctx context.Context) error {
	candidates, err := e.candidates(ctx)
	if err != nil || len(candidates) == 0 {
		return errors.Join(append(e.refused, err)...)
	}
	if e.o.Values {
		err := e.runValues(ctx, candidates)
		return errors.Join(append(e.refused, err)...)
	}
	if e.repo.cloud.Has() && !e.o.DryRun {
		e.unproved = e.repo.cloud.Prove(ctx)
	}
	defer e.removeUsage()
	if err := e.evict(ctx, candidates); err != nil {
		return err
	}
	return errors.Join(e.refused...)
}

// removeUsage forgets the use of the pages that are away now: in one transaction, since each is two
// syncs. After a crash the next start does it.
func (e *evictor) removeUsage() {
	gone := make([]pageusage.Usage, 0, len(e.report.Evicted))
	for _, c := range e.report.Evicted {
		gone = append(gone, pageusage.Usage{Page: pageusage.Page{Ledger: c.Ledger, ID: c.ID}, Closed: c.LastClosed})
	}
	if len(gone) == 0 || e.o.DryRun {
		return
	}
	if err := e.repo.usage.RemoveClosed(gone); err != nil {
		e.repo.o.Logger.Warn("the usage of pages that are away stays listed", "pages", len(gone), "error", err)
	}
}

// candidates returns the pages to look at, in order.
func (e *evictor) candidates(ctx context.Context) ([]EvictResult, error) {
	if len(e.o.Pages) > 0 {
		return e.named(ctx)
	}
	keys, err := e.repo.disk.Pages()
	if err != nil {
		return nil, err
	}
	var out []EvictResult
	for _, k := range keys {
		c, err := e.candidate(k)
		if err != nil {
			return nil, err
		}
		if e.o.OlderThan > 0 && e.repo.clock.Now().Sub(c.LastClosed) < e.o.OlderThan {
			continue
		}
		out = append(out, c)
	}
	slices.SortStableFunc(out, func(a, b EvictResult) int { return a.LastClosed.Compare(b.LastClosed) })
	return out, ctx.Err()
}

func (e *evictor) candidate(k pageKey) (c EvictResult, err error) {
	c.PageRef = PageRef{k.Ledger, k.ID}
	c.Name, c.LastClosed, err = e.repo.usage.Page(k)
	return c, err
}

// named returns the pages that were named. Those that are away already are refused.
func (e *evictor) named(context.Context) ([]EvictResult, error) {
	var out []EvictResult
	for _, ref := range e.o.Pages {
		if slices.ContainsFunc(out, func(c EvictResult) bool { return c.PageRef == ref }) {
			continue
		}
		k := ref.key()
		c, err := e.candidate(k)
		if err != nil {
			return nil, err
		}
		where, _, err := e.repo.pages.Where(k)
		if err == nil && where == presence.Absent {
			err = fmt.Errorf("page %s: %w", e.repo.usage.Text(ref.key()), ErrNotFound)
		}
		if err != nil {
			return nil, err
		}
		if !where.OnDisk() {
			e.keep(&c, EvictAway, "it is in the cloud only already")
			continue
		}
		out = append(out, c)
	}
	return out, nil
}

// keep notes that a page stays.
func (e *evictor) keep(c *EvictResult, bar EvictBar, reason string) {
	c.Bar, c.Reason = bar, reason
	e.report.Kept = append(e.report.Kept, *c)
	if len(e.o.Pages) > 0 {
		e.refused = append(e.refused, &EvictError{c.PageRef, c.Name, bar, reason})
	}
}

// evictTogether is how many pages leave at the same time: they share syncs.
const evictTogether = 64

// evict evicts pages in their order, several at a time, unless something bars that. Errors end it.
func (e *evictor) evict(ctx context.Context, candidates []EvictResult) error {
	for len(candidates) > 0 && (e.o.FreeBytes == 0 || e.report.FreedBytes < e.o.FreeBytes) {
		batch, err := e.measure(candidates)
		if err != nil {
			return err
		}
		candidates = candidates[len(batch):]
		came, errs := make([]departed, len(batch)), make([]error, len(batch))
		var leaving sync.WaitGroup
		for i := range batch {
			leaving.Go(func() { came[i], errs[i] = e.depart(ctx, &batch[i]) })
		}
		leaving.Wait()
		for i := range batch {
			switch c := &batch[i]; {
			case errs[i] != nil:
			case came[i].bar != EvictFree:
				e.keep(c, came[i].bar, came[i].reason)
			default:
				c.Discarded = came[i].discarded
				e.report.Evicted = append(e.report.Evicted, *c)
				e.report.FreedBytes += c.Bytes
			}
		}
		if err := errors.Join(errs...); err != nil {
			return err
		}
	}
	return nil
}

// measure returns those of the candidates that are to leave next: no more than are needed.
func (e *evictor) measure(candidates []EvictResult) ([]EvictResult, error) {
	expected := e.report.FreedBytes
	for i := range candidates {
		if i == evictTogether || i > 0 && e.o.FreeBytes > 0 && expected >= e.o.FreeBytes {
			return candidates[:i], nil
		}
		c := &candidates[i]
		k := c.key()
		var err error
		if c.Bytes, err = e.repo.disk.PageSize(k); err != nil {
			return nil, fmt.Errorf("measure page %s: %w", k.Text(c.Name), err)
		}
		expected += c.Bytes
	}
	return candidates, nil
}

func (e *evictor) depart(ctx context.Context, c *EvictResult) (departed, error) {
	k := c.key()
	came, err := e.repo.depart(ctx, k, departure{
		kind: layout.Evicted, sizeBytes: c.Bytes, name: c.Name, unproved: e.unproved,
		dry: e.o.DryRun, discard: e.o.DiscardUnsynced, blank: e.o.Blank,
	})
	if err != nil {
		err = fmt.Errorf("page %s: %w", k.Text(c.Name), err)
	}
	return came, err
}
