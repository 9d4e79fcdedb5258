package storage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage/index"
	"github.com/ledgerd/ledger/storage/segment"
)

// CompactOptions control Compact. The zero values are replaced by defaults.
type CompactOptions struct {
	// MinDeadShare is the share of a segment that must be garbage for it to be retired, above 0 and
	// at most 1; 0: one half. With a very small share nothing deleted stays.
	MinDeadShare float64
	// MaxBytes bounds the live content of what is rewritten together, segments or a part of one,
	// and so the disk space taken before any is freed; 0: the length of a segment.
	MaxBytes int64
	// Purge removes all deleted data, at any cost: it rewrites segments even when they become
	// longer, and removes recent torn tails too.
	Purge bool
	// DryRun examines everything and changes nothing: the report estimates what would be done.
	DryRun bool
	// Progress, if not nil, receives the bytes of segments examined so far and their total. It must
	// not block.
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

// CompactReport is the result of Compact. Sizes are in bytes.
type CompactReport struct {
	// Before and After are the sizes of the segments and page.db at the beginning and at the end,
	// including concurrent writes.
	Before, After int64
	// Replaced counts segments rewritten, and Written segments that hold the live content of those.
	Replaced, Written int
	// Freed is by how much the segments and page.db became shorter in total.
	Freed int64
	// IndexWritten is the size of page.db, if it was rebuilt to give free pages back, else 0.
	IndexWritten int64
	// Left counts segments that Purge could not rewrite, since an open journal has written to them.
	Left int
}

const (
	// A segment below the part smallShare of its greatest length is small; more than maxSmall small
	// segments are merged.
	smallShare = 8
	maxSmall   = 8
	// maxRounds bounds how often segments are chosen again, because the last round has made
	// garbage: differences elsewhere that were then written whole.
	maxRounds = 4
	// maxPurgeRounds is far more than needed.
	maxPurgeRounds = 100
)

// emptyBytes is the length of a segment without batches.
const emptyBytes = 32

// Compact frees space that deleted, dropped or replaced records take in segments. It rewrites
// segments with garbage, a few at a time, and removes torn tails that were set aside more than a
// week ago. If more than half of page.db is free, it briefly takes half of page.db's length in
// addition. Readers and writers continue; folds wait while a few
// segments are rewritten. Segments to which open journals have written stay. A page has at most one
// call at a time, and one Collector: the caller must serialize the two by a lock.
//
// It returns the report also with an error. ctx may end it at any time: finished work stays. Errors
// match base.ErrReadOnly, base.ErrClosed, base.ErrNoSpace or base.ErrCorrupt, or are those of the
// disk or of ctx.
func (s *Store) Compact(ctx context.Context, o CompactOptions) (r CompactReport, err error) {
	if err := s.writable(); err != nil {
		return r, fmt.Errorf("compact: %w", err)
	}
	c := &compaction{s: s, o: o.withDefaults(s.segmentBytes()), r: &r}
	err = s.WithReserve(ctx, func(lent bool) error {
		if !lent {
			return c.run(ctx)
		}
		// First the segments without metadata: they need no checkpoint.
		c.o.MaxBytes, c.spare = min(c.o.MaxBytes, spareBytes), true
		if err := c.run(ctx); err != nil {
			return err
		}
		c.spare = false
		return c.run(ctx)
	})
	if err != nil {
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

	spare      bool            // the disk is full: no checkpoint is written
	wholeBytes int64           // average size of a node that is stored whole
	last       uint32          // the last segment at the beginning of a purge
	fresh      bool            // a checkpoint is to be written before any copy
	stream     *segment.Stream // for the copies of this round
	number     uint64          // of the last batch appended to stream
}

// segmentCandidate is a segment that may be worth retiring.
type segmentCandidate struct {
	id       uint32
	bytes    int64
	dead     int64 // at most; exact after the segment was examined
	metadata int64 // counts until there is another checkpoint
	grows    int64 // by how much differences grow when written whole
	whole    bool  // whether there are such differences
	small    bool
}

func (c *compaction) run(ctx context.Context) (err error) {
	c.r.Before = max(c.r.Before, c.s.diskBytes())
	defer func() {
		if c.r.After = c.s.diskBytes(); c.o.DryRun {
			c.r.After = c.r.Before - c.r.Freed
		}
	}()
	if !c.o.DryRun {
		if err := c.s.removeTorn(ctx, c.o.Purge); err != nil {
			return err
		}
	}
	rounds := maxRounds
	if c.o.Purge && !c.o.DryRun {
		if err := c.s.finishOpen(ctx); err != nil { // later writes contain nothing deleted before
			return err
		}
		for _, g := range c.s.log.Segments() {
			c.last = max(c.last, g.ID)
		}
		rounds = maxPurgeRounds
	}
	for round := range rounds {
		written := c.r.Written
		if err := c.round(ctx, round == 0); err != nil {
			return err
		}
		if c.o.DryRun || c.r.Written == written {
			break
		}
	}
	err = c.shrinkIndex(ctx)
	if errors.Is(err, base.ErrNoSpace) { // the rebuild needs as much space as it keeps
		err = nil
	}
	return err
}

// round chooses segments and retires them.
func (c *compaction) round(ctx context.Context, first bool) error {
	defer func() {
		if c.stream != nil {
			c.stream.Release()
			c.stream = nil
		}
	}()
	c.r.Left = 0
	if err := c.find(ctx); err != nil {
		return err
	}
	if err := c.choose(ctx, first); err != nil {
		return err
	}
	for len(c.todo) > 0 {
		if err := c.step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// diskBytes is the size of the segments and page.db.
func (s *Store) diskBytes() int64 {
	st := s.Stats()
	return st.SegmentBytes + st.IndexBytes
}

// find chooses segments by the bytes that rows point to. Reading them finds the rest of their live
// content.
func (c *compaction) find(ctx context.Context) error {
	live, err := c.liveBytes(ctx)
	if err != nil {
		return err
	}
	c.todo = nil
	small := 0
	for _, g := range c.s.log.Segments() {
		k := segmentCandidate{id: g.ID, bytes: int64(g.SyncedEnd), dead: int64(g.SyncedEnd) - live[g.ID]}
		switch {
		case k.bytes <= emptyBytes:
		case c.worth(&k):
			c.todo = append(c.todo, k)
		case !g.Open && k.bytes < c.s.segmentBytes()/smallShare:
			k.small = true
			small++
			c.todo = append(c.todo, k)
		}
	}
	if small <= maxSmall {
		c.todo = slices.DeleteFunc(c.todo, func(k segmentCandidate) bool { return k.small })
	}
	return nil
}

func (c *compaction) worth(k *segmentCandidate) bool {
	if c.o.Purge {
		return k.dead > 0 || k.whole
	}
	gain := k.dead - k.grows
	return gain > 0 && float64(gain) >= c.o.MinDeadShare*float64(k.bytes)
}

// liveBytes returns, for each segment, the bytes of the records of held pieces. Bases that are not
// held are left out: they go with their segment.
func (c *compaction) liveBytes(ctx context.Context) (map[uint32]int64, error) {
	live := map[uint32]int64{}
	nodes, bytes := int64(0), int64(0)
	defer func() { c.wholeBytes = bytes / max(1, nodes) }()
	err := c.s.eachRow(ctx, bucketObjects, func(_ index.Tx, k, v []byte) error {
		row, ok := parseObjectRow(v)
		if !ok {
			return badRow(bucketObjects, fmt.Sprintf("%x", k), "bad row")
		}
		if row.kind == recNode && (row.held || row.dead) {
			nodes++
			bytes += int64(row.place.Length)
		}
		if row.held {
			live[row.place.Segment] += int64(row.place.Length)
		}
		return nil
	}, nil)
	return live, err
}

// choose examines the segments, decides whether another checkpoint is worth its length, and keeps
// the segments worth retiring.
func (c *compaction) choose(ctx context.Context, first bool) error {
	s := c.s
	done, all := int64(0), int64(0)
	for _, t := range c.todo {
		all += t.bytes
	}
	gain, garbage := int64(0), first
	for i := range c.todo {
		t := &c.todo[i]
		if err := c.examineInTurn(ctx, t); err != nil {
			return err
		}
		if with := *t; t.metadata > 0 {
			with.dead += t.metadata
			if with.small || c.worth(&with) {
				gain += with.dead - with.grows
			}
			garbage = garbage || t.dead > 0 || t.whole
		}
		if done += t.bytes; c.o.Progress != nil {
			c.o.Progress(done, all)
		}
	}
	if c.fresh = c.o.Purge && garbage && !c.spare; gain > 0 && !c.o.Purge && !c.spare {
		size := int64(0)
		err := s.view(func(tx index.Tx) (err error) {
			size, err = checkpointSize(tx)
			return err
		})
		if err != nil {
			return err
		}
		size += size/64 + checkpointOverhead
		c.fresh = gain-size > size/checkpointShare
	}
	var worth []segmentCandidate
	for _, t := range c.todo {
		if t.metadata > 0 && (!c.fresh || c.o.Purge && !first && t.dead == 0 && !t.whole) {
			continue
		}
		if t.dead += t.metadata; t.small || c.worth(&t) {
			worth = append(worth, t)
		}
	}
	c.todo = worth
	return nil
}

const (
	// checkpointOverhead exceeds the size of a checkpoint beside its rows.
	checkpointOverhead = 1 << 7
	// checkpointShare is the part of its length that a checkpoint must give back.
	checkpointShare = 8
)

// step retires some of the segments together, or one of them part by part, the last part first.
func (c *compaction) step(ctx context.Context) error {
	s := c.s
	var inputs []segmentCandidate
	live, dead, small := int64(0), int64(0), 0
	for len(c.todo) > 0 {
		t := &c.todo[0]
		more := t.bytes - t.dead + t.grows
		if len(inputs) > 0 && live+more > c.o.MaxBytes {
			break
		}
		if t.small {
			small++
		}
		inputs, live, dead = append(inputs, *t), live+more, dead+t.dead-t.grows
		c.todo = c.todo[1:]
	}
	if small == 1 && len(inputs) == 1 {
		return nil
	}
	if c.o.DryRun {
		c.r.Replaced += len(inputs)
		c.r.Written++
		c.r.Freed += dead
		return nil
	}
	if err := s.foldTurn.Take(ctx); err != nil {
		return err
	}
	defer s.foldTurn.Give()
	if err := s.writable(); err != nil {
		return err
	}
	if c.stream == nil { // later appends leave existing segments alone
		if err := s.finishOpen(ctx); err != nil {
			return err
		}
		c.stream = s.log.NewStream()
	}
	if err := s.foldAll(ctx); err != nil {
		return err
	}
	if c.fresh {
		if err := c.checkpoint(ctx); err != nil {
			return err
		}
		c.fresh = false
	}
	open, busy := map[uint32]bool{}, s.busySegments()
	for _, g := range s.log.Segments() {
		open[g.ID] = g.Open
	}
	inputs = slices.DeleteFunc(inputs, func(t segmentCandidate) bool {
		stays := open[t.id] || busy[t.id] || !s.covered(t.id)
		if stays && t.id <= c.last {
			c.r.Left++
		}
		return stays
	})
	if len(inputs) == 1 {
		parts, err := c.examine(ctx, &inputs[0])
		if err != nil {
			return err
		}
		for _, e := range slices.Backward(parts) {
			if more, err := c.retire(ctx, []segment.End{e}); err != nil || !more {
				return err
			}
		}
		return nil
	}
	var whole []segment.End
	for _, t := range inputs {
		whole = append(whole, segment.End{Segment: t.id})
	}
	if len(whole) > 0 {
		_, err := c.retire(ctx, whole)
		return err
	}
	return nil
}

// busySegments are those with pieces of journals that are not over: the collector identifies these
// pieces by their places.
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

// use is the decision about a record.
type use struct {
	o          op
	live       bool
	metadata   bool        // it counts until there is another checkpoint
	whole      bool        // a live difference to a deleted node: it is to be written whole
	dead       []uint64    // deleted nodes that it needs or is, and those that need it
	dependents []dependent // the live differences to it, which are to be written whole
}

// dependent is a live node that is stored as a difference.
type dependent struct {
	digest  object.Digest
	segment uint32
}

// judge decides about the records of a batch.
func (s *Store) judge(info segment.BatchInfo, recs []segment.Record) (out []use, err error) {
	out = make([]use, len(recs))
	for i, r := range recs {
		if out[i].o, err = parseRecord(r); err != nil {
			return nil, err
		}
	}
	err = s.viewOnce(func(tx index.Tx) error {
		for i := range out {
			u := &out[i]
			var err error
			switch cp := &s.state.checkpoint; u.o.kind {
			case recPiece, recNode, recDelta:
				err = u.judge(tx)
			case recRows, recComplete:
				u.metadata = cp.first <= info.Number && info.Number <= cp.last
			default:
				u.metadata = info.Number > cp.upTo
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	return out, err
}

func (u *use) judge(tx index.Tx) error {
	o := &u.o
	row, ok, err := readObjectRow(tx, &o.digest)
	if err != nil || !ok {
		return err
	}
	here := row.place == o.place && row.kind == o.kind
	switch {
	case row.dead && here:
		return u.addDependents(tx, row.number)
	case row.held && here:
		if u.live = true; o.kind == recDelta {
			var to objectRow
			to, _, err = readObjectRow(tx, o.base)
			if u.whole = to.dead; u.whole {
				u.dead = append(u.dead, to.number)
			}
		}
	}
	return err
}

// addDependents finds the live differences to a deleted node, and to deleted nodes that are
// differences to it.
func (u *use) addDependents(tx index.Tx, base uint64) error {
	if slices.Contains(u.dead, base) { // a circle in damaged rows
		return nil
	}
	u.dead = append(u.dead, base)
	sources, err := objectSources(tx, base, refBase)
	for i := 0; err == nil && i < len(sources); i++ {
		var row objectRow
		if row, _, err = readObjectRow(tx, &sources[i]); err != nil {
			return err
		}
		if row.held {
			u.dependents = append(u.dependents, dependent{sources[i], row.place.Segment})
		} else if row.dead {
			err = u.addDependents(tx, row.number)
		}
	}
	return err
}

func (c *compaction) examineInTurn(ctx context.Context, t *segmentCandidate) error {
	if err := c.s.foldTurn.Take(ctx); err != nil {
		return err
	}
	defer c.s.foldTurn.Give()
	_, err := c.examine(ctx, t)
	return err
}

// examine measures how much of a segment is live. It returns the beginnings of the parts that may
// be retired one by one. The live content of a part is at most MaxBytes, unless one batch has more.
// The caller holds the fold turn.
func (c *compaction) examine(ctx context.Context, t *segmentCandidate) (parts []segment.End, err error) {
	t.dead, t.metadata, t.grows, t.whole = 0, 0, 0, false
	parts = append(parts, segment.End{Segment: t.id})
	live := int64(0) // that of the last part
	err = c.s.log.Scan(ctx, t.id, 0, func(info segment.BatchInfo, recs []segment.Record) error {
		uses, err := c.s.judge(info, recs)
		if err != nil {
			return err
		}
		copied := int64(0)
		for i := range uses {
			u, n := &uses[i], int64(len(recs[i].Payload))
			for _, d := range u.dependents {
				if d.segment != t.id { // else it is counted itself
					t.grows += c.wholeBytes
					copied += c.wholeBytes
				}
			}
			switch {
			case u.metadata:
				t.metadata += n
			case !u.live:
				t.dead += n
			case u.whole:
				t.whole = true
				t.grows += max(0, c.wholeBytes-n)
				copied += max(n, c.wholeBytes)
			default:
				copied += n
			}
		}
		if live += copied; live > c.o.MaxBytes && live > copied {
			parts, live = append(parts, segment.End{Segment: t.id, Offset: info.Start}), copied
		}
		return nil
	})
	return parts, err
}

// finishOpen makes later appends begin a new segment.
func (s *Store) finishOpen(ctx context.Context) error {
	if err := s.appendTurn.Take(ctx); err != nil {
		return err
	}
	err := s.log.Main().Finish()
	s.appendTurn.Give()
	if err != nil {
		return err
	}
	s.log.FinishIdle()
	return nil
}

// append appends a batch of copies, or of a checkpoint. Its records are then pending.
func (c *compaction) append(b *segment.Batch, ops []op) (number uint64, err error) {
	s := c.s
	done, err := c.stream.Append(b)
	if err != nil {
		s.noteFailure(err)
		return 0, err
	}
	s.mu.Lock()
	s.over.settleLocked([][]op{ops}, done)
	s.mu.Unlock()
	if c.r.Freed -= int64(done.End - done.Start); done.Start == emptyBytes {
		c.r.Freed -= emptyBytes
	}
	c.number = done.Number
	return done.Number, nil
}

// checkpoint writes a checkpoint. The caller holds the fold turn, and the index reflects everything
// durable.
func (c *compaction) checkpoint(ctx context.Context) error {
	s := c.s
	err := s.viewOnce(func(tx index.Tx) error {
		return writeCheckpoint(tx, s.state.position.Number, c.append)
	})
	if err != nil {
		return fmt.Errorf("write a checkpoint: %w", err)
	}
	if err := c.stream.Finish(); err != nil { // checkpoints and copies become garbage at different times
		return err
	}
	return c.fold(ctx)
}

// fold folds what was appended. Another append in flight may delay that.
func (c *compaction) fold(ctx context.Context) error {
	s := c.s
	if err := s.foldAll(ctx); err != nil || s.state.position.Number >= c.number {
		return err
	}
	release, err := s.holdAppends(ctx)
	if err == nil {
		release()
	}
	return err
}
