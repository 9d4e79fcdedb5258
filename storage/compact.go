package storage

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/storage/index"
	"github.com/ledgerd/ledger/storage/segment"
)

// CompactOptions say how Compact goes about it. The zero values are replaced by defaults.
type CompactOptions struct {
	// MinDeadShare is which part of a segment must be garbage for it to be rewritten, above 0 and
	// at most 1; 0: one half. With a very small one nothing that was deleted stays.
	MinDeadShare float64
	// MaxBytes bounds what is live in the segments that are rewritten together, and so the disk
	// space that is taken before any is given back, if one segment does not have more; 0: the
	// length of a segment.
	MaxBytes int64
	// Purge leaves nothing of what was deleted, whatever that costs: segments are rewritten also
	// when they become longer, and what was set aside lately goes too.
	Purge bool
	// DryRun looks at everything and changes nothing: the report is what would be done, as far as
	// that can be told.
	DryRun bool
	// Progress, if not nil, is told how many bytes of segments have been looked at, of how many. It
	// must not block.
	Progress func(done, total int64)
}

func (o CompactOptions) withDefaults(segmentBytes int64) CompactOptions {
	if o.MinDeadShare <= 0 {
		o.MinDeadShare = 0.5
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = segmentBytes
	}
	return o
}

// CompactReport is what Compact has done. Sizes are in bytes.
type CompactReport struct {
	// Before and After are what the segments and page.db take at the beginning and at the end. What
	// is written meanwhile counts.
	Before, After int64
	// Examined counts segments that were read, Replaced those that were rewritten, and Written
	// those that have what was live of them.
	Examined, Replaced, Written int
	// Freed is by how much the segments have become shorter together.
	Freed int64
	// IndexBefore and IndexAfter are the sizes of page.db, if it was made anew to give free pages
	// back; else both are 0.
	IndexBefore, IndexAfter int64
	// Torn counts torn tails that had been set aside, for more than a week unless
	// CompactOptions.Purge was set, and were removed.
	Torn int
	// Left counts segments that Purge could not rewrite, since a journal that is open has written
	// to them.
	Left int
}

const (
	// smallShare is which part of its greatest length a segment must not reach to be called small;
	// where there are more than maxSmall of those, they are put together.
	smallShare = 8
	maxSmall   = 8
	// baseShare is which part of the page bases must be for those to decide the order.
	baseShare = 50
	// maxRounds bounds how often segments are chosen anew, because of what the round before has
	// made garbage: bases that what was written whole needed, and deletions of what is not there
	// any more.
	maxRounds = 4
	// maxPurgeRounds is far more than it takes: each round writes whole what needs a base, and is
	// done with bases that nothing needs any more.
	maxPurgeRounds = 100
)

// Compact gives space back that deleted, dropped or replaced records take in segments. It rewrites
// segments of which a part is garbage, a few at a time, and takes one half of page.db's length for
// a moment if more than half of that is free. Readers and writers go on; folds wait while a few
// segments are rewritten. Pages whose journals are open keep the segments in which these have
// written.
//
// It returns what was done also with an error. ctx may end it at any time: what was done stays
// done. Errors match base.ErrReadOnly, base.ErrClosed, base.ErrNoSpace or base.ErrCorrupt, or are
// those of the disk or of ctx.
func (s *Store) Compact(ctx context.Context, o CompactOptions) (r CompactReport, err error) {
	if err := s.writable(); err != nil {
		return r, fmt.Errorf("compact: %w", err)
	}
	if err := s.compactTurn.take(ctx); err != nil {
		return r, fmt.Errorf("compact: %w", err)
	}
	defer s.compactTurn.release()
	c := &compaction{s: s, o: o.withDefaults(s.segmentBytes()), r: &r}
	if err := c.run(ctx); err != nil {
		return r, fmt.Errorf("compact: %w", err)
	}
	return r, nil
}

func (s *Store) segmentBytes() int64 {
	return cmp.Or(max(s.o.SegmentBytes, 0), segment.DefaultSegmentBytes)
}

// compaction is one call of Compact.
type compaction struct {
	s    *Store
	o    CompactOptions
	r    *CompactReport
	todo []segmentCandidate
	done int64
	all  int64
	know map[uint32]segment.Description
	// newestFirst is the order of this round.
	newestFirst bool
	baseBytes   int64  // of dead nodes that are kept as bases
	wholeBytes  int64  // what a node takes that is stored whole, on average
	deletions   int64  // bytes of deletions that were seen to stay, of what is not there
	looked      bool   // whether the log has it none the less
	last        uint32 // the last segment that a purge began with
	stale       *staleNames
}

// segmentCandidate is a segment that may be worth rewriting.
type segmentCandidate struct {
	id    uint32
	bytes int64
	dead  int64 // at most; once it was examined, as it is
	bases int64 // in dead: of nodes that stay until what needs them has been written whole
	grows int64 // by how much differences are longer when they are written whole
	whole bool  // whether there are such
	small bool
}

func (c *compaction) run(ctx context.Context) (err error) {
	c.r.Before = c.s.diskBytes()
	defer func() {
		if c.r.After = c.s.diskBytes(); c.o.DryRun {
			c.r.After = c.r.Before - c.r.Freed - (c.r.IndexBefore - c.r.IndexAfter)
		}
	}()
	if !c.o.DryRun {
		if c.r.Torn, err = c.s.removeTorn(ctx, c.o.Purge); err != nil {
			return err
		}
	}
	rounds := maxRounds
	if c.o.Purge && !c.o.DryRun {
		if err := c.s.finishOpen(ctx); err != nil { // what is written from now on holds nothing that was deleted before
			return err
		}
		for _, g := range c.s.log.Segments() {
			c.last = max(c.last, g.ID)
		}
		rounds = maxPurgeRounds
	}
	for round := range rounds {
		if err := c.find(ctx, round); err != nil {
			return err
		}
		c.r.Left = 0
		written, looked := c.r.Written, c.looked
		for len(c.todo) > 0 {
			if err := c.step(ctx); err != nil {
				return err
			}
			if c.wantsLook() && !c.newestFirst {
				if err := c.lookForStale(ctx); err != nil {
					return err
				}
			}
		}
		if c.o.DryRun {
			break
		}
		if c.wantsLook() {
			if err := c.lookForStale(ctx); err != nil {
				return err
			}
		}
		if c.r.Written == written && c.looked == looked {
			break
		}
	}
	c.r.IndexBefore, c.r.IndexAfter, err = c.s.shrinkIndex(ctx, c.o.DryRun)
	return err
}

// diskBytes is what the segments and page.db take.
func (s *Store) diskBytes() int64 {
	st := s.Stats()
	return st.SegmentBytes + st.IndexBytes
}

// find chooses segments by the bytes that rows point to. What else is live in them shows when they
// are read.
func (c *compaction) find(ctx context.Context, round int) error {
	live, err := c.liveBytes(ctx)
	if err != nil {
		return err
	}
	var small []segmentCandidate
	for _, g := range c.s.log.Segments() {
		k := segmentCandidate{id: g.ID, bytes: int64(g.SyncedEnd), dead: int64(g.SyncedEnd) - live[g.ID]}
		switch {
		case k.bytes <= emptyBytes:
		case c.worth(&k):
			c.todo = append(c.todo, k)
			c.all += k.bytes
		case !g.Open && k.bytes < c.s.segmentBytes()/smallShare:
			k.small = true
			small = append(small, k)
		}
	}
	if len(small) > maxSmall {
		c.todo = append(c.todo, small...)
		for _, k := range small {
			c.all += k.bytes
		}
	}
	// Oldest first: what takes something away can go when nothing older is left. But where there
	// are many bases, newest first the first time: a base goes when what needs it has been written
	// whole, and is older than that.
	c.newestFirst = round == 0 && c.baseBytes > c.r.Before/baseShare
	slices.SortFunc(c.todo, func(a, b segmentCandidate) int {
		if c.newestFirst {
			a, b = b, a
		}
		return cmp.Compare(a.id, b.id)
	})
	return nil
}

// wantsLook reports whether many deletions stay, and it is not known for what.
func (c *compaction) wantsLook() bool { return c.deletions >= c.s.minDeletions && !c.looked }

// lookForStale finds out what deletions must stay for.
func (c *compaction) lookForStale(ctx context.Context) (err error) {
	s := c.s
	if err := s.foldTurn.take(ctx); err != nil {
		return err
	}
	upTo := s.state.position.Number
	s.foldTurn.release()
	c.looked = true
	c.stale, err = s.findStale(ctx, upTo)
	return err
}

// emptyBytes is the length of a segment without batches.
const emptyBytes = 32

func (c *compaction) worth(k *segmentCandidate) bool {
	if c.o.Purge {
		return k.dead > 0 || k.whole
	}
	gain := k.dead - k.grows
	return gain > 0 && float64(gain) >= c.o.MinDeadShare*float64(k.bytes)
}

// liveBytes returns, for each segment, the bytes of the records of what is held. Bases that are not
// are left out: some of them can go.
func (c *compaction) liveBytes(ctx context.Context) (map[uint32]int64, error) {
	live := map[uint32]int64{}
	nodes, bytes := int64(0), int64(0)
	defer func() { c.wholeBytes = bytes / max(1, nodes) }()
	c.baseBytes = 0
	err := c.s.eachRow(ctx, bucketObjects, func(_ index.Tx, k, v []byte) error {
		row, ok := parseObjectRow(v)
		if !ok {
			return badRow(bucketObjects, fmt.Sprintf("%x", k), "bad row")
		}
		if row.kind == recNode && (row.held || row.dead) {
			nodes++
			bytes += int64(row.place.Length)
		}
		if row.dead {
			c.baseBytes += int64(row.place.Length)
		}
		if row.held {
			live[row.place.Segment] += int64(row.place.Length)
		}
		return nil
	}, func() error { return nil })
	return live, err
}

// step examines segments until some are found that are to be rewritten together, and rewrites them.
func (c *compaction) step(ctx context.Context) error {
	s := c.s
	if err := s.foldTurn.take(ctx); err != nil {
		return err
	}
	defer s.foldTurn.release()
	if err := s.writable(); err != nil {
		return err
	}
	if err := s.foldAll(ctx); err != nil {
		return err
	}
	if err := s.finishMoves(ctx); err != nil {
		return err
	}
	k := c.judge()
	var inputs []uint32
	live, dead, small := int64(0), int64(0), 0
	busy := s.busySegments()
	for len(c.todo) > 0 {
		t := c.todo[0]
		if busy[t.id] || !s.covered(t.id) {
			c.todo = c.todo[1:]
			c.leave(t.id)
			continue
		}
		if err := c.examine(ctx, k, &t); err != nil {
			return err
		}
		if c.wantsLook() && !c.newestFirst { // what is older has been rewritten
			if len(inputs) > 0 {
				break
			}
			return nil
		}
		if !t.small && !c.worth(&t) {
			c.pass(&t)
			continue
		}
		more := t.bytes - t.dead + t.bases + t.grows // the bases are there for a while
		if len(inputs) > 0 && live+more > c.o.MaxBytes {
			break
		}
		if t.small {
			small++
		}
		c.pass(&t)
		inputs, live, dead = append(inputs, t.id), live+more, dead+t.dead-t.grows
	}
	if len(inputs) == 0 || small == 1 && len(inputs) == 1 {
		return nil
	}
	if c.o.DryRun {
		c.r.Replaced += len(inputs)
		c.r.Written++
		c.r.Freed += dead
		return nil
	}
	can, err := c.finish(ctx, slices.Clone(inputs))
	if err != nil {
		return err
	}
	for _, id := range inputs {
		if !slices.Contains(can, id) {
			c.leave(id)
		}
	}
	if len(can) == 0 {
		return nil
	}
	return c.rewrite(ctx, can)
}

// leave counts a segment that cannot be rewritten now.
func (c *compaction) leave(id uint32) {
	if id <= c.last {
		c.r.Left++
	}
}

// pass takes the first candidate off the list.
func (c *compaction) pass(t *segmentCandidate) {
	c.todo = c.todo[1:]
	c.done += t.bytes
	if c.o.Progress != nil {
		c.o.Progress(c.done, c.all)
	}
}

// busySegments are those in which journals have written that are not over: the collector knows
// their pieces by their places.
func (s *Store) busySegments() map[uint32]bool {
	busy := map[uint32]bool{}
	for _, span := range s.wantedNow().spans {
		busy[span.segment] = true
	}
	return busy
}

// covered reports whether the index reflects all of a segment.
func (s *Store) covered(id uint32) bool {
	for _, g := range s.log.Segments() {
		if g.ID == id {
			return reflects(&s.state.position, segment.Place{Segment: id, Offset: g.SyncedEnd - 1})
		}
	}
	return false
}

// judge prepares a judgement on segments that are not named yet.
func (c *compaction) judge() *judgement {
	return &judgement{s: c.s, inputs: map[uint32]bool{}, used: map[uint64]bool{}, bases: map[uint64]bool{}, stale: c.stale}
}

// killBefore is the number of C2 for a judgement on some segments.
func (c *compaction) killBefore(inputs map[uint32]bool) (uint64, error) {
	before := uint64(1<<64 - 1)
	for _, g := range c.s.log.Segments() {
		if inputs[g.ID] || g.SyncedEnd <= emptyBytes {
			continue
		}
		d, ok := c.know[g.ID]
		if !ok {
			var err error
			if d, err = c.s.log.Describe(g.ID); err != nil {
				return 0, err
			}
			if c.know == nil {
				c.know = map[uint32]segment.Description{}
			}
			if d.First != 0 {
				c.know[g.ID] = d
			}
		}
		if d.First != 0 {
			before = min(before, max(d.First, d.Judged))
		}
	}
	return before, nil
}

// examine finds out how much of a segment is live.
func (c *compaction) examine(ctx context.Context, k *judgement, t *segmentCandidate) (err error) {
	k.deletions = 0
	k.inputs, k.used, k.bases = map[uint32]bool{t.id: true}, map[uint64]bool{}, map[uint64]bool{}
	if k.killBefore, err = c.killBefore(k.inputs); err != nil {
		return err
	}
	if k.lastTag, err = c.lastTags(ctx, []uint32{t.id}); err != nil {
		return err
	}
	c.r.Examined++
	t.dead, t.bases, t.grows, t.whole = 0, 0, 0, false
	empty := int64(0) // what the batch before takes if nothing of it is live
	err = c.s.log.Scan(ctx, t.id, func(info segment.BatchInfo, recs []segment.Record) error {
		verdicts, err := k.batch(info, recs)
		if err != nil {
			return err
		}
		t.dead += empty // a last batch stays, be it empty
		empty = 0
		size := func(r *segment.Record) int64 {
			return 1 + int64(len(binary.AppendUvarint(nil, uint64(len(r.Payload))))) + int64(len(r.Payload))
		}
		before, after := int64(0), int64(0)
		for i := range recs {
			before += size(&recs[i])
		}
		for i := range verdicts {
			v := &verdicts[i]
			n := size(&v.as)
			switch {
			case v.whole:
				t.whole = true
				t.grows += max(0, c.wholeBytes-n)
			case v.free:
				t.bases += n
			}
			after += n
		}
		t.dead += before - after
		if len(verdicts) == 0 {
			empty = int64(info.End-info.Start) - before
		}
		return nil
	})
	t.dead += t.bases
	c.deletions += k.deletions
	return err
}

// lastTags finds the last batches that set tags.
func (c *compaction) lastTags(ctx context.Context, inputs []uint32) (map[string]uint64, error) {
	last := map[string]uint64{}
	for _, id := range inputs {
		err := c.s.log.Scan(ctx, id, func(info segment.BatchInfo, recs []segment.Record) error {
			for _, r := range recs {
				if r.Kind != recTag {
					continue
				}
				o, err := parseRecord(r)
				if err != nil {
					return err
				}
				last[o.tag.name] = max(last[o.tag.name], info.Number)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return last, nil
}

// finishOpen lets what comes next begin a new segment.
func (s *Store) finishOpen(ctx context.Context) error {
	if err := s.appendTurn.take(ctx); err != nil {
		return err
	}
	err := s.log.Main().Finish()
	s.appendTurn.release()
	if err != nil {
		return err
	}
	s.log.FinishIdle()
	return nil
}

// finish makes the segments ones that are not appended to, and folds what came to them meanwhile.
// It returns those that can be rewritten.
func (c *compaction) finish(ctx context.Context, inputs []uint32) ([]uint32, error) {
	s := c.s
	open := map[uint32]bool{}
	for _, g := range s.log.Segments() {
		open[g.ID] = g.Open
	}
	if slices.ContainsFunc(inputs, func(id uint32) bool { return open[id] }) {
		if err := s.finishOpen(ctx); err != nil {
			return nil, err
		}
		if err := s.foldAll(ctx); err != nil {
			return nil, err
		}
	}
	for _, g := range s.log.Segments() {
		open[g.ID] = g.Open
	}
	busy := s.busySegments()
	return slices.DeleteFunc(inputs, func(id uint32) bool { return open[id] || busy[id] || !s.covered(id) }), nil
}

// rewrite replaces segments. The caller holds the fold turn.
func (c *compaction) rewrite(ctx context.Context, inputs []uint32) error {
	s := c.s
	k := c.judge()
	for _, id := range inputs {
		k.inputs[id] = true
	}
	var err error
	if k.killBefore, err = c.killBefore(k.inputs); err != nil {
		return err
	}
	if k.lastTag, err = c.lastTags(ctx, inputs); err != nil {
		return err
	}
	w, err := s.log.Rewrite(ctx, inputs, s.state.position.Number, func(info segment.BatchInfo, recs []segment.Record, out *segment.Batch) error {
		return k.write(ctx, info, recs, out)
	})
	if err != nil {
		return err
	}
	if k.keepsDead {
		w.KeepsDead()
	}
	before, after := w.Bytes()
	if err := w.Install(); err != nil {
		if errors.Is(err, base.ErrReadOnly) {
			s.mu.Lock()
			s.noteFailureLocked(err)
			s.mu.Unlock()
		}
		return err
	}
	c.r.Replaced += len(inputs)
	c.r.Written++
	c.r.Freed += int64(before) - int64(after)
	freed := len(s.freed)
	if err := s.finishMoves(context.WithoutCancel(ctx)); err != nil { // short, and what it gives back is why we are here
		return err
	}
	return c.deleteBases(ctx, freed)
}

// deleteBases deletes dead bases that were left by what is stored whole now: the numbers that
// s.freed has from an index on. The caller holds the fold turn.
func (c *compaction) deleteBases(ctx context.Context, from int) error {
	s := c.s
	left := slices.Clone(s.freed[min(from, len(s.freed)):])
	if len(left) == 0 {
		return nil
	}
	kept := s.freed
	s.freed = left
	defer func() { s.freed = append(kept, s.freed...) }() // the collector looks at them once more
	l := s.NewCollector(CollectOptions{})
	l.indexes, l.cursor = s.indexes.Load(), 1<<64-1
	for l.takeFreed(); len(l.pending) > 0; l.takeFreed() {
		if err := l.delete(ctx); err != nil {
			return err
		}
	}
	return nil
}
