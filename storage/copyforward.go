package storage

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage/index"
	"github.com/ledgerd/ledger/storage/segment"
)

// copyBytes is how much is copied with one batch.
const copyBytes = 1 << 20

// copying copies the live content of some segments.
type copying struct {
	c      *compaction
	b      *segment.Batch
	ops    []op
	copied []object.Digest        // copied, by rows that must point elsewhere in the end
	once   map[object.Digest]bool // digests for which one record is enough
	bases  bool                   // some bases are still needed
	blocks map[uint32]bool        // segments among the copied that hold metadata which counts
}

func (y *copying) flush() error {
	if len(y.ops) == 0 {
		return nil
	}
	_, err := y.c.append(y.b, y.ops)
	y.b, y.ops = segment.NewBatch(), nil
	return err
}

// segment copies the live content of a segment from an offset on, or the remaining bases.
func (y *copying) segment(ctx context.Context, from segment.End, bases bool) error {
	s, id := y.c.s, from.Segment
	err := s.log.Scan(ctx, id, from.Offset, func(info segment.BatchInfo, recs []segment.Record) error {
		uses, err := s.judge(info, recs, map[uint64]bool{})
		if err != nil {
			return err
		}
		for i := range uses {
			u := &uses[i]
			if u.metadata {
				y.blocks[id] = true
			}
			if u.for_ == copiedBase && !bases {
				y.bases = true
			}
			if u.for_ == 0 || (u.for_ == copiedBase) != bases {
				continue
			}
			if err := y.record(ctx, u); err != nil {
				return err
			}
		}
		return nil
	})
	return cmp.Or(err, y.flush())
}

func (y *copying) record(ctx context.Context, u *use) error {
	o := &u.o
	switch {
	case o.kind == recSplitNode:
		if y.once[o.digest] {
			return nil
		}
		y.once[o.digest] = true
	default:
		y.copied = append(y.copied, o.digest)
	}
	if u.whole {
		n, err := y.c.s.loadNode(ctx, o.digest, foldLocator{y.c.s}, 0)
		if err != nil {
			return fmt.Errorf("write node %s whole: %w", o.digest.Short(), err)
		}
		*o = op{kind: recNode, digest: o.digest, content: n.Bytes()}
	}
	y.ops = append(y.ops, addCopy(y.b, o, u.for_))
	if y.b.Bytes() < copyBytes {
		return nil
	}
	return y.flush()
}

// retire copies the live content of segments from some offsets on, and retires these parts.
// Segments with metadata that counts stay; it reports false when all of them stay. The caller holds
// the fold turn.
func (c *compaction) retire(ctx context.Context, inputs []segment.End) (done bool, err error) {
	s := c.s
	y := &copying{c: c, b: segment.NewBatch(), once: map[object.Digest]bool{}, blocks: map[uint32]bool{}}
	freed := len(s.freed)
	for _, e := range inputs {
		if err := y.segment(ctx, e, false); err != nil {
			return false, err
		}
	}
	if err := c.fold(ctx); err != nil {
		return false, err
	}
	if err := c.deleteBases(ctx, freed); err != nil {
		return false, err
	}
	if y.bases {
		for _, e := range inputs {
			if err := y.segment(ctx, e, true); err != nil {
				return false, err
			}
		}
		if err := c.fold(ctx); err != nil {
			return false, err
		}
	}
	if err := y.verify(inputs); err != nil {
		return false, err
	}
	inputs = slices.DeleteFunc(inputs, func(e segment.End) bool { return y.blocks[e.Segment] })
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

// verify ensures that no row points into what is to be retired.
func (y *copying) verify(inputs []segment.End) error {
	return y.c.s.viewOnce(func(tx index.Tx) error {
		for i := range y.copied {
			row, ok, err := readObjectRow(tx, &y.copied[i])
			if err != nil {
				return err
			}
			gone := func(e segment.End) bool { return row.place.Segment == e.Segment && row.place.Offset >= e.Offset }
			if ok && (row.held || row.dead) && slices.ContainsFunc(inputs, gone) {
				return badRow(bucketObjects, y.copied[i].String(), "a place that did not follow a copy")
			}
		}
		return nil
	})
}

// deleteBases deletes dead bases of nodes that are now stored whole: the numbers in s.freed from an
// index on. The caller holds the fold turn.
func (c *compaction) deleteBases(ctx context.Context, from int) error {
	s := c.s
	left := slices.Clone(s.freed[min(from, len(s.freed)):])
	if len(left) == 0 {
		return nil
	}
	kept := s.freed
	s.freed = left
	defer func() { s.freed = append(kept, s.freed...) }() // the collector examines them again
	l := s.NewCollector(CollectOptions{})
	l.indexes, l.cursor = s.indexes.Load(), 1<<64-1
	for l.takeFreed(); len(l.pending) > 0; l.takeFreed() {
		if err := l.delete(ctx); err != nil {
			return err
		}
	}
	return nil
}
