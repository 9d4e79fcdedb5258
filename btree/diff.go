package btree

import (
	"bytes"
	"context"
	"iter"

	fb "github.com/ledgerd/ledger/flatbuffers"
)

// DiffEntry is a key in which two trees differ. Its slices are borrowed from nodes: they must not
// be changed, and stay valid.
type DiffEntry struct {
	// Key is the key.
	Key []byte
	// Left and Right are the entries of the key, where they exist.
	Left, Right fb.Entry
	// HasLeft and HasRight say which entries exist; at least one.
	HasLeft, HasRight bool
}

// Diff yields, in order, every key not below from (nil: every key) in which left and right differ.
// Equal subtrees are not read: the cost is proportional to the number of differences times the
// depth, for any start. The last pair holds the error, if there is one. Errors: those of the
// Sources, *base.CorruptError, that of ctx.
func Diff(ctx context.Context, left, right Tree, from []byte) iter.Seq2[DiffEntry, error] {
	return func(yield func(DiffEntry, error) bool) {
		var d differ
		if err := d.start(ctx, left, right, from); err != nil {
			yield(DiffEntry{}, err)
			return
		}
		for {
			e, ok, err := d.next(ctx)
			if err != nil {
				yield(DiffEntry{}, err)
				return
			}
			if !ok || !yield(e, nil) {
				return
			}
		}
	}
}

// The sides of a differ.
const (
	leftSide  = 0
	rightSide = 1
)

// differ walks two trees side by side. At every moment it has handled all items before the heads of
// both walkers. It opens a subtree only when the other tree certainly lacks it (I4). No key occurs
// twice, so of two different subtrees at the same position at most one is in both trees. Levels and
// bounds mostly say which one cannot be; otherwise shared searches further.
type differ struct {
	w     [2]walker
	seen  [2][MaxLevel + 1]verdict
	steps uint
}

func (d *differ) start(ctx context.Context, left, right Tree, from []byte) error {
	if left.Root == right.Root && left.Page == right.Page {
		return ctx.Err()
	}
	if err := d.w[leftSide].start(ctx, left, from); err != nil {
		return err
	}
	return d.w[rightSide].start(ctx, right, from)
}

// next returns the next difference, and whether there is one.
func (d *differ) next(ctx context.Context) (DiffEntry, bool, error) {
	for {
		if d.steps++; d.steps%checkEvery == 0 {
			if err := ctx.Err(); err != nil {
				return DiffEntry{}, false, err
			}
		}
		d.skipEqual()
		l, r := d.w[leftSide].head(), d.w[rightSide].head()
		switch {
		case l.kind == headEnd && r.kind == headEnd:
			return DiffEntry{}, false, nil
		case l.kind == headSubtree || r.kind == headSubtree:
			if e, ok, err := d.faceSubtree(ctx, &l, &r); ok || err != nil {
				return e, ok, err
			}
		case r.kind == headEnd:
			return d.only(leftSide, l.key), true, nil
		case l.kind == headEnd:
			return d.only(rightSide, r.key), true, nil
		default:
			if e, ok := d.faceEntries(&l, &r); ok {
				return e, true, nil
			}
		}
	}
}

// skipEqual skips the items that two opened nodes share. It gives the same result as the general
// case without making heads: most items of nodes that differ are equal.
func (d *differ) skipEqual() {
	w, v := &d.w[leftSide], &d.w[rightSide]
	if w.depth == 0 || v.depth == 0 {
		return
	}
	p, q := &w.path[w.depth-1], &v.path[v.depth-1]
	if p.next == q.next {
		if next, ok := p.node.NextDifference(q.node, p.next); ok {
			p.next, q.next = next, next
			return
		}
	}
	for p.next&1 == q.next&1 {
		i, j := p.next/2, q.next/2
		if p.next&1 == 0 {
			a, okA := p.node.ChildAt(i)
			b, okB := q.node.ChildAt(j)
			if okA != okB || a.Digest != b.Digest {
				return
			}
		} else if i >= p.node.Len() || j >= q.node.Len() || !p.node.EqualEntries(i, q.node, j) {
			return
		}
		p.next++
		q.next++
	}
}

// faceEntries handles two entries, and returns a difference if there is one.
func (d *differ) faceEntries(l, r *head) (DiffEntry, bool) {
	switch c := bytes.Compare(l.key, r.key); {
	case c < 0:
		return d.only(leftSide, l.key), true
	case c > 0:
		return d.only(rightSide, r.key), true
	}
	e := DiffEntry{
		Key: l.key, HasLeft: true, HasRight: true,
		Left: d.w[leftSide].entry(), Right: d.w[rightSide].entry(),
	}
	d.w[leftSide].skip()
	d.w[rightSide].skip()
	return e, !EqualValues(&e.Left, &e.Right)
}

// only returns the entry at the head of one side as a difference, and skips it.
func (d *differ) only(side int, key []byte) DiffEntry {
	w := &d.w[side]
	e := DiffEntry{Key: key, HasLeft: side == leftSide, HasRight: side == rightSide}
	if side == leftSide {
		e.Left = w.entry()
	} else {
		e.Right = w.entry()
	}
	w.skip()
	return e
}

// faceSubtree handles heads of which at least one is a subtree. It returns a difference if there is
// one.
func (d *differ) faceSubtree(ctx context.Context, l, r *head) (DiffEntry, bool, error) {
	if l.kind != r.kind {
		if l.kind == headSubtree {
			return d.faceOther(ctx, leftSide, &l.sub, r)
		}
		return d.faceOther(ctx, rightSide, &r.sub, l)
	}
	if l.sub.digest == r.sub.digest {
		d.w[leftSide].skip()
		d.w[rightSide].skip()
		return DiffEntry{}, false, nil
	}
	return DiffEntry{}, false, d.faceSubtrees(ctx, &l.sub, &r.sub)
}

// faceOther handles a subtree of one side that meets an entry of the other side, or its end.
func (d *differ) faceOther(ctx context.Context, side int, s *subtree, o *head) (DiffEntry, bool, error) {
	if o.kind == headEntry && above(s.hi, o.key) {
		// The subtree may lie wholly after the entry and follow later on the other side too.
		shared, err := d.shared(ctx, side, s)
		if err != nil {
			return DiffEntry{}, false, err
		}
		if shared {
			return d.only(1-side, o.key), true, nil
		}
	}
	return DiffEntry{}, false, d.w[side].open(ctx, s)
}

// faceSubtrees opens a subtree that is not in both trees.
func (d *differ) faceSubtrees(ctx context.Context, l, r *subtree) error {
	leftEndsLater, rightEndsLater := above(l.hi, r.hi), above(r.hi, l.hi)
	high, highSub, lowSub, highEndsLater := leftSide, l, r, leftEndsLater
	switch {
	case l.level < r.level:
		high, highSub, lowSub, highEndsLater = rightSide, r, l, rightEndsLater
	case l.level == r.level && leftEndsLater:
		// All items of left up to the end of r are in l, which has r's level and is not r.
		return d.w[rightSide].open(ctx, r)
	case l.level == r.level && rightEndsLater:
		return d.w[leftSide].open(ctx, l)
	case l.level == r.level:
		if err := d.w[leftSide].open(ctx, l); err != nil {
			return err
		}
		return d.w[rightSide].open(ctx, r)
	}
	if !highEndsLater {
		// All items of the low side up to that end are in a lower subtree.
		return d.w[high].open(ctx, highSub)
	}
	shared, err := d.shared(ctx, high, highSub)
	if err != nil {
		return err
	}
	if shared {
		return d.w[1-high].open(ctx, lowSub)
	}
	return d.w[high].open(ctx, highSub)
}

// shared reports whether the other side has the subtree s of a side after its head. It reads only
// nodes of the other side that are not in both trees, at levels above s.
func (d *differ) shared(ctx context.Context, side int, s *subtree) (bool, error) {
	v := &d.seen[side][s.level]
	if v.digest == s.digest {
		return v.shared, nil
	}
	var w walker
	d.w[1-side].copyTo(&w)
	found, err := d.find(ctx, side, s, &w)
	if err != nil {
		return false, err
	}
	*v = verdict{s.digest, found}
	return found, nil
}

// find searches for the subtree s of a side in the rest of w, a walker of the other side.
//
// A subtree c of w above the level of s that ends before the end of s's gap is not on s's side:
// there, all of c's keys would be in s. A subtree c that ends later is on s's side only if all its
// keys follow that gap, so that s is not in c; otherwise c is not on s's side and may be opened.
// Levels rise with each question, so the search ends.
func (d *differ) find(ctx context.Context, side int, s *subtree, w *walker) (bool, error) {
	for {
		h := w.head()
		switch {
		case h.kind == headEnd, h.kind == headEntry && s.hi != nil && bytes.Compare(h.key, s.hi) >= 0:
			return false, nil
		case h.kind == headSubtree && h.sub.level > s.level:
			if above(h.sub.hi, s.hi) {
				behind, err := d.shared(ctx, 1-side, &h.sub)
				if err != nil || behind {
					return false, err
				}
			}
			if err := w.open(ctx, &h.sub); err != nil {
				return false, err
			}
		case h.kind == headSubtree && h.sub.digest == s.digest:
			return true, nil
		case w.depth > 0 && w.path[w.depth-1].node.Level() <= s.level:
			w.depth-- // no item of this node is at the level
		default:
			w.skip()
		}
	}
}
