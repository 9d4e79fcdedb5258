package merge

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"

	"github.com/ledgerd/ledger/btree"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/object"
)

// batchEntries is the number of entries of a batch in memory.
const batchEntries = 4096

// batch collects entries with inline values in any order; of several entries of a key the last
// counts. What does not fit into memory is a tree in a scratch store.
type batch struct {
	page    [16]byte
	scratch func() Sink
	root    object.Digest // in the scratch store
	pending []fb.Entry
}

// add adds an entry. It copies key and retains value.
func (b *batch) add(ctx context.Context, key, value []byte) error {
	if len(b.pending) == batchEntries {
		if err := b.spill(ctx); err != nil {
			return err
		}
	}
	b.pending = append(b.pending, fb.Entry{Key: bytes.Clone(key), Inline: true, Value: value, Size: uint64(len(value))})
	return nil
}

// settle sorts the pending entries and keeps the last one of each key.
func (b *batch) settle() {
	slices.SortStableFunc(b.pending, func(a, b fb.Entry) int { return bytes.Compare(a.Key, b.Key) })
	kept := b.pending[:0]
	for i, e := range b.pending {
		if i+1 == len(b.pending) || !bytes.Equal(e.Key, b.pending[i+1].Key) {
			kept = append(kept, e)
		}
	}
	b.pending = kept
}

// spill moves the pending entries to the scratch store.
func (b *batch) spill(ctx context.Context) error {
	b.settle()
	root, err := b.tree().Apply(ctx, b.scratch(), func(yield func(btree.Change, error) bool) {
		for _, e := range b.pending {
			if !yield(btree.Change{Entry: e}, nil) {
				return
			}
		}
	})
	b.root, b.pending = root, b.pending[:0]
	return err
}

func (b *batch) tree() btree.Tree {
	return btree.Tree{Page: b.page, Source: b.scratch(), Root: b.root}
}

// entries yields all entries in order of keys.
func (b *batch) entries(ctx context.Context) iter.Seq2[fb.Entry, error] {
	return func(yield func(fb.Entry, error) bool) {
		if b.root == btree.EmptyRoot {
			b.settle()
			for _, e := range b.pending {
				if !yield(e, nil) {
					return
				}
			}
			return
		}
		if err := b.spill(ctx); err != nil {
			yield(fb.Entry{}, err)
			return
		}
		c := b.tree().Cursor()
		for ok, err := c.First(ctx); ok || err != nil; ok, err = c.Next(ctx) {
			if !yield(c.Entry(), err) || err != nil {
				return
			}
		}
	}
}

// recorder makes the tree of the decisions of a merge. The sink gets only the nodes of the finished
// tree.
type recorder struct {
	batch
	sink Sink
}

func newRecorder(s *pass) *recorder {
	return &recorder{batch{page: s.env.Page, scratch: s.scratch, root: btree.EmptyRoot}, s.env.Sink}
}

// record records the decision about a key. It copies what it keeps.
func (r *recorder) record(ctx context.Context, c *Conflict) error {
	d := Decision{Key: c.Key, Outcome: c.Outcome, Rule: c.Rule, LeftWriter: c.LeftWriter, RightWriter: c.RightWriter}
	value, err := d.Encode()
	if err == nil {
		err = r.add(ctx, c.Key, value)
	}
	if err != nil {
		return fmt.Errorf("record the decision about key %s: %w", keyText(c.Key), err)
	}
	return nil
}

// finish puts the tree into the sink and returns its root and the number of decisions; zeros when
// there is none.
func (r *recorder) finish(ctx context.Context) (root object.Digest, count int, err error) {
	root, err = btree.Build(ctx, r.page, r.sink, func(yield func(fb.Entry, error) bool) {
		for e, err := range r.entries(ctx) {
			count++
			if !yield(e, err) {
				return
			}
		}
	})
	switch {
	case err != nil:
		return object.Digest{}, 0, fmt.Errorf("record decisions: %w", err)
	case count == 0:
		return object.Digest{}, 0, nil
	}
	return root, count, nil
}
