package storage

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage/index"
)

// CollectOptions bound a step of a Collector. The zero values are replaced by defaults.
type CollectOptions struct {
	// Numbers is how many pieces a step examines at most; 0: 262144. They are read from the index
	// in order, without their content.
	Numbers int
	// Candidates is how many apparently unused pieces are kept in memory and so deleted in sorted
	// order; about 100 bytes each. 0: 65536.
	Candidates int
	// Deletions is how many pieces a step deletes at most, with one batch of the log and one
	// transaction of the index; 0: 4096. Nodes and index pieces count for the references that they
	// hold.
	Deletions int
}

func (o CollectOptions) withDefaults() CollectOptions {
	for _, d := range []struct {
		v    *int
		most int
	}{{&o.Numbers, 1 << 18}, {&o.Candidates, 1 << 16}, {&o.Deletions, 4096}} {
		if *d.v <= 0 {
			*d.v = d.most
		}
	}
	return o
}

// CollectStats count since NewCollector.
type CollectStats struct {
	// Cycles counts finished walks over all pieces.
	Cycles int
	// Pieces and Nodes count deletions: pieces of values, and nodes. Bytes is the size of their
	// records in the segments, which compaction frees.
	Pieces, Nodes int
	Bytes         int64
	// Aborted counts pieces that looked like garbage and proved to be wanted shortly before their
	// deletion.
	Aborted int
}

// Collector deletes pieces and nodes to which nothing refers: no commit, no piece, no journal. It
// reads the rows of references, in the order of piece numbers, and trusts them only if they agree
// with their sums (see sumBlock). A record in the log deletes a piece, and the fold of the record
// removes the references that the piece holds. So whole trees are deleted from the root down.
//
// A commit whose tree is not here, or an index piece that is not held, may refer to a piece without
// a row that says so. Therefore a piece that the bucket has keeps its place there, and can be
// fetched again, until the bucket gives it up. In a page that syncs, a piece that only this device
// has is deleted only with MetadataPlaced, and not while a journal is open that began before the
// cycle.
//
// A Collector belongs to one goroutine; a page has at most one in use. It needs no close.
type Collector struct {
	s     *Store
	o     CollectOptions
	stats CollectStats

	cursor  uint64      // number at which the walk continues
	pending []candidate // found, sorted by digest
	again   bool        // something before the cursor was skipped: another cycle will find it
	indexes uint64      // the index to which the numbers belong

	journal uint64 // greatest journal number when the cycle began
	started bool   // a cycle is in progress
	settled bool   // see Settled
	before  int    // number of deletions when the cycle began
}

// candidate is a piece that looks like garbage, with its row at the last look-up.
type candidate struct {
	digest object.Digest
	number uint64
	row    objectRow
}

// NewCollector returns a collector at the beginning of its first cycle.
func (s *Store) NewCollector(o CollectOptions) *Collector {
	return &Collector{s: s, o: o.withDefaults()}
}

// Stats returns the counts so far. It may be called between steps.
func (c *Collector) Stats() CollectStats { return c.stats }

// Settled reports that the last cycle has deleted nothing, and that another cycle now would find
// nothing more.
func (c *Collector) Settled() bool { return c.settled }

// Step folds, and then examines some pieces or deletes some, or both. It reports false at the end
// of a cycle: the collector then has nothing left to delete. The next step begins another cycle,
// which finds garbage made by the last one or meanwhile; two cycles delete everything that is
// garbage when they begin. Writers wait for at most one batch and one small fold.
//
// Errors match base.ErrCorrupt when rows or pieces are damaged: then nothing is deleted because of
// them, and Check gives details; base.ErrClosed, base.ErrReadOnly, or are those of the disk or of
// ctx. After an error the next step continues.
func (c *Collector) Step(ctx context.Context) (more bool, err error) {
	if err := c.s.writable(); err != nil {
		return false, fmt.Errorf("collect: %w", err)
	}
	err = c.s.WithReserve(ctx, func(bool) (err error) {
		more, err = c.stepAndFold(ctx)
		return err
	})
	if err != nil {
		return more, fmt.Errorf("collect: %w", err)
	}
	return more, nil
}

func (c *Collector) stepAndFold(ctx context.Context) (more bool, err error) {
	s := c.s
	if err := s.Fold(ctx); err != nil {
		return true, err
	}
	if err := s.foldTurn.Take(ctx); err != nil {
		return true, err
	}
	defer s.foldTurn.Give()
	if made := s.indexes.Load(); made != c.indexes { // the numbers have changed
		*c = Collector{s: s, o: c.o, stats: c.stats, indexes: made}
	}
	if more, err = c.step(ctx); err != nil {
		c.again = true
		if !errors.Is(err, base.ErrNoSpace) { // else they are examined once more
			c.pending = nil
		}
		return true, err
	}
	return more, nil
}

func (c *Collector) step(ctx context.Context) (more bool, err error) {
	if !c.started {
		c.begin()
	}
	ended := false
	if len(c.pending) == 0 {
		if ended, err = c.walk(ctx); err != nil {
			return false, err
		}
	}
	if len(c.pending) > 0 {
		if err := c.delete(ctx); err != nil {
			return false, err
		}
		c.takeFreed()
		return true, nil
	}
	if !ended {
		return true, nil
	}
	c.stats.Cycles++
	c.started = false
	c.settled = c.deleted() == c.before && !c.again
	again := c.again
	c.again = false
	return again, nil
}

// begin begins a cycle.
func (c *Collector) begin() {
	s := c.s
	s.mu.Lock()
	c.journal = s.nextJourn
	s.mu.Unlock()
	c.started, c.settled, c.cursor, c.before = true, false, 0, c.deleted()
	s.freed = s.freed[:0]
}

func (c *Collector) deleted() int {
	return c.stats.Pieces + c.stats.Nodes
}

// takeFreed adds destinations freed by deletions to the candidates, if the walk has passed them.
func (c *Collector) takeFreed() {
	s := c.s
	freed := s.freed
	s.freed = s.freed[:0]
	if len(freed) >= maxFreed {
		c.again = true
	}
	slices.Sort(freed)
	for _, n := range slices.Compact(freed) {
		if n >= c.cursor {
			continue
		}
		if len(c.pending) >= c.o.Candidates {
			c.again = true
			return
		}
		c.pending = append(c.pending, candidate{number: n})
	}
}

// wantedNow holds the needs of journals that are open or in flight to the disk.
type wantedNow struct {
	oldest uint64 // the smallest id of them
	spans  []logSpan
}

func (s *Store) wantedNow() wantedNow {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := wantedNow{oldest: 1<<64 - 1}
	note := func(j *Journal) {
		w.oldest = min(w.oldest, j.id)
		w.spans = append(w.spans, j.spans...)
	}
	for j := range s.journals {
		note(j)
	}
	for _, g := range []*group{s.appending, s.group} {
		if g != nil {
			for _, j := range g.journals {
				note(j)
			}
		}
	}
	return w
}

// walk examines some numbers and records apparent garbage. It reports whether it has reached the
// end.
func (c *Collector) walk(ctx context.Context) (ended bool, err error) {
	s := c.s
	w := s.wantedNow()
	for left := c.o.Numbers; left > 0 && len(c.pending) < c.o.Candidates; left -= walkBlocks * sumBlock {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		cursor, found := uint64(0), []candidate(nil)
		err := s.viewOnce(func(tx index.Tx) error {
			k := c.judge(tx, &w)
			var err error
			if cursor, err = k.walk(c.cursor, s.state.next); err != nil {
				return err
			}
			found = k.garbage
			return nil
		})
		if err != nil {
			return false, err
		}
		c.cursor, c.pending = cursor, append(c.pending, found...)
		if cursor >= s.state.next {
			ended = true
			break
		}
	}
	slices.SortFunc(c.pending, func(a, b candidate) int { return a.digest.Compare(b.digest) })
	return ended, nil
}

// lookAgain examines candidates again. It returns those that are garbage, sorted by digest.
func (c *Collector) lookAgain(w *wantedNow, of []candidate) (garbage []candidate, err error) {
	numbers := make([]uint64, len(of))
	for i := range of {
		numbers[i] = of[i].number
	}
	slices.Sort(numbers)
	err = c.s.viewOnce(func(tx index.Tx) error {
		k := c.judge(tx, w)
		for rest := numbers; len(rest) > 0; {
			n := 1
			for n < len(rest) && blockOf(rest[n]) == blockOf(rest[0]) {
				n++
			}
			if err := k.block(blockOf(rest[0]), slices.Compact(slices.Clone(rest[:n]))); err != nil {
				return err
			}
			rest = rest[n:]
		}
		garbage = k.garbage
		return nil
	})
	slices.SortFunc(garbage, func(a, b candidate) int { return a.digest.Compare(b.digest) })
	return garbage, err
}

// delete deletes some of the candidates. It examines each again, reads what nodes and index pieces
// refer to, and, while appends are blocked, checks whether a journal relies on it by now.
func (c *Collector) delete(ctx context.Context) (err error) {
	s, all := c.s, c.pending
	defer func() {
		if err != nil {
			c.pending = all
		}
	}()
	n := min(len(c.pending), c.o.Deletions)
	w := s.wantedNow()
	some, err := c.lookAgain(&w, c.pending[:n])
	if err != nil {
		return err
	}
	known, taken, err := c.readTargets(ctx, some)
	if err != nil {
		return err
	}
	if taken < len(some) { // the next step takes the others
		rest := append(slices.Clone(some[taken:]), c.pending[n:]...)
		c.pending, some = rest, some[:taken]
	} else {
		c.pending = c.pending[n:]
	}
	if len(c.pending) == 0 {
		c.pending = nil
	}
	if len(some) == 0 {
		return nil
	}
	reflected := s.state.position.Number
	release, err := s.holdAppends(ctx)
	if err != nil {
		return err
	}
	if s.state.position.Number != reflected { // something was folded since
		w = s.wantedNow()
		asked := len(some)
		if some, err = c.lookAgain(&w, some); err != nil {
			release()
			return err
		}
		c.stats.Aborted += asked - len(some)
	}
	some = c.doom(some)
	err = s.appendAloneOps(func() []op { return deletions(some, known) })
	c.undoom()
	release()
	if err != nil {
		return err
	}
	c.count(some)
	return s.foldAll(ctx)
}

// readTargets reads what candidates refer to, up to the number of references that a transaction may
// change. It returns how many of the candidates it has read.
func (c *Collector) readTargets(ctx context.Context, some []candidate) (map[object.Digest][]target, int, error) {
	known := map[object.Digest][]target{}
	weight := 0
	for i := range some {
		if weight >= targetWeight*c.o.Deletions {
			return known, i, nil
		}
		d := some[i].digest
		if !some[i].row.held || d.Kind() == object.Chunk {
			continue
		}
		at := some[i].row.located()
		t, err := c.s.targets(ctx, &d, &at, foldLocator{c.s}, nil)
		if err != nil {
			return nil, 0, fmt.Errorf("read garbage %s: %w", d.Short(), err)
		}
		known[d] = t
		weight += len(t)
	}
	return known, len(some), nil
}

// targetWeight is the number of references allowed per piece that a step may delete.
const targetWeight = 4

// doom makes candidates unheld for journals, except those on which a journal relies, which stay.
func (c *Collector) doom(some []candidate) []candidate {
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	var relies []*reliance
	for j := range s.journals {
		relies = append(relies, &j.relies)
	}
	if s.group != nil {
		for _, j := range s.group.journals {
			relies = append(relies, &j.relies)
		}
	}
	s.wants.doomed = make(map[object.Digest]struct{}, len(some))
	n := 0
	for i := range some {
		d := some[i].digest
		if slices.ContainsFunc(relies, func(r *reliance) bool { return r.has(&d) }) {
			c.stats.Aborted++
			continue
		}
		s.wants.doomed[d] = struct{}{}
		some[n] = some[i]
		n++
	}
	return some[:n]
}

func (c *Collector) undoom() {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.s.wants.made.Add(1)
	c.s.wants.doomed = nil
}

// deletions returns the records that delete some. known is what these refer to.
func deletions(some []candidate, known map[object.Digest][]target) []op {
	digests := make([]object.Digest, len(some))
	for i := range some {
		digests[i] = some[i].digest
	}
	ops := digestOps(nil, recDeleted, digests)
	if len(ops) > 0 {
		ops[0].sync.known = known
	}
	return ops
}

func (c *Collector) count(some []candidate) {
	for i := range some {
		if some[i].row.dead {
			continue // counted when it was deleted
		}
		if some[i].digest.Kind().IsNode() {
			c.stats.Nodes++
		} else {
			c.stats.Pieces++
		}
		if some[i].row.held {
			c.stats.Bytes += int64(some[i].row.place.Length)
		}
	}
}
