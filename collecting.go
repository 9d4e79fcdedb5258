package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ledgerd/ledger/storage"
)

// A page in which commits were made and nothing is known to have left garbage is looked through
// after sweepEvery none the less: a value that a transaction puts twice is garbage that nobody
// tells of.
const sweepEvery = time.Hour

// maxCycles bounds the cycles of one collection of a page: sync may keep a collector from knowing
// what it needs to know.
const maxCycles = 5

// A page is compacted in the background when at least compactBytes, and the compactPart-th part of
// its segments, were deleted or dropped since it was compacted last.
const (
	compactBytes = 8 << 20
	compactPart  = 3
)

// A step in the background is small: writers wait for a fold at most as long as one takes.
var backgroundSteps = storage.CollectOptions{Numbers: 1 << 14, Candidates: 1 << 14, Deletions: 1024}

// A step on request is larger, and small enough for those who commit meanwhile.
var requestedSteps = storage.CollectOptions{Numbers: 1 << 16, Candidates: 1 << 16, Deletions: 2048}

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

// pageCollector collects the garbage of an open page. Its pageStore owns it.
type pageCollector struct {
	s    *pageStore
	turn chan struct{}   // holds one token: who has it collects
	ctx  context.Context // ends when the store closes; of steps in the background, not of a call
	stop context.CancelFunc

	run   *storage.Collector // guarded by turn; under way in the background, nil when there is none
	begun collectMark        // guarded by turn; when run began

	mu    sync.Mutex
	seen  collectMark  // guarded by mu; up to where the last collection has seen everything
	known bool         // guarded by mu; there was one
	state GarbageState // guarded by mu
	dead  int64        // guarded by mu; what was deleted and dropped since the page was compacted
	round uint64       // guarded by mu; in which it was last its turn
}

// collectMark is a moment in the life of a store.
type collectMark struct{ wastes, written uint64 }

func newPageCollector(s *pageStore) *pageCollector {
	c := &pageCollector{s: s, turn: make(chan struct{}, 1)}
	c.ctx, c.stop = context.WithCancel(context.Background())
	return c
}

// close ends what runs in the background and waits for it. No call collects any more.
func (c *pageCollector) close() {
	c.stop()
	c.turn <- struct{}{} // for good
}

func (c *pageCollector) mark() collectMark {
	st := c.s.store.Stats()
	return collectMark{st.Wastes, st.BytesWritten}
}

// due reports whether it is time to look for garbage.
func (c *pageCollector) due(now time.Time) bool {
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

// garbage returns what was done.
func (c *pageCollector) garbage(now time.Time) GarbageState {
	due := c.due(now)
	c.mu.Lock()
	defer c.mu.Unlock()
	st := c.state
	st.Due = due
	return st
}

// ended notes the end of a collection that began at a mark.
func (c *pageCollector) ended(begun collectMark, err error) {
	now := c.s.repo.clock.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen, c.known, c.state.Last, c.state.Err = begun, true, now, err
}

// add notes what steps have deleted.
func (c *pageCollector) add(pieces, nodes int, bytes int64) {
	if pieces+nodes == 0 {
		return
	}
	c.mu.Lock()
	c.state.Pieces += pieces
	c.state.Nodes += nodes
	c.state.Bytes += bytes
	c.dead += bytes
	c.mu.Unlock()
	c.s.observe(Event{Kind: EventCollect, Changes: pieces + nodes, Bytes: bytes})
}

// all collects everything that is garbage when it is called, on the goroutine of the caller.
// progress is told what was done so far.
func (c *pageCollector) all(ctx context.Context, progress func(storage.CollectStats)) error {
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("wait for a step in the background: %w", ctx.Err())
	}
	defer func() { <-c.turn }()
	c.run = nil
	begun, run := c.mark(), c.s.store.NewCollector(requestedSteps)
	for !run.Settled() && run.Stats().Cycles < maxCycles {
		was := run.Stats()
		_, err := run.Step(ctx)
		st := run.Stats()
		c.add(st.Pieces-was.Pieces, st.Nodes-was.Nodes, st.Bytes-was.Bytes)
		if err != nil {
			return err
		}
		progress(st)
	}
	c.ended(begun, nil)
	return nil
}

// step does a step in the background. It reports false when the collection has come to its end, or
// somebody else collects.
func (c *pageCollector) step() (more bool, bytes int64) {
	select {
	case c.turn <- struct{}{}:
	default:
		return false, 0
	}
	defer func() { <-c.turn }()
	if c.run == nil {
		c.run, c.begun = c.s.store.NewCollector(backgroundSteps), c.mark()
	}
	was := c.run.Stats()
	_, err := c.run.Step(c.ctx)
	st := c.run.Stats()
	bytes = st.Bytes - was.Bytes
	c.dropped(st.DroppedBytes - was.DroppedBytes)
	c.add(st.Pieces-was.Pieces, st.Nodes-was.Nodes, bytes)
	switch {
	case c.ctx.Err() != nil:
		return false, bytes
	case err != nil:
		c.failed(err)
	case !c.run.Settled() && st.Cycles < maxCycles:
		return true, bytes
	case st.Pieces+st.Nodes > 0:
		c.s.log().Info("garbage was collected", "pieces", st.Pieces, "nodes", st.Nodes, "bytes", st.Bytes)
	}
	c.run = nil
	c.ended(c.begun, err)
	return false, bytes
}

// wantsCompaction reports whether much of the page's segments is garbage that this process has
// made.
func (c *pageCollector) wantsCompaction() bool {
	c.mu.Lock()
	dead := c.dead
	c.mu.Unlock()
	return dead >= compactBytes && dead*compactPart >= c.s.store.Stats().SegmentBytes
}

// compact compacts the page in the background. It returns how many bytes that may have written.
func (c *pageCollector) compact() (written int64) {
	select {
	case c.turn <- struct{}{}:
	default:
		return 0
	}
	defer func() { <-c.turn }()
	c.mu.Lock()
	c.dead = 0 // what stays is spread over segments that are not worth it
	c.mu.Unlock()
	was := c.s.store.Stats().BytesWritten
	r, err := c.s.store.Compact(c.ctx, storage.CompactOptions{})
	st := c.s.store.Stats()
	c.mu.Lock()
	c.seen.written += st.BytesWritten - was // that leaves no garbage
	c.mu.Unlock()
	switch {
	case c.ctx.Err() != nil:
	case err != nil:
		c.s.note(err)
		c.s.log().Warn("a page cannot be compacted", "error", err)
	case r.Replaced > 0:
		c.s.log().Info("a page was compacted", "segments", r.Replaced, "freed", r.Freed+r.IndexBefore-r.IndexAfter)
	}
	return int64(st.BytesWritten-was) + r.IndexAfter
}

// dropped notes that values were dropped, which leaves dead bytes in the segments.
func (c *pageCollector) dropped(bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dead += bytes
}

// failed tells of an error, once.
func (c *pageCollector) failed(err error) {
	c.mu.Lock()
	told := c.state.Err != nil && c.state.Err.Error() == err.Error()
	c.mu.Unlock()
	if told || errors.Is(err, ErrClosed) {
		return
	}
	c.s.note(err)
	c.s.log().Warn("garbage cannot be collected", "error", err)
}

// startCollecting starts the goroutine that collects garbage. It ends when the gate closes.
func (r *Repository) startCollecting() {
	if r.o.ReadOnly || r.o.Collection.Off {
		return
	}
	r.background.Go(r.runCollecting)
}

func (r *Repository) runCollecting() {
	debt := int64(0) // what compaction has written beyond what a round may
	for round := uint64(1); ; round++ {
		tick, release := r.clock.After(r.o.Collection.Interval)
		select {
		case <-tick:
		case <-r.gate.Life().Done():
			release()
			return
		}
		release()
		if debt -= r.o.Collection.Bytes; debt < 0 {
			left := r.collectRound(round, -debt)
			debt = r.compactRound() - left
		}
		debt = max(debt, 0)
	}
}

// collectRound collects garbage of open pages, step by step in turn, within the budget of a round.
// Those go first that have waited longest. It returns what is left of the bytes.
func (r *Repository) collectRound(round uint64, bytes int64) (left int64) {
	end := r.clock.Now().Add(r.o.Collection.Time)
	left = bytes
	for pages := r.toCollect(); len(pages) > 0; {
		var again []*pageCollector
		for _, c := range pages {
			if r.gate.Closed() || left <= 0 || !r.clock.Now().Before(end) {
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

// compactRound compacts a page of which much is garbage. It returns how many bytes that has
// written.
func (r *Repository) compactRound() int64 {
	if r.o.Collection.NoCompact || r.gate.Closed() {
		return 0
	}
	for _, c := range r.openCollectors() {
		if c.wantsCompaction() {
			return c.compact()
		}
	}
	return 0
}

// openCollectors returns the collectors of the pages that are open, in any order.
func (r *Repository) openCollectors() (open []*pageCollector) {
	for _, s := range r.pages.Stores(false) {
		open = append(open, s.collector)
	}
	return open
}

// toCollect returns the collectors of open pages that may have garbage, that which waits longest
// first.
func (r *Repository) toCollect() []*pageCollector {
	open := r.openCollectors()
	now := r.clock.Now()
	rounds := map[*pageCollector]uint64{}
	open = slices.DeleteFunc(open, func(c *pageCollector) bool { return !c.due(now) })
	for _, c := range open {
		c.mu.Lock()
		rounds[c] = c.round
		c.mu.Unlock()
	}
	slices.SortFunc(open, func(a, b *pageCollector) int {
		return cmp.Or(cmp.Compare(rounds[a], rounds[b]), a.s.key.Compare(b.s.key))
	})
	return open
}
