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

// recordBatch is how many decisions are held in memory.
const recordBatch = 4096

// recorder makes the tree of the decisions of a merge. Decisions come in any order; of those about
// one key the last counts. What does not fit into one batch is collected in a scratch place, so
// that the sink gets the nodes of the finished tree alone.
type recorder struct {
	pass    *pass
	pending []decided
	root    object.Digest // in the scratch place
}

// decided is a decision that has been encoded.
type decided struct{ key, value []byte }

func newRecorder(s *pass) *recorder { return &recorder{pass: s, root: btree.EmptyRoot} }

// add records what was decided about a key. It copies what it keeps.
func (r *recorder) add(ctx context.Context, c *Conflict) error {
	d := Decision{Key: c.Key, Outcome: c.Outcome, Rule: c.Rule, LeftWriter: c.LeftWriter, RightWriter: c.RightWriter}
	value, err := d.Encode()
	if err != nil {
		return fmt.Errorf("record the decision about key %s: %w", keyText(c.Key), err)
	}
	if len(r.pending) == recordBatch {
		if err := r.spill(ctx); err != nil {
			return err
		}
	}
	r.pending = append(r.pending, decided{slices.Clone(c.Key), value})
	return nil
}

// settle sorts what is pending and leaves the last decision about each key.
func (r *recorder) settle() {
	slices.SortStableFunc(r.pending, func(a, b decided) int { return bytes.Compare(a.key, b.key) })
	kept := r.pending[:0]
	for i, d := range r.pending {
		if i+1 == len(r.pending) || !bytes.Equal(d.key, r.pending[i+1].key) {
			kept = append(kept, d)
		}
	}
	r.pending = kept
}

// spill moves what is pending to the scratch place.
func (r *recorder) spill(ctx context.Context) error {
	r.settle()
	s := r.pass.scratch()
	root, err := btree.Tree{Page: r.pass.env.Page, Source: s, Root: r.root}.Apply(ctx, s, func(yield func(btree.Change, error) bool) {
		for i := range r.pending {
			if !yield(btree.Change{Entry: r.pending[i].entry()}, nil) {
				return
			}
		}
	})
	if err != nil {
		return fmt.Errorf("record decisions: %w", err)
	}
	r.root, r.pending = root, r.pending[:0]
	return nil
}

func (d *decided) entry() fb.Entry {
	e := inlineEntry(d.value)
	e.Key = d.key
	return e
}

// finish puts the tree into the sink and returns its root and the number of decisions; zeros when
// there is none.
func (r *recorder) finish(ctx context.Context) (root object.Digest, count int, err error) {
	if r.root != btree.EmptyRoot && len(r.pending) > 0 {
		if err := r.spill(ctx); err != nil {
			return object.Digest{}, 0, err
		}
	}
	r.settle()
	root, err = btree.Build(ctx, r.pass.env.Page, r.pass.env.Sink, func(yield func(fb.Entry, error) bool) {
		for e, err := range r.entries(ctx) {
			count++
			if !yield(e, err) {
				return
			}
		}
	})
	if err != nil {
		return object.Digest{}, 0, fmt.Errorf("record decisions: %w", err)
	}
	if count == 0 {
		return object.Digest{}, 0, nil
	}
	return root, count, nil
}

// entries yields all decisions: what is pending, or if something was moved, all that was.
func (r *recorder) entries(ctx context.Context) iter.Seq2[fb.Entry, error] {
	return func(yield func(fb.Entry, error) bool) {
		for i := range r.pending {
			if !yield(r.pending[i].entry(), nil) {
				return
			}
		}
		if r.root == btree.EmptyRoot {
			return
		}
		c := btree.Tree{Page: r.pass.env.Page, Source: r.pass.scratch(), Root: r.root}.Cursor()
		for ok, err := c.First(ctx); ok || err != nil; ok, err = c.Next(ctx) {
			if !yield(c.Entry(), err) || err != nil {
				return
			}
		}
	}
}
