package storage

import (
	"context"
	"fmt"
	"slices"

	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage/index"
	"github.com/ledgerd/ledger/storage/segment"
)

// copyBytes is how much is copied with one batch.
const copyBytes = 1 << 20

// copying copies live records forward: as ordinary records, whose places count from then on. Bases
// that are not held are not copied. The live differences to them are written whole instead.
type copying struct {
	load   func(object.Digest) (*fb.Node, error)
	append func(*segment.Batch, []op) error
	b      *segment.Batch
	ops    []op
	once   map[object.Digest]bool // nodes that were written whole
	moved  []object.Digest        // digests whose rows must point elsewhere in the end
	dead   []uint64               // numbers of bases that are needed no more
}

func newCopying(load func(object.Digest) (*fb.Node, error), add func(*segment.Batch, []op) error) *copying {
	return &copying{load: load, append: add, b: segment.NewBatch(), once: map[object.Digest]bool{}}
}

// record copies the needed part of a record. The record's payload is valid during the call.
func (y *copying) record(u *use) error {
	o := &u.o
	y.dead = append(y.dead, u.dead...)
	for _, d := range u.dependents {
		if err := y.whole(d.digest); err != nil {
			return err
		}
	}
	if u.live || len(u.dead) > 0 {
		y.moved = append(y.moved, o.digest)
	}
	switch {
	case !u.live:
		return nil
	case u.whole:
		return y.whole(o.digest)
	}
	return y.add(o)
}

// whole writes a node whole.
func (y *copying) whole(d object.Digest) error {
	if y.once[d] {
		return nil
	}
	y.once[d] = true
	n, err := y.load(d)
	if err != nil {
		return fmt.Errorf("write node %s whole: %w", d.Short(), err)
	}
	return y.add(&op{kind: recNode, digest: d, content: n.Bytes()})
}

func (y *copying) add(o *op) error {
	y.b.Add(o.kind, o.appendHeader(nil), o.content)
	c := *o
	c.content, c.bare = nil, true // the references stay as they are
	if y.ops = append(y.ops, c); y.b.Bytes() < copyBytes {
		return nil
	}
	return y.flush()
}

func (y *copying) flush() error {
	if len(y.ops) == 0 {
		return nil
	}
	err := y.append(y.b, y.ops)
	y.b, y.ops = segment.NewBatch(), nil
	return err
}

// retire copies the live content of segments from some offsets on, and retires these parts.
// Segments that hold metadata which counts, or bases that an open journal relies on, stay. It
// reports false when all of them stay. The caller holds the fold turn.
func (c *compaction) retire(ctx context.Context, inputs []segment.End) (done bool, err error) {
	s := c.s
	y := newCopying(func(d object.Digest) (*fb.Node, error) { return s.loadNode(ctx, d, foldLocator{s}, 0) },
		func(b *segment.Batch, ops []op) error {
			_, err := c.append(b, ops)
			return err
		})
	stays := map[uint32]bool{}
	for _, e := range inputs {
		err := s.log.Scan(ctx, e.Segment, e.Offset, func(info segment.BatchInfo, recs []segment.Record) error {
			uses, err := s.judge(info, recs)
			for i := 0; err == nil && i < len(uses); i++ {
				stays[e.Segment] = stays[e.Segment] || uses[i].metadata
				err = y.record(&uses[i])
			}
			return err
		})
		if err == nil {
			err = y.flush()
		}
		if err != nil {
			return false, err
		}
	}
	if err := c.fold(ctx); err != nil {
		return false, err
	}
	if err := c.deleteBases(ctx, y.dead); err != nil {
		return false, err
	}
	if err := y.verify(s, inputs, stays); err != nil {
		return false, err
	}
	inputs = slices.DeleteFunc(inputs, func(e segment.End) bool { return stays[e.Segment] })
	if len(inputs) == 0 {
		return false, nil
	}
	before := s.Stats().SegmentBytes
	release, err := s.holdAppends(ctx)
	if err != nil {
		return false, err
	}
	info, err := s.log.Retire(inputs, s.state.position.Number)
	if err == nil {
		s.over.add(nil, info)
	} else {
		s.noteFailure(err)
	}
	release()
	if err != nil {
		return false, err
	}
	for _, e := range inputs {
		if e.Offset == 0 {
			c.r.Replaced++
		}
	}
	c.r.Written++
	c.r.Freed += before - s.Stats().SegmentBytes
	return true, s.foldAll(context.WithoutCancel(ctx)) // short, and the space that it frees is the purpose of the call
}

// verify ensures that no row of a held piece points into the inputs. It adds the segments with
// bases that could not be deleted to stays.
func (y *copying) verify(s *Store, inputs []segment.End, stays map[uint32]bool) error {
	return s.viewOnce(func(tx index.Tx) error {
		for i := range y.moved {
			row, ok, err := readObjectRow(tx, &y.moved[i])
			if err != nil {
				return err
			}
			gone := func(e segment.End) bool { return row.place.Segment == e.Segment && row.place.Offset >= e.Offset }
			switch {
			case !ok || !row.held && !row.dead || !slices.ContainsFunc(inputs, gone):
			case row.held:
				return badRow(bucketObjects, y.moved[i].String(), "a place that did not follow a copy")
			default:
				stays[row.place.Segment] = true
			}
		}
		return nil
	})
}

// deleteBases deletes the bases that nothing needs any more, by their numbers. The caller holds the
// fold turn.
func (c *compaction) deleteBases(ctx context.Context, dead []uint64) error {
	s := c.s
	kept := s.freed
	s.freed = nil
	defer func() { s.freed = append(kept, s.freed...) }() // the collector examines them again
	l := s.NewCollector(CollectOptions{})
	l.indexes, l.cursor = s.indexes.Load(), 1<<64-1
	slices.Sort(dead)
	for _, n := range slices.Compact(dead) {
		l.pending = append(l.pending, candidate{number: n})
	}
	for ; len(l.pending) > 0; l.takeFreed() {
		if err := l.delete(ctx); err != nil {
			return err
		}
	}
	return nil
}
