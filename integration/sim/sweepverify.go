package sim

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// Commit implements commit.Getter.
func (g *graph) Commit(_ context.Context, id commit.ID) (*commit.Commit, error) {
	if n := g.byID[id]; n != nil {
		return n.c, nil
	}
	return nil, fmt.Errorf("commit %s: %w", id.Short(), base.ErrNotFound)
}

// verifySwept ends the unfinished work of all processes and collects their garbage. All kept data
// must be readable, and nothing else may exist (S12).
func (w *World) verifySwept(ctx context.Context) error {
	for _, d := range w.devices {
		d.clearShop()
		if err := d.sweptBeside(); err != nil {
			return err
		}
		c := d.s.NewCollector(storage.CollectOptions{})
		for c.Stats().Cycles < 2 {
			if _, err := c.Step(ctx); err != nil {
				return fmt.Errorf("S12: device %d: %w", d.index, err)
			}
		}
		w.swept.Deleted += c.Stats().Pieces + c.Stats().Nodes
		unplaced, err := d.verifySwept(ctx)
		if err == nil {
			err = d.readUnplaced(ctx, unplaced)
		}
		if err == nil {
			err = d.readOld(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readUnplaced reads pieces in the bucket whose places the page has not recorded.
func (d *device) readUnplaced(ctx context.Context, pieces []object.Digest) error {
	for _, p := range pieces {
		if _, err := d.s.Piece(ctx, p); err != nil && d.w.cloud.epoch == 0 {
			return fmt.Errorf("S12: device %d: piece %s, which is neither held nor known to be in the bucket: %w", d.index, p.Short(), err)
		}
	}
	return nil
}

// readOld reads the whole of the oldest commits whose trees are not stored here. Data that only
// they need must not have been collected, as far as the bucket has it.
func (d *device) readOld(ctx context.Context) error {
	for left, i := 2, 0; d.link != nil && !d.w.lossy() && left > 0 && i < len(d.received); i++ {
		n := d.received[i]
		if gone, err := d.mayLack(ctx, n); gone || err != nil || d.w.cloud.epoch > 0 {
			if err != nil {
				return err
			}
			continue
		}
		if held, err := d.s.TreeHeld(ctx, n.c); held || err != nil {
			if err != nil {
				return err
			}
			continue
		}
		err := d.link.page.BuildTree(ctx, n.c.ID)
		if errors.Is(err, base.ErrGone) && (d.outlived(n) || d.w.mayRenew()) {
			continue
		}
		if err != nil {
			return fmt.Errorf("S12: device %d: %w", d.index, err)
		}
		left--
		err = d.walkValues(ctx, n.c.Root, func(e *fb.Entry) error {
			got, err := d.readValue(ctx, e)
			if errors.Is(err, base.ErrGone) && (d.outlived(n) || d.w.mayRenew()) {
				return nil
			}
			if err == nil && got != n.value(string(e.Key)) {
				err = errors.New("another value than the model's")
			}
			if err != nil {
				err = fmt.Errorf("value of %s in commit %s: %w", e.Key, n.c.ID.Short(), err)
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("S12: device %d: %w", d.index, err)
		}
	}
	return nil
}

// outlived reports whether a device has given up a commit under the retention of the bucket, having
// found neither a use of it nor a tag. A device that uses or has tagged the commit since then still
// has it, and its checkpoints name it to new devices. Its tree and values are not promised: the
// entries that contained them may be deleted.
func (d *device) outlived(n *node) bool { return d.w.retained && d.w.pruned.has(n.index) }

// verifySwept returns the pieces that it could not find: see readUnplaced.
func (d *device) verifySwept(ctx context.Context) (unplaced []object.Digest, err error) {
	r := reach{d: d, all: map[object.Digest]bool{}, left: map[object.Digest]bool{}}
	for _, n := range d.received {
		if gone, err := d.mayLack(ctx, n); gone {
			continue
		} else if err != nil {
			return nil, err
		}
		if err := r.commit(ctx, n); err != nil {
			return nil, err
		}
	}
	rows := map[object.Digest]string{}
	for row, err := range d.s.Rows(ctx, "objects") {
		if err != nil {
			return nil, err
		}
		p, err := digestOfRow(row.Key)
		if err != nil {
			return nil, err
		}
		rows[p] = row.Value
	}
	for p, value := range rows {
		st, err := d.s.PieceState(p)
		if err != nil {
			return nil, err
		}
		known := r.all[p] || r.left[p] || st.Synced && !st.Held // the place of garbage stays
		if !known && !strings.Contains(value, "as a base") {
			return nil, fmt.Errorf("S12: device %d has garbage: piece %s: %s", d.index, p, value)
		}
	}
	for row, err := range d.s.Rows(ctx, "transient/objects") {
		return nil, fmt.Errorf("S12: device %d has a transient piece: %s, %w", d.index, row.Key, err)
	}
	return r.unplaced, nil
}

// commit traverses all references of a commit.
func (r *reach) commit(ctx context.Context, n *node) error {
	d := r.d
	told, ok, err := d.s.Explanation(ctx, n.c.ID)
	if err == nil && ok {
		err = r.tree(ctx, told)
	}
	if err != nil {
		return fmt.Errorf("S12: device %d: explanation of %s: %w", d.index, n.c.ID.Short(), err)
	}
	held, err := d.s.TreeHeld(ctx, n.c)
	switch {
	case err != nil:
		return fmt.Errorf("S12: device %d: %w", d.index, err)
	case !held:
		r.all[n.c.Root] = true // its root has a row, since the commit refers to it
		return r.remains(ctx, n.c.Root)
	}
	was := r.any
	defer func() { r.any = was }()
	r.any = was || d.outlived(n) // such as lazy values that were never here
	if err := d.readHeld(ctx, n, r.any); err != nil {
		return err
	}
	return r.tree(ctx, n.c.Root)
}

// remains traverses what is left of a tree that is not here: the log may still have nodes of a
// commit that came back as history, and an index that is rebuilt from the log holds them.
func (r *reach) remains(ctx context.Context, d object.Digest) error {
	if r.left[d] || d == btree.EmptyRoot {
		return nil
	}
	r.left[d] = true
	st, err := r.d.s.PieceState(d)
	if err != nil || !st.Held {
		return err
	}
	n, err := r.d.s.Node(ctx, d)
	if err != nil {
		return nil // a part of it is not here
	}
	for i := range n.Len() {
		if e := n.Entry(i); !e.Inline {
			r.left[e.Digest] = true
		}
	}
	for i := range n.NumChildren() {
		if err := r.remains(ctx, n.Child(i).Digest); err != nil {
			return err
		}
	}
	return nil
}

func digestOfRow(key string) (d object.Digest, err error) {
	_, digits, _ := strings.Cut(key, "/")
	b, err := hex.DecodeString(digits)
	if err == nil && copy(d[:], b) != len(d) {
		err = fmt.Errorf("row %s has no digest", key)
	}
	return d, err
}
