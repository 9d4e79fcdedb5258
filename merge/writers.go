package merge

import (
	"bytes"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
)

// The sides of a merge as indexes.
const (
	leftSide  = 0
	rightSide = 1
)

// wanted is a key on a side whose writer is looked for.
type wanted struct {
	key   []byte
	entry fb.Entry
	has   bool
	// any stands for whatever a commit has under the key, instead of entry and has.
	any bool
	// at is the index of the key among those that the caller asks about.
	at int
}

// is reports whether e, if has, is what the side has under the key.
func (w *wanted) is(e *fb.Entry, has bool) bool { return w.any || sameEntry(e, has, &w.entry, w.has) }

// newest returns TakeLeft or TakeRight for the side that wrote one of the keys last: what Newest is
// documented to do.
func (p *Pair) newest(ctx context.Context, keys [][]byte) (Outcome, error) {
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

// laterSide returns the side with the greater commit; nil stands for none: then it is the other
// side, or that of the greater head.
func laterSide(left, right *commit.Commit) Outcome {
	if left != nil && (right == nil || commit.Compare(left, right) > 0) {
		return TakeLeft
	}
	return TakeRight // Right is the greater head
}

// written says who wrote what a side has under a key. Both are nil where nobody did.
type written struct {
	// writer is the commit that gave the key what the side has there, newest the one by which the
	// side is measured; see LastOneWins.
	writer, newest *commit.Commit
}

// findWriters finds who wrote keys on each side by the definition of LastOneWins. The keys of a
// side ascend, and at is the index of each. It reads the commits down to the last writer, few more
// of what both sides have, and of their trees what differs near the keys; and where a clock was set
// back between the heads and their bases, all commits in between.
func (p *Pair) findWriters(ctx context.Context, keys *[2][]wanted) (found [2][]written, err error) {
	open := [2][]wanted{slices.Clone(keys[leftSide]), slices.Clone(keys[rightSide])}
	for side := range found {
		found[side] = make([]written, len(keys[side]))
	}
	w := p.walkSides()
	// A side with open keys may have commits in the queue that the other one does not have.
	for len(open[leftSide]) > 0 && w.queue.own[leftSide] > 0 || len(open[rightSide]) > 0 && w.queue.own[rightSide] > 0 {
		a, side, err := w.step(ctx)
		if err == nil && side >= 0 {
			var hits []int
			if hits, err = w.own(ctx, &a, open[side]); len(hits) > 0 {
				open[side] = without(open[side], hits, func(k *wanted) { found[side][k.at] = written{a.Commit, a.Commit} })
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

// findNewest sets newest where it is not the writer: a commit with a later time that wrote the key,
// and on which the writer is built.
func (p *Pair) findNewest(ctx context.Context, keys *[2][]wanted, found *[2][]written) error {
	w := p.walkSides()
	for w.queue.own[leftSide]+w.queue.own[rightSide] > 0 {
		a, side, err := w.step(ctx)
		if err != nil {
			return fmt.Errorf("find the newest writers of keys: %w", err)
		}
		if side < 0 {
			continue
		}
		var older []wanted // keys whose newest writer is older
		for i, f := range found[side] {
			if f.writer != nil && a.Generation < f.writer.Generation && a.Timestamp > f.writer.Timestamp && commit.Compare(a.Commit, f.newest) > 0 {
				older = append(older, wanted{key: keys[side][i].key, any: true, at: i})
			}
		}
		hits, err := w.own(ctx, &a, older)
		if err != nil {
			return fmt.Errorf("find the newest writers of keys: %w", err)
		}
		for _, h := range hits {
			f := &found[side][older[h].at]
			below, err := commit.IsAncestor(ctx, p.env.Commits, a.Commit, f.writer)
			if err != nil && !errors.Is(err, base.ErrGone) {
				return fmt.Errorf("find the newest writers of keys: %w", err)
			}
			if below {
				f.newest = a.Commit
			}
		}
	}
	return nil
}

// without calls found for the elements of keys with some indexes, which ascend, and returns the
// others.
func without(keys []wanted, hits []int, found func(k *wanted)) []wanted {
	kept, n := keys[:hits[0]], 0
	for i := hits[0]; i < len(keys); i++ {
		if n < len(hits) && hits[n] == i {
			found(&keys[i])
			n++
			continue
		}
		kept = append(kept, keys[i])
	}
	return kept
}

// sidesWalk walks the commits of both sides, the greatest generation first. So a commit leaves the
// queue after all that descend from it, and it is then known which sides have it. Timestamps have
// no part in that: a child may have a lesser one.
type sidesWalk struct {
	view  *View
	queue sidesQueue
}

func (p *Pair) walkSides() *sidesWalk {
	w := &sidesWalk{view: &p.env.View, queue: sidesQueue{held: map[commit.ID]*sided{}}}
	w.queue.push(p.Left, 1<<leftSide)
	w.queue.push(p.Right, 1<<rightSide)
	return w
}

// step returns the next commit of the queue, which must not be empty, and the side that alone has
// it, -1 if both have it.
func (w *sidesWalk) step(ctx context.Context) (a sided, side int, err error) {
	if err := ctx.Err(); err != nil {
		return sided{}, 0, err
	}
	a = w.queue.next()
	if err := w.addParents(ctx, &a); err != nil {
		return sided{}, 0, err
	}
	switch a.sides {
	case 1 << leftSide:
		return a, leftSide, nil
	case 1 << rightSide:
		return a, rightSide, nil
	}
	return a, -1, nil
}

// addParents puts the parents of a into the queue, with a's sides: those that were not given up,
// also where the others are still here, so that all devices find the same writers.
func (w *sidesWalk) addParents(ctx context.Context, a *sided) error {
	var near []commit.ID
	gaveUp := false
	if g, ok := w.view.Commits.(NearGetter); ok {
		var err error
		if near, gaveUp, err = g.Near(ctx, a.ID); err != nil {
			return fmt.Errorf("nearest ancestors of commit %s: %w", a.ID, err)
		}
	}
	for i, id := range a.Parents {
		if gaveUp && !slices.Contains(near, id) {
			a.roots[i] = btree.EmptyRoot // as below
			continue
		}
		p := w.queue.commit(id)
		if p == nil {
			var err error
			if p, err = w.view.commit(ctx, id); errors.Is(err, base.ErrGone) {
				a.roots[i] = btree.EmptyRoot // so it counts as the writer of all that it has, and no other
				continue
			}
			if err != nil {
				return err
			}
		}
		if p.Generation >= a.Generation {
			return corruptCommit(a.Commit, "a parent of no lower generation")
		}
		a.roots[i] = p.Root
		w.queue.push(p, a.sides)
	}
	return nil
}

// own returns the indexes of the keys to which a commit gave what is wanted there.
func (w *sidesWalk) own(ctx context.Context, a *sided, keys []wanted) ([]int, error) {
	roots := a.roots[:len(a.Parents)]
	if len(keys) == 0 || len(roots) == 0 || slices.Contains(roots, a.Root) {
		return nil, nil
	}
	hits, err := ownChanges(ctx, w.view, a.Root, roots, keys)
	if err != nil {
		return nil, fmt.Errorf("commit %s: %w", a.ID, err)
	}
	return hits, nil
}

// maxPassed is how many differences are passed on the way to the next key before the difference is
// begun anew there. To begin costs two paths through the tree.
const maxPassed = 16

// ownChanges returns the indexes of the keys, which ascend, that have in the tree root what the
// side has, and in none of the trees of parents. The cost follows the number of keys or that of
// differences to the first parent, whichever is less, times the depth.
func ownChanges(ctx context.Context, v *View, root object.Digest, parents []object.Digest, keys []wanted) ([]int, error) {
	if len(keys) <= fewKeys {
		return ownKeys(ctx, v, root, parents, keys)
	}
	var hits []int
	tree, first := v.tree(root), v.tree(parents[0])
	for next := 0; next < len(keys); {
		passed, ended := 0, true
		for d, err := range btree.Diff(ctx, first, tree, keys[next].key) {
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
				own, err := isOwn(ctx, v, &keys[next], &d, parents[1:])
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

// fewKeys are looked up one by one. To begin a difference costs more than two look-ups, and much
// more where two trees have little in common.
const fewKeys = 4

// ownKeys is ownChanges by looking up each key.
func ownKeys(ctx context.Context, v *View, root object.Digest, parents []object.Digest, keys []wanted) (hits []int, err error) {
	for i := range keys {
		w := &keys[i]
		e, has, err := v.tree(root).Get(ctx, w.key)
		if err != nil {
			return nil, err
		}
		if !w.is(&e, has) {
			continue
		}
		own, err := noneHas(ctx, v, parents, w.key, &e, has)
		if err != nil {
			return nil, err
		}
		if own {
			hits = append(hits, i)
		}
	}
	return hits, nil
}

// isOwn reports whether a difference to the first parent gives a key what the side has, and no
// other parent has that.
func isOwn(ctx context.Context, v *View, w *wanted, d *btree.DiffEntry, others []object.Digest) (bool, error) {
	if !w.is(&d.Right, d.HasRight) {
		return false, nil
	}
	return noneHas(ctx, v, others, w.key, &d.Right, d.HasRight)
}

// noneHas reports whether none of some trees has e, if has, under a key.
func noneHas(ctx context.Context, v *View, roots []object.Digest, key []byte, e *fb.Entry, has bool) (bool, error) {
	for _, root := range roots {
		o, hasToo, err := v.tree(root).Get(ctx, key)
		if err != nil || sameEntry(e, has, &o, hasToo) {
			return false, err
		}
	}
	return true, nil
}

// commit returns the commit with the given id, the first one included. The error matches
// base.ErrGone when retention has given it up.
func (v *View) commit(ctx context.Context, id commit.ID) (*commit.Commit, error) {
	if id == commit.First().ID {
		return commit.First(), nil
	}
	if v.Lost != nil && v.Lost(id) {
		return nil, fmt.Errorf("read the tree of commit %s: %w", id, base.ErrGone)
	}
	c, err := v.Commits.Commit(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("read commit %s: %w", id, err)
	}
	if c.ID != id {
		return nil, corruptCommit(c, "stands where commit "+id.String()+" belongs")
	}
	return c, nil
}

// sided is a commit in a sidesQueue.
type sided struct {
	*commit.Commit
	sides uint8            // bits 1<<leftSide and 1<<rightSide
	roots [2]object.Digest // of the parents, in their order
}

// sidesQueue gives commits in the order of commit.CompareGeneration, the greatest first: a commit
// comes out after its descendants, and in only once.
type sidesQueue struct {
	heap []*sided
	held map[commit.ID]*sided
	own  [2]int // how many of the commits only this side has, as far as is known
}

// push puts a commit of the given sides into the queue, or adds the sides to it.
func (q *sidesQueue) push(c *commit.Commit, sides uint8) {
	a, ok := q.held[c.ID]
	if !ok {
		a = &sided{Commit: c}
		q.held[c.ID] = a
		heap.Push(q, a)
	}
	q.count(a, -1)
	a.sides |= sides
	q.count(a, 1)
}

func (q *sidesQueue) count(a *sided, n int) {
	switch a.sides {
	case 1 << leftSide:
		q.own[leftSide] += n
	case 1 << rightSide:
		q.own[rightSide] += n
	}
}

func (q *sidesQueue) next() sided {
	a := heap.Pop(q).(*sided)
	delete(q.held, a.ID)
	q.count(a, -1)
	return *a
}

// commit returns the commit with the given id if it is in the queue.
func (q *sidesQueue) commit(id commit.ID) *commit.Commit {
	if a, ok := q.held[id]; ok {
		return a.Commit
	}
	return nil
}

// Len is for package heap.
func (q *sidesQueue) Len() int { return len(q.heap) }

// Less is for package heap.
func (q *sidesQueue) Less(i, j int) bool {
	return commit.CompareGeneration(q.heap[i].Commit, q.heap[j].Commit) > 0
}

// Swap is for package heap.
func (q *sidesQueue) Swap(i, j int) { q.heap[i], q.heap[j] = q.heap[j], q.heap[i] }

// Push is for package heap.
func (q *sidesQueue) Push(x any) { q.heap = append(q.heap, x.(*sided)) }

// Pop is for package heap.
func (q *sidesQueue) Pop() any {
	n := len(q.heap) - 1
	a := q.heap[n]
	q.heap[n] = nil
	q.heap = q.heap[:n]
	return a
}
