package merge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
)

// The sides of a merge as indexes.
const (
	leftSide  = 0
	rightSide = 1
)

// wanted is a key on a side whose writer is searched.
type wanted struct {
	key   []byte
	entry fb.Entry
	has   bool
	// any matches any content of a commit under the key, instead of entry and has.
	any bool
	// at is the index of the key among the caller's keys.
	at int
}

// is reports whether e, if has, equals the side's entry of the key.
func (w *wanted) is(e *fb.Entry, has bool) bool { return w.any || SameEntry(e, has, &w.entry, w.has) }

// Newest returns TakeLeft or TakeRight for the side that wrote one of the keys last, by the rule of
// LastOneWins. keys ascend.
func (p *Pair) Newest(ctx context.Context, keys [][]byte) (Outcome, error) {
	var all [2][]wanted
	for i, k := range keys {
		if i > 0 && bytes.Compare(keys[i-1], k) >= 0 {
			return Undecided, fmt.Errorf("find who wrote last: keys do not ascend: %w", base.ErrInvalid)
		}
		for side, t := range []btree.Tree{leftSide: p.LeftTree, rightSide: p.RightTree} {
			e, has, err := t.Get(ctx, k)
			if err != nil {
				return Undecided, fmt.Errorf("find who wrote last: %w", err)
			}
			all[side] = append(all[side], wanted{key: k, entry: e, has: has, at: i})
		}
	}
	writers, err := p.findWriters(ctx, &all)
	if err != nil {
		return Undecided, err
	}
	var last [2]*commit.Commit
	for side := range writers {
		for _, w := range writers[side] {
			if w.newest != nil && (last[side] == nil || commit.Compare(w.newest, last[side]) > 0) {
				last[side] = w.newest
			}
		}
	}
	return laterSide(last[leftSide], last[rightSide]), nil
}

// laterSide returns the side with the greater commit. If one commit is nil it is the other side; if
// both are, the side of the greater head.
func laterSide(left, right *commit.Commit) Outcome {
	if left != nil && (right == nil || commit.Compare(left, right) > 0) {
		return TakeLeft
	}
	return TakeRight // Right is the greater head
}

// written is the writer of a side's entry of a key. Both fields are nil if there is none.
type written struct {
	// writer is the commit that gave the key its entry on the side, newest the commit by which the
	// side is compared; see LastOneWins.
	writer, newest *commit.Commit
}

// findWriters finds the writers of keys on each side as defined by LastOneWins. The keys of a side
// ascend, and at is the index of each. It reads the commits down to the last writer, few more
// commits that both sides have, and of their trees what differs near the keys. Where a clock was
// set back between the heads and their bases, it reads all commits in between.
func (p *Pair) findWriters(ctx context.Context, keys *[2][]wanted) (found [2][]written, err error) {
	open := [2][]wanted{slices.Clone(keys[leftSide]), slices.Clone(keys[rightSide])}
	for side := range found {
		found[side] = make([]written, len(keys[side]))
	}
	w := walkSides(p.env.Commits, p.Left, p.Right)
	// A side with open keys may have commits in the queue that the other side lacks.
	for len(open[leftSide]) > 0 && w.count[ofLeft] > 0 || len(open[rightSide]) > 0 && w.count[ofRight] > 0 {
		c, parents, side, err := p.step(ctx, w)
		if err == nil && side >= 0 {
			var hits []int
			if hits, err = p.own(ctx, c, parents, open[side]); len(hits) > 0 {
				for _, h := range hits {
					found[side][open[side][h].at] = written{c, c}
				}
				open[side] = slices.DeleteFunc(open[side], func(k wanted) bool { return found[side][k.at].writer != nil })
			}
		}
		if err != nil {
			return found, fmt.Errorf("find the writers of keys: %w", err)
		}
	}
	if p.clockBack {
		err = p.findNewest(ctx, keys, &found)
	}
	return found, err
}

// findNewest sets newest where it differs from the writer: to a commit with a later time that wrote
// the key and from which the writer descends.
func (p *Pair) findNewest(ctx context.Context, keys *[2][]wanted, found *[2][]written) error {
	w := walkSides(p.env.Commits, p.Left, p.Right)
	for w.count[ofLeft]+w.count[ofRight] > 0 {
		if err := p.newerIn(ctx, w, keys, found); err != nil {
			return fmt.Errorf("find the newest writers of keys: %w", err)
		}
	}
	return nil
}

// newerIn updates newest from the next commit of a walk.
func (p *Pair) newerIn(ctx context.Context, w *sidesWalk, keys *[2][]wanted, found *[2][]written) error {
	c, parents, side, err := p.step(ctx, w)
	if err != nil || side < 0 {
		return err
	}
	var older []wanted // keys whose newest writer is older
	for i, f := range found[side] {
		if f.writer != nil && c.Generation < f.writer.Generation && c.Timestamp > f.writer.Timestamp && commit.Compare(c, f.newest) > 0 {
			older = append(older, wanted{key: keys[side][i].key, any: true, at: i})
		}
	}
	hits, err := p.own(ctx, c, parents, older)
	if err != nil {
		return err
	}
	for _, h := range hits {
		f := &found[side][older[h].at]
		below, err := commit.IsAncestor(ctx, p.env.Commits, c, f.writer)
		if err != nil && !errors.Is(err, base.ErrGone) {
			return err
		}
		if below {
			f.newest = c
		}
	}
	return nil
}

// step returns the next commit of a walk, which must not be at its end, the trees of its parents,
// and the side that alone has it, -1 if both have it. It skips parents that were given up, even if
// this device still has them, so that all devices find the same writers. Such parents count as
// empty: their child counts as the writer of everything that they had.
func (p *Pair) step(ctx context.Context, w *sidesWalk) (c *commit.Commit, trees []btree.Tree, side int, err error) {
	if err := ctx.Err(); err != nil {
		return nil, nil, 0, err
	}
	c, m := w.next()
	ids, _, err := near(ctx, w.getter, c)
	if err != nil {
		return nil, nil, 0, err
	}
	for _, id := range c.Parents {
		tree := btree.Tree{Root: btree.EmptyRoot}
		if slices.Contains(ids, id) && (p.env.Lost == nil || !p.env.Lost(id)) {
			parent, err := w.queue.Find(ctx, w.getter, id, c)
			if err == nil {
				tree = p.env.Tree(parent)
				w.mark(parent, m)
			} else if !errors.Is(err, base.ErrGone) {
				return nil, nil, 0, err
			}
		}
		trees = append(trees, tree)
	}
	switch m {
	case ofLeft:
		return c, trees, leftSide, nil
	case ofRight:
		return c, trees, rightSide, nil
	}
	return c, trees, -1, nil
}

// own returns the indexes of the keys to which a commit gave the wanted entry.
func (p *Pair) own(ctx context.Context, c *commit.Commit, parents []btree.Tree, keys []wanted) ([]int, error) {
	if len(keys) == 0 || len(parents) == 0 {
		return nil, nil
	}
	hits, err := ownChanges(ctx, p.env.Tree(c), parents, keys)
	if err != nil {
		return nil, fmt.Errorf("commit %s: %w", c.ID, err)
	}
	return hits, nil
}

// maxPassed is the number of differences skipped on the way to the next key before the difference
// is restarted there. A restart costs two paths through the tree.
const maxPassed = 16

// ownChanges returns the indexes of the keys, which ascend, that have the side's entry in tree and
// in none of the trees of parents. The cost is proportional to the number of keys or of differences
// to the first parent, whichever is less, times the depth.
func ownChanges(ctx context.Context, tree btree.Tree, parents []btree.Tree, keys []wanted) ([]int, error) {
	if slices.ContainsFunc(parents, func(p btree.Tree) bool { return p.Root == tree.Root }) {
		return nil, nil
	}
	if len(keys) <= fewKeys {
		return ownKeys(ctx, tree, parents, keys)
	}
	var hits []int
	for next := 0; next < len(keys); {
		passed, ended := 0, true
		for d, err := range btree.Diff(ctx, parents[0], tree, keys[next].key) {
			if err != nil {
				return nil, err
			}
			n, same := slices.BinarySearchFunc(keys[next:], d.Key, func(w wanted, k []byte) int { return bytes.Compare(w.key, k) })
			if n > 0 {
				passed = 0
			}
			if next += n; next == len(keys) {
				break
			}
			if same {
				own, err := isOwn(ctx, &keys[next], &d, parents[1:])
				if err != nil {
					return nil, err
				}
				if own {
					hits = append(hits, next)
				}
				if next++; next == len(keys) {
					break
				}
				passed = 0
				continue
			}
			if passed++; passed > maxPassed {
				ended = false
				break
			}
		}
		if ended {
			break
		}
	}
	return hits, nil
}

// fewKeys are looked up one by one. Starting a difference costs more than two look-ups, and much
// more where two trees have little in common.
const fewKeys = 4

// ownKeys is ownChanges by single look-ups.
func ownKeys(ctx context.Context, tree btree.Tree, parents []btree.Tree, keys []wanted) (hits []int, err error) {
	for i := range keys {
		w := &keys[i]
		e, has, err := tree.Get(ctx, w.key)
		if err != nil {
			return nil, err
		}
		if !w.is(&e, has) {
			continue
		}
		own, err := noneHas(ctx, parents, w.key, &e, has)
		if err != nil {
			return nil, err
		}
		if own {
			hits = append(hits, i)
		}
	}
	return hits, nil
}

// isOwn reports whether a difference to the first parent gives a key the side's entry, and no other
// parent has that entry.
func isOwn(ctx context.Context, w *wanted, d *btree.DiffEntry, others []btree.Tree) (bool, error) {
	if !w.is(&d.Right, d.HasRight) {
		return false, nil
	}
	return noneHas(ctx, others, w.key, &d.Right, d.HasRight)
}

// noneHas reports whether none of some trees has e, if has, under a key.
func noneHas(ctx context.Context, trees []btree.Tree, key []byte, e *fb.Entry, has bool) (bool, error) {
	for _, t := range trees {
		o, hasToo, err := t.Get(ctx, key)
		if err != nil || SameEntry(e, has, &o, hasToo) {
			return false, err
		}
	}
	return true, nil
}

// commit returns the commit with the given id, the first one included. The error matches
// base.ErrGone when retention has given it up.
func (v *View) commit(ctx context.Context, id commit.ID) (*commit.Commit, error) {
	return v.parent(ctx, id, nil)
}

// parent is commit for a parent of child, whose generation must be greater.
func (v *View) parent(ctx context.Context, id commit.ID, child *commit.Commit) (*commit.Commit, error) {
	if v.Lost != nil && v.Lost(id) {
		return nil, fmt.Errorf("read the tree of commit %s: %w", id, base.ErrGone)
	}
	return commit.Find(ctx, v.Commits, id, child)
}
