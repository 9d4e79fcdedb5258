package merge

import (
	"bytes"
	"cmp"
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

// newest returns TakeLeft or TakeRight for the side that wrote one of the keys last: what Newest is documented to do.
func (p *Pair) newest(ctx context.Context, keys [][]byte) (Outcome, error) {
	var open [2][]wanted
	for i, k := range keys {
		if i > 0 && bytes.Compare(keys[i-1], k) >= 0 {
			return Undecided, fmt.Errorf("find who wrote last: keys do not ascend: %w", base.ErrInvalid)
		}
		for side, t := range []btree.Tree{leftSide: p.LeftTree, rightSide: p.RightTree} {
			e, has, err := t.Get(ctx, k)
			if err != nil {
				return Undecided, fmt.Errorf("find who wrote last: %w", err)
			}
			open[side] = append(open[side], wanted{key: k, entry: e, has: has, at: i})
		}
	}
	outcome := TakeRight // the greater head
	err := p.findWriters(ctx, &open, func(side int, _ *wanted, _ *commit.Commit) bool {
		if side == leftSide {
			outcome = TakeLeft
		}
		return false
	})
	return outcome, err
}

// findWriters finds the writers of keys on each side by the definition of LastOneWins, and calls found for each,
// the newest commit first. It consumes open, whose keys ascend on each side, and ends when there is no key left, when found returns
// false, or when no commit is left that only one side has. It reads the commits down to the last writer, few more of what both sides
// have, and of their trees what differs near the keys.
func (p *Pair) findWriters(ctx context.Context, open *[2][]wanted, found func(side int, w *wanted, c *commit.Commit) bool) error {
	s := writerSearch{view: &p.env.View, open: open, found: found, queue: ageQueue{held: map[commit.ID]*aged{}}}
	s.queue.push(p.Left, 1<<leftSide)
	s.queue.push(p.Right, 1<<rightSide)
	for !s.over && s.worthwhile() {
		if err := s.step(ctx); err != nil {
			return fmt.Errorf("find the writers of keys: %w", err)
		}
	}
	return nil
}

// writerSearch walks the commits of both sides, the newest first. A commit leaves the queue after all that descend
// from it, so that it is then known which sides have it.
type writerSearch struct {
	view  *View
	open  *[2][]wanted
	found func(side int, w *wanted, c *commit.Commit) bool
	queue ageQueue
	own   []aged // of one timestamp, each of one side
	over  bool
}

// worthwhile reports whether a side with open keys has commits in the queue that the other side may not have.
func (s *writerSearch) worthwhile() bool {
	return len(s.open[leftSide]) > 0 && s.queue.own[leftSide] > 0 || len(s.open[rightSide]) > 0 && s.queue.own[rightSide] > 0
}

// step deals with the commits of the greatest timestamp in the queue. They are more than one where a merge has the timestamp of
// its parent, whose id may be the greater one.
func (s *writerSearch) step(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.own = s.own[:0]
	for at := s.queue.first().Timestamp; s.queue.Len() > 0 && s.queue.first().Timestamp == at; {
		a := s.queue.next()
		if err := s.addParents(ctx, &a); err != nil {
			return err
		}
		if a.sides != bothSides {
			s.own = append(s.own, a)
		}
	}
	slices.SortFunc(s.own, func(a, b aged) int { return b.ID.Compare(a.ID) })
	for i := range s.own {
		a := &s.own[i]
		side := leftSide
		if a.sides == 1<<rightSide {
			side = rightSide
		}
		if err := s.match(ctx, side, a); err != nil {
			return fmt.Errorf("commit %s: %w", a.ID, err)
		}
		if s.over {
			return nil
		}
	}
	return nil
}

// addParents puts the parents of a into the queue, with a's sides.
func (s *writerSearch) addParents(ctx context.Context, a *aged) error {
	for i, id := range a.Parents {
		p := s.queue.commit(id)
		if p == nil {
			var err error
			if p, err = s.view.commit(ctx, id); errors.Is(err, base.ErrGone) {
				a.roots[i] = btree.EmptyRoot // so it counts as the writer of all that it has, and no other
				continue
			}
			if err != nil {
				return err
			}
		}
		if p.Timestamp > a.Timestamp || p.Generation >= a.Generation {
			return corruptCommit(a.Commit, "a parent that is not older")
		}
		a.roots[i] = p.Root
		s.queue.push(p, a.sides)
	}
	return nil
}

// match takes those of the open keys of a side to which commit a gave what the side has, and reports them.
func (s *writerSearch) match(ctx context.Context, side int, a *aged) error {
	roots := a.roots[:len(a.Parents)]
	if len(s.open[side]) == 0 || len(roots) == 0 || slices.Contains(roots, a.Root) {
		return nil
	}
	hits, err := ownChanges(ctx, s.view, a.Root, roots, s.open[side])
	if err != nil || len(hits) == 0 {
		return err
	}
	open := s.open[side]
	for _, i := range hits {
		if !s.found(side, &open[i], a.Commit) {
			s.over = true
			return nil
		}
	}
	kept, n := open[:hits[0]], 0
	for i := hits[0]; i < len(open); i++ {
		if n < len(hits) && hits[n] == i {
			n++
			continue
		}
		kept = append(kept, open[i])
	}
	s.open[side] = kept
	return nil
}

// maxPassed is how many differences are passed on the way to the next key before the difference is begun anew there. To begin costs
// two paths through the tree.
const maxPassed = 16

// ownChanges returns the indexes of the keys, which ascend, that have in the tree root what the side has, and in none of the trees
// of parents. The cost follows the number of keys or that of differences to the first parent, whichever is less, times the depth.
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

// fewKeys are looked up one by one. To begin a difference costs more than two look-ups, and much more where two trees have little in common.
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

// isOwn reports whether a difference to the first parent gives a key what the side has, and no other parent has that.
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

// commit returns the commit with the given id, the first one included. The error matches base.ErrGone when retention has given it up.
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

// bothSides are the sides of a commit that both sides have.
const bothSides = 1<<leftSide | 1<<rightSide

// aged is a commit in an ageQueue.
type aged struct {
	*commit.Commit
	sides uint8            // bits 1<<leftSide and 1<<rightSide
	roots [2]object.Digest // of the parents, in their order
}

// ageQueue gives commits by timestamp, then generation, then id, the greatest first. Since timestamps never fall from parent to
// child, and of equal ones the child has the greater generation, a commit comes out after its descendants, and in only once.
type ageQueue struct {
	heap []*aged
	held map[commit.ID]*aged
	own  [2]int // how many of the commits only this side has, as far as is known
}

// push puts a commit of the given sides into the queue, or adds the sides to it.
func (q *ageQueue) push(c *commit.Commit, sides uint8) {
	a, ok := q.held[c.ID]
	if !ok {
		a = &aged{Commit: c}
		q.held[c.ID] = a
		heap.Push(q, a)
	}
	q.count(a, -1)
	a.sides |= sides
	q.count(a, 1)
}

func (q *ageQueue) count(a *aged, n int) {
	switch a.sides {
	case 1 << leftSide:
		q.own[leftSide] += n
	case 1 << rightSide:
		q.own[rightSide] += n
	}
}

// first returns the commit that next gives. The queue must not be empty.
func (q *ageQueue) first() *aged { return q.heap[0] }

func (q *ageQueue) next() aged {
	a := heap.Pop(q).(*aged)
	delete(q.held, a.ID)
	q.count(a, -1)
	return *a
}

// commit returns the commit with the given id if it is in the queue.
func (q *ageQueue) commit(id commit.ID) *commit.Commit {
	if a, ok := q.held[id]; ok {
		return a.Commit
	}
	return nil
}

// Len is for package heap.
func (q *ageQueue) Len() int { return len(q.heap) }

// Less is for package heap.
func (q *ageQueue) Less(i, j int) bool {
	a, b := q.heap[i], q.heap[j]
	return cmp.Or(cmp.Compare(a.Timestamp, b.Timestamp), cmp.Compare(a.Generation, b.Generation), a.ID.Compare(b.ID)) > 0
}

// Swap is for package heap.
func (q *ageQueue) Swap(i, j int) { q.heap[i], q.heap[j] = q.heap[j], q.heap[i] }

// Push is for package heap.
func (q *ageQueue) Push(x any) { q.heap = append(q.heap, x.(*aged)) }

// Pop is for package heap.
func (q *ageQueue) Pop() any {
	n := len(q.heap) - 1
	a := q.heap[n]
	q.heap[n] = nil
	q.heap = q.heap[:n]
	return a
}
