package sim

import (
	"context"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/split"
	"github.com/ledgerd/ledger/storage"
)

// deliver copies heads of a peer with their content, in the way of sync. Commits are copied parents
// first, each as its difference to a parent, from which the tree is rebuilt, with new pieces and
// the explanation. It returns the number of new commits.
func (d *device) deliver(ctx context.Context, from *device, heads []*node, apart bool) (int, error) {
	var lacks set
	for _, h := range heads {
		lacks = lacks.or(h.above)
	}
	lacks = lacks.minus(d.has)
	var j *storage.Journal
	var cs []*commit.Commit
	var ns []*node
	submit := func() error {
		p, err := d.s.Submit(ctx, j, cs...)
		if err == nil {
			err = p.Wait()
		}
		j, cs = nil, nil
		return err
	}
	for i := range lacks.all() {
		n := d.w.graph.nodes[i]
		if j == nil {
			j = d.s.NewJournal()
			defer j.Rollback()
		}
		if err := d.copyCommit(ctx, from, j, n); err != nil {
			return 0, fmt.Errorf("deliver %s: %w", n.c.ID.Short(), err)
		}
		cs, ns = append(cs, n.c), append(ns, n)
		if apart {
			if err := submit(); err != nil {
				return 0, err
			}
		}
	}
	if len(cs) > 0 {
		if err := submit(); err != nil {
			return 0, err
		}
	}
	for _, n := range ns {
		d.hold(n)
		d.told[n] = from.told[n]
	}
	return len(ns), nil
}

// copyCommit puts the content that n adds to its parents into j.
func (d *device) copyCommit(ctx context.Context, from *device, j *storage.Journal, n *node) error {
	base := n.parents[0].c.Root
	root, err := d.tree(j, base).Apply(ctx, j, func(yield func(btree.Change, error) bool) {
		for e, err := range btree.Diff(ctx, d.tree(from.s, base), d.tree(from.s, n.c.Root), nil) {
			c := btree.Change{Entry: e.Right, Delete: !e.HasRight}
			if c.Entry.Key = e.Key; err == nil && e.HasRight && !e.Right.Inline {
				err = copyValue(ctx, from, j, &e.Right)
			}
			if !yield(c, err) || err != nil {
				return
			}
		}
	})
	if err == nil && root != n.c.Root {
		err = fmt.Errorf("its differences give root %s, not %s", root.Short(), n.c.Root.Short())
	}
	if err != nil || !from.told[n] {
		return err
	}
	told, ok, err := from.s.Explanation(ctx, n.c.ID)
	if err != nil || !ok {
		return fmt.Errorf("read explanation, %t: %w", ok, err)
	}
	copied, err := btree.Build(ctx, d.w.page, j, func(yield func(fb.Entry, error) bool) {
		c := d.tree(from.s, told).Cursor()
		ok, err := c.First(ctx)
		for ; ok && err == nil; ok, err = c.Next(ctx) {
			e := c.Entry()
			if !e.Inline {
				err = copyValue(ctx, from, j, &e)
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
		if err != nil {
			yield(fb.Entry{}, err)
		}
	})
	if err == nil && copied != told {
		err = fmt.Errorf("its explanation has root %s, not %s", copied.Short(), told.Short())
	}
	j.Explain(n.c.ID, told)
	return err
}

// copyValue copies the pieces of a value. The pieces listed in an index piece precede it.
func copyValue(ctx context.Context, from *device, j *storage.Journal, e *fb.Entry) error {
	var pieces []object.Digest
	err := split.Walk(ctx, from.s, e.Digest, func(d object.Digest, _ uint64) error {
		pieces = append(pieces, d)
		return nil
	})
	for _, p := range slices.Backward(pieces) {
		if err != nil {
			return err
		}
		var content []byte
		if content, err = from.s.Piece(ctx, p); err == nil {
			err = j.PutPiece(ctx, p, content)
		}
	}
	return err
}
