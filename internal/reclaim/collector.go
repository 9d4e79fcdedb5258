package reclaim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/clock"
	"github.com/ledgerd/ledger/internal/turn"
	"github.com/ledgerd/ledger/storage"
)

// sweepEvery is the pause between searches of a page with new commits but no sign of garbage: a
// value that a transaction puts twice is garbage that is not reported.
const sweepEvery = time.Hour

// maxCycles bounds the cycles of one collection of a page, since sync may delay the information
// that a collector needs.
const maxCycles = 5

// A page is compacted in the background when at least compactBytes, and the compactPart-th part of
// its segments, were deleted or dropped since the last compaction.
const (
	compactBytes = 8 << 20
	compactPart  = 3
)

// Background steps are small: they bound how long writers wait for a fold.
var backgroundSteps = storage.CollectOptions{Numbers: 1 << 14, Candidates: 1 << 14, Deletions: 1024}

// Requested steps are larger, but still small enough for concurrent writers.
var requestedSteps = storage.CollectOptions{Numbers: 1 << 16, Candidates: 1 << 16, Deletions: 2048}

// Garbage describes the garbage collection of a page since it was opened.
type Garbage struct {
	// Due reports that the next round will look for garbage.
	Due bool
	// Last is when a collection last completed, zero when none has.
	Last time.Time
	// Pieces and Nodes count the deleted ones; Bytes is their size in the segments until
	// compaction.
	Pieces, Nodes int
	Bytes         int64
	// Err is the error of the last collection, nil when it succeeded.
	Err error
}

// Page is a Collector's access to an open page. Its functions may be called on any goroutine.
type Page struct {
	Key   base.Page
	Store *storage.Store
	Clock clock.Clock
	Log   *slog.Logger
	// Collected is called after each step that deleted something.
	Collected func(pieces int, bytes int64)
	// Damaged is called with errors, to report those of damage.
	Damaged func(error)
}

// Collector collects the garbage of an open page: in the background, by the rounds of a Background,
// and on request. It is safe for concurrent use.
type Collector struct {
	page Page
	turn turn.Lock       // its holder collects
	ctx  context.Context // ends when the store closes; for background steps
	stop context.CancelFunc

	run   *storage.Collector // guarded by turn; the background collection in progress, or nil
	begun collectMark        // guarded by turn; the start of run

	mu    sync.Mutex
	seen  collectMark // guarded by mu; the start of the last complete collection
	known bool        // guarded by mu; there was such a collection
	state Garbage     // guarded by mu
	dead  int64       // guarded by mu; bytes deleted and dropped since the last compaction
	round uint64      // guarded by mu; the round of its last turn
}

// collectMark is a moment in the life of a store.
type collectMark struct{ wastes, written uint64 }

// NewCollector returns the collector of a page. Close must be called before the store is closed.
func NewCollector(p Page) *Collector {
	c := &Collector{page: p, turn: turn.New()}
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c
}

// Close ends the background steps and waits for them. No call may collect afterwards.
func (c *Collector) Close() {
	c.stop()
	c.turn.Wait() // for good
}

func (c *Collector) mark() collectMark {
	st := c.page.Store.Stats()
	return collectMark{st.Wastes, st.BytesWritten}
}

// due reports whether the page should be searched for garbage.
func (c *Collector) due(now time.Time) bool {
	m := c.mark()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case !c.known || m.wastes != c.seen.wastes:
		return true
	case m.written != c.seen.written || c.state.Err != nil:
		return now.Sub(c.state.Last) >= sweepEvery
	}
	return false
}

// Garbage returns the state of garbage collection.
func (c *Collector) Garbage() Garbage {
	due := c.due(c.page.Clock.Now())
	c.mu.Lock()
	defer c.mu.Unlock()
	st := c.state
	st.Due = due
	return st
}

// ended records the end of a collection that began at a mark.
func (c *Collector) ended(begun collectMark, err error) {
	now := c.page.Clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen, c.known, c.state.Last, c.state.Err = begun, true, now, err
}

// add records what steps have deleted.
func (c *Collector) add(pieces, nodes int, bytes int64) {
	if pieces+nodes == 0 {
		return
	}
	c.mu.Lock()
	c.state.Pieces += pieces
	c.state.Nodes += nodes
	c.state.Bytes += bytes
	c.dead += bytes
	c.mu.Unlock()
	c.page.Collected(pieces+nodes, bytes)
}

// take waits for the turn.
func (c *Collector) take(ctx context.Context) error {
	if err := c.turn.Take(ctx); err != nil {
		return fmt.Errorf("wait for a step in the background: %w", err)
	}
	return nil
}

// All collects everything that is garbage at the call, on the caller's goroutine. progress, when
// not nil, is called with the result so far. Errors: those of the store and of ctx.
func (c *Collector) All(ctx context.Context, progress func(storage.CollectStats)) error {
	if err := c.take(ctx); err != nil {
		return err
	}
	defer c.turn.Give()
	c.run = nil
	begun, run := c.mark(), c.page.Store.NewCollector(requestedSteps)
	for !run.Settled() && run.Stats().Cycles < maxCycles {
		was := run.Stats()
		_, err := run.Step(ctx)
		st := run.Stats()
		c.add(st.Pieces-was.Pieces, st.Nodes-was.Nodes, st.Bytes-was.Bytes)
		if err != nil {
			return err
		}
		if progress != nil {
			progress(st)
		}
	}
	c.ended(begun, nil)
	return nil
}

// step does a background step. It returns false when the collection is complete, or another
// goroutine collects.
func (c *Collector) step() (more bool, bytes int64) {
	if !c.turn.Try() {
		return false, 0
	}
	defer c.turn.Give()
	if c.run == nil {
		c.run, c.begun = c.page.Store.NewCollector(backgroundSteps), c.mark()
	}
	was := c.run.Stats()
	_, err := c.run.Step(c.ctx)
	st := c.run.Stats()
	bytes = st.Bytes - was.Bytes
	c.add(st.Pieces-was.Pieces, st.Nodes-was.Nodes, bytes)
	switch {
	case c.ctx.Err() != nil:
		return false, bytes
	case err != nil:
		c.failed(err)
	case !c.run.Settled() && st.Cycles < maxCycles:
		return true, bytes
	case st.Pieces+st.Nodes > 0:
		c.page.Log.Info("garbage was collected", "pieces", st.Pieces, "nodes", st.Nodes, "bytes", st.Bytes)
	}
	c.run = nil
	c.ended(c.begun, err)
	return false, bytes
}

// wantsCompaction reports whether this process has made much of the page's segments garbage.
func (c *Collector) wantsCompaction() bool {
	c.mu.Lock()
	dead := c.dead
	c.mu.Unlock()
	return dead >= compactBytes && dead*compactPart >= c.page.Store.Stats().SegmentBytes
}

// compact compacts the page in the background. It returns an upper bound of the bytes written.
func (c *Collector) compact() (written int64) {
	if !c.turn.Try() {
		return 0
	}
	defer c.turn.Give()
	c.mu.Lock()
	c.dead = 0 // the rest is spread over segments not worth compacting
	c.mu.Unlock()
	was := c.page.Store.Stats().BytesWritten
	r, err := c.page.Store.Compact(c.ctx, storage.CompactOptions{})
	st := c.page.Store.Stats()
	c.mu.Lock()
	c.seen.written += st.BytesWritten - was // these writes leave no garbage
	c.mu.Unlock()
	switch {
	case c.ctx.Err() != nil:
	case err != nil:
		c.page.Damaged(err)
		c.page.Log.Warn("a page cannot be compacted", "error", err)
	case r.Replaced > 0:
		c.page.Log.Info("a page was compacted", "segments", r.Replaced, "freed", r.Freed)
	}
	return int64(st.BytesWritten-was) + r.IndexWritten
}

// requestedShare is the part of a segment that must be garbage for compaction on request, so that
// remaining garbage is less than a quarter of the live data.
const requestedShare = 0.2

// Compact compacts the page on request. progress, when not nil, is called with the done and total
// bytes of its files. Errors: those of the store and of ctx.
func (c *Collector) Compact(ctx context.Context, dry bool, progress func(done, total int64)) (storage.CompactReport, error) {
	return c.compactWith(ctx, storage.CompactOptions{DryRun: dry, MinDeadShare: requestedShare, Progress: progress})
}

// Purge compacts the page until no deleted data is left in its files. Errors: those of the store
// and of ctx.
func (c *Collector) Purge(ctx context.Context) (storage.CompactReport, error) {
	return c.compactWith(ctx, storage.CompactOptions{Purge: true})
}

func (c *Collector) compactWith(ctx context.Context, o storage.CompactOptions) (storage.CompactReport, error) {
	if err := c.take(ctx); err != nil {
		return storage.CompactReport{}, err
	}
	defer c.turn.Give()
	r, err := c.page.Store.Compact(ctx, o)
	c.page.Damaged(err)
	return r, err
}

// Dropped records dropped values, which leave dead bytes in the segments.
func (c *Collector) Dropped(bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dead += bytes
}

// failed logs an error, once.
func (c *Collector) failed(err error) {
	c.mu.Lock()
	told := c.state.Err != nil && c.state.Err.Error() == err.Error()
	c.mu.Unlock()
	if told || errors.Is(err, base.ErrClosed) {
		return
	}
	c.page.Damaged(err)
	c.page.Log.Warn("garbage cannot be collected", "error", err)
}

// Background collects garbage in open pages, in rounds.
type Background struct {
	Clock clock.Clock
	// Interval is the pause between two rounds. No step of a round begins after Time, and a round
	// deletes at most Bytes, to the precision of a step.
	Interval, Time time.Duration
	Bytes          int64
	// NoCompact turns compaction off.
	NoCompact bool
	// Open returns the collectors of the open pages, in any order.
	Open func() []*Collector
}

// Run runs rounds until ctx ends.
func (b *Background) Run(ctx context.Context) {
	debt := int64(0) // bytes that compaction has written beyond a round's budget
	for round := uint64(1); ; round++ {
		tick, release := b.Clock.After(b.Interval)
		select {
		case <-tick:
		case <-ctx.Done():
			release()
			return
		}
		release()
		if debt -= b.Bytes; debt < 0 {
			left := b.collect(ctx, round, -debt)
			debt = b.compact(ctx) - left
		}
		debt = max(debt, 0)
	}
}

// collect collects garbage of open pages, step by step in turn, within the budget of a round. The
// longest waiting pages are first. It returns the remaining byte budget.
func (b *Background) collect(ctx context.Context, round uint64, bytes int64) (left int64) {
	end := b.Clock.Now().Add(b.Time)
	left = bytes
	for pages := b.due(); len(pages) > 0; {
		var again []*Collector
		for _, c := range pages {
			if ctx.Err() != nil || left <= 0 || !b.Clock.Now().Before(end) {
				return max(left, 0)
			}
			c.mu.Lock()
			c.round = round
			c.mu.Unlock()
			more, bytes := c.step()
			if left -= bytes; more {
				again = append(again, c)
			}
		}
		pages = again
	}
	return max(left, 0)
}

// compact compacts a page with much garbage. It returns the number of bytes written.
func (b *Background) compact(ctx context.Context) int64 {
	if b.NoCompact || ctx.Err() != nil {
		return 0
	}
	for _, c := range b.Open() {
		if c.wantsCompaction() {
			return c.compact()
		}
	}
	return 0
}

// due returns the collectors of open pages that may have garbage, the longest waiting first.
func (b *Background) due() []*Collector {
	now := b.Clock.Now()
	rounds := map[*Collector]uint64{}
	open := slices.DeleteFunc(b.Open(), func(c *Collector) bool { return !c.due(now) })
	for _, c := range open {
		c.mu.Lock()
		rounds[c] = c.round
		c.mu.Unlock()
	}
	slices.SortFunc(open, func(a, b *Collector) int {
		return cmp.Or(cmp.Compare(rounds[a], rounds[b]), a.page.Key.Compare(b.page.Key))
	})
	return open
}
