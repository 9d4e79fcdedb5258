package reclaim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/clock"
	"github.com/ledgerd/ledger/internal/layout"
	"github.com/ledgerd/ledger/internal/presence"
	"github.com/ledgerd/ledger/pageusage"
	"github.com/ledgerd/ledger/storage"
)

// Bar is the reason why a page cannot be evicted.
type Bar uint8

// The bars.
const (
	Free Bar = iota
	InUse
	NoCloud
	Unsynced
	OtherCloud
	Damaged
	Away
	Unproved
	Blank
)

var barTexts = [...]string{"none", "open", "no cloud", "unsynced", "other cloud", "damaged", "in the cloud only", "cloud out of reach", "blank"}

// String returns a short text, such as "unsynced".
func (b Bar) String() string {
	if int(b) < len(barTexts) {
		return barTexts[b]
	}
	return fmt.Sprintf("bar %d", uint8(b))
}

// Discardable reports whether permission to lose unsynced data overrides the bar.
func (b Bar) Discardable() bool {
	switch b {
	case NoCloud, Unsynced, OtherCloud, Unproved, Blank:
		return true
	}
	return false
}

// Host is a repository whose pages are evicted.
type Host struct {
	Disk  layout.Dir
	Usage *pageusage.DB
	Clock clock.Clock
	Log   *slog.Logger
	// Bucket returns the id of the bucket; ok is false without a cloud. Prove verifies by a request
	// that the bucket is that one.
	Bucket func() (id [16]byte, ok bool, err error)
	Prove  func(context.Context) error
	// Free returns how many bytes are free on the disk. Errors: ErrUnknown, those of the system.
	Free func() (int64, error)
	// Where and UseOf return where a page is and its use. Alone calls fn with exclusive access;
	// leave removes the page. Errors: presence.ErrInUse, base.ErrNotFound (it is not here).
	Where func(base.Page) (presence.State, *layout.Absence, error)
	UseOf func(base.Page) presence.Kind
	Alone func(ctx context.Context, page base.Page, fn func(presence.Leave) error) error
	// Visit opens a page of this device and calls fn with it. Store returns the options for opening
	// a closed page.
	Visit func(ctx context.Context, page base.Page, fn func(context.Context, *Collector) error) error
	Store func(base.Page) storage.Options
}

// EvictOptions are the options of admin.Evict, and of deletions.
type EvictOptions struct {
	Pages                          []base.Page
	FreeBytes                      int64
	OlderThan                      time.Duration
	Values                         bool
	KeepBytes                      int64
	DryRun, DiscardUnsynced, Blank bool
	OpenOnly                       bool // only open pages; for values
	Delete                         bool // the pages are deleted on this device
}

// Evicted is the result for one page; see admin.EvictResult.
type Evicted struct {
	Page       base.Page
	Name       string
	Bytes      int64
	LastClosed time.Time
	Departed
}

// EvictReport lists the evicted and the kept pages.
type EvictReport struct {
	Evicted, Kept []Evicted
	FreedBytes    int64
}

// Evict evicts pages, or drops values. The report is valid also with an error. Errors:
// base.ErrNotFound (a named page), those of the file system and of ctx.
func (h *Host) Evict(ctx context.Context, o EvictOptions) (EvictReport, error) {
	e := evictor{host: h, o: o}
	err := e.run(ctx)
	return e.report, err
}

// evictor is one call of Evict.
type evictor struct {
	host     *Host
	o        EvictOptions
	report   EvictReport
	unproved error // why the bucket could not be reached
}

func (e *evictor) run(ctx context.Context) error {
	candidates, err := e.candidates(ctx)
	if err != nil || len(candidates) == 0 {
		return err
	}
	if e.o.Values {
		return e.runValues(ctx, candidates)
	}
	if _, ok, _ := e.host.Bucket(); ok && !e.o.DryRun && !(e.o.Delete && e.o.DiscardUnsynced) {
		e.unproved = e.host.Prove(ctx)
	}
	return e.evict(ctx, candidates)
}

// candidates returns the pages to consider, in order.
func (e *evictor) candidates(ctx context.Context) ([]Evicted, error) {
	if len(e.o.Pages) > 0 {
		return e.named()
	}
	keys, err := e.host.Disk.Pages()
	if err != nil {
		return nil, err
	}
	var out []Evicted
	for _, k := range keys {
		c, err := e.candidate(k)
		if err != nil {
			return nil, err
		}
		if e.o.OlderThan > 0 && e.host.Clock.Now().Sub(c.LastClosed) < e.o.OlderThan {
			continue
		}
		out = append(out, c)
	}
	slices.SortStableFunc(out, func(a, b Evicted) int { return a.LastClosed.Compare(b.LastClosed) })
	return out, ctx.Err()
}

func (e *evictor) candidate(k base.Page) (c Evicted, err error) {
	c.Page = k
	c.Name, c.LastClosed, err = e.host.Usage.Page(k)
	return c, err
}

// named returns the named pages. Pages that are already away are refused.
func (e *evictor) named() ([]Evicted, error) {
	var out []Evicted
	for _, k := range e.o.Pages {
		if slices.ContainsFunc(out, func(c Evicted) bool { return c.Page == k }) {
			continue
		}
		c, err := e.candidate(k)
		if err != nil {
			return nil, err
		}
		where, _, err := e.host.Where(k)
		if err == nil && where == presence.Absent {
			err = fmt.Errorf("page %s: %w", e.host.Usage.Text(k), base.ErrNotFound)
		}
		if err != nil {
			return nil, err
		}
		if !where.OnDisk() {
			e.keep(&c, Departed{Bar: Away, Reason: "it is in the cloud only already"})
			continue
		}
		out = append(out, c)
	}
	return out, nil
}

// keep records that a page stays.
func (e *evictor) keep(c *Evicted, why Departed) {
	c.Departed = why
	e.report.Kept = append(e.report.Kept, *c)
}

// evictTogether is how many pages leave side by side: the file system joins their syncs.
const evictTogether = 64

// evict evicts pages in order, several at a time, unless barred. An error ends it.
func (e *evictor) evict(ctx context.Context, candidates []Evicted) error {
	for len(candidates) > 0 && (e.o.FreeBytes == 0 || e.report.FreedBytes < e.o.FreeBytes) {
		batch, err := e.measure(candidates)
		if err != nil {
			return err
		}
		candidates = candidates[len(batch):]
		errs := make([]error, len(batch))
		var leaving sync.WaitGroup
		for i := range batch {
			leaving.Go(func() { errs[i] = e.depart(ctx, &batch[i]) })
		}
		leaving.Wait()
		for i := range batch {
			switch c := &batch[i]; {
			case errs[i] != nil:
			case c.Bar != Free:
				e.report.Kept = append(e.report.Kept, *c)
			default:
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

// measure returns the candidates to evict next, no more than needed.
func (e *evictor) measure(candidates []Evicted) ([]Evicted, error) {
	expected := e.report.FreedBytes
	for i := range candidates {
		if i == evictTogether || i > 0 && e.o.FreeBytes > 0 && expected >= e.o.FreeBytes {
			return candidates[:i], nil
		}
		c := &candidates[i]
		var err error
		if c.Bytes, err = e.host.Disk.PageSize(c.Page); err != nil {
			return nil, fmt.Errorf("measure page %s: %w", c.Page.Text(c.Name), err)
		}
		expected += c.Bytes
	}
	return candidates, nil
}

func (e *evictor) depart(ctx context.Context, c *Evicted) (err error) {
	if c.Departed, err = e.leave(ctx, c); err != nil {
		err = fmt.Errorf("page %s: %w", c.Page.Text(c.Name), err)
	}
	return err
}
