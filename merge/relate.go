package merge

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
)

// NearGetter is a commit.Getter that knows the nearest ancestors of commits of which a parent was
// given up. Relate goes by these in the place of parents, so that all devices find the same bases,
// whether they have what was given up or not.
type NearGetter interface {
	commit.Getter
	// Near returns the nearest ancestors of a commit that are here; ok is false where its parents
	// say it. It may wait for a disk.
	Near(ctx context.Context, id commit.ID) (near []commit.ID, ok bool, err error)
}

// Relation says how two commits are related.
type Relation struct {
	// Bases are the maximal common ancestors, in the order of commit.Compare: at least one. When
	// one of the commits is an ancestor of the other, it is the only one.
	Bases []*commit.Commit
	// LeftOwn and RightOwn tell whether a side has, or may have had before it was pruned, a commit
	// that the other has not and that is no merge.
	LeftOwn, RightOwn bool
	// apart tells that nothing is left that both have.
	apart bool
	// ClockBack tells that a commit which only one side has was made by a clock that was behind
	// that of one of its parents.
	ClockBack bool
}

// Relate finds the common ancestors of two commits. It reads the commits between them and their
// bases, and few more. Parents that were pruned are passed over, with what is below them. When
// nothing is left that both have, the base is the first commit of the page, whose tree is empty:
// then a key that both have with different values is in conflict, and one that only one has stays.
// Errors: those of the Getter, *base.CorruptError, that of ctx.
func Relate(ctx context.Context, g commit.Getter, left, right *commit.Commit) (Relation, error) {
	return relate(ctx, g, nil, left, right)
}

// relate is Relate with commits whose trees are lost: they are no bases, and lower ones are looked
// for instead.
func relate(ctx context.Context, g commit.Getter, lost func(commit.ID) bool, left, right *commit.Commit) (Relation, error) {
	w := relater{getter: g, held: map[commit.ID]*visit{}}
	w.mark(left, ofLeft)
	w.mark(right, ofRight)
	var r Relation
	for w.fresh > 0 {
		if err := ctx.Err(); err != nil {
			return Relation{}, fmt.Errorf("relate commits %s and %s: %w", left.ID, right.ID, err)
		}
		// The greatest generation comes first, so all children of v that matter have been here: its
		// marks are final.
		v := w.next()
		marks := v.marks
		switch {
		case marks == ofLeft|ofRight && lost != nil && lost(v.commit.ID):
		case marks == ofLeft|ofRight:
			r.Bases = append(r.Bases, v.commit)
			marks |= stale
			if w.fresh == 0 {
				continue // what is below is stale and changes nothing
			}
		case marks == ofLeft:
			r.LeftOwn = r.LeftOwn || len(v.commit.Parents) < 2
		case marks == ofRight:
			r.RightOwn = r.RightOwn || len(v.commit.Parents) < 2
		}
		pruned, err := w.markParents(ctx, v.commit, marks)
		r.ClockBack = w.back
		if err != nil {
			return Relation{}, err
		}
		// Below a commit whose parents were pruned may be anything: a side that shows nothing but
		// merges may have commits of its own there.
		r.LeftOwn = r.LeftOwn || pruned && marks == ofLeft
		r.RightOwn = r.RightOwn || pruned && marks == ofRight
	}
	if len(r.Bases) == 0 && w.pruned {
		r.Bases, r.apart = []*commit.Commit{commit.First()}, true
	}
	if len(r.Bases) == 0 {
		return Relation{}, corruptCommit(right, "no ancestor in common with "+left.ID.String())
	}
	slices.SortFunc(r.Bases, commit.Compare)
	return r, nil
}

// marks say of which of the two commits a commit is an ancestor, and whether it is below a common
// one.
type marks uint8

const (
	ofLeft marks = 1 << iota
	ofRight
	stale
)

// visit is a commit in the queue.
type visit struct {
	commit *commit.Commit
	marks  marks
}

// relater takes commits out of a queue, the greatest generation first; each enters once, as what
// leaves is above all that can still enter.
type relater struct {
	getter commit.Getter
	queue  visits
	held   map[commit.ID]*visit // what is in queue
	fresh  int                  // how much of it is not stale
	pruned bool                 // a parent was passed over
	back   bool                 // a parent of a commit that only one side has has a later timestamp
}

// mark puts a commit into the queue, or adds to its marks when it is there.
func (w *relater) mark(c *commit.Commit, m marks) {
	v, ok := w.held[c.ID]
	if !ok {
		v = &visit{commit: c}
		w.held[c.ID] = v
		heap.Push(&w.queue, v)
		w.fresh++
	}
	wasFresh := v.marks&stale == 0
	v.marks |= m
	if wasFresh && v.marks&stale != 0 {
		w.fresh--
	}
}

func (w *relater) next() *visit {
	v := heap.Pop(&w.queue).(*visit)
	delete(w.held, v.commit.ID)
	if v.marks&stale == 0 {
		w.fresh--
	}
	return v
}

// markParents puts the parents of a commit into the queue, and reports whether one was pruned.
func (w *relater) markParents(ctx context.Context, child *commit.Commit, m marks) (pruned bool, err error) {
	ids := child.Parents
	if g, is := w.getter.(NearGetter); is {
		near, ok, err := g.Near(ctx, child.ID)
		if err != nil {
			return false, fmt.Errorf("relate commits: nearest ancestors of commit %s: %w", child.ID, err)
		}
		if ok {
			ids, w.pruned, pruned = near, true, true
		}
	}
	for _, id := range ids {
		c, err := w.parent(ctx, id)
		if errors.Is(err, base.ErrGone) {
			w.pruned, pruned = true, true
			continue
		}
		if err != nil {
			return pruned, err
		}
		if c.Generation >= child.Generation {
			return pruned, corruptCommit(child, fmt.Sprintf("generation %d above a parent of generation %d", child.Generation, c.Generation))
		}
		w.back = w.back || m != ofLeft|ofRight && m&stale == 0 && c.Timestamp > child.Timestamp
		w.mark(c, m)
	}
	return pruned, nil
}

func (w *relater) parent(ctx context.Context, id commit.ID) (*commit.Commit, error) {
	if v, ok := w.held[id]; ok {
		return v.commit, nil
	}
	if id == commit.First().ID {
		return commit.First(), nil
	}
	c, err := w.getter.Commit(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("relate commits: read commit %s: %w", id, err)
	}
	if c.ID != id {
		return nil, corruptCommit(c, "stands where commit "+id.String()+" belongs")
	}
	return c, nil
}

func corruptCommit(c *commit.Commit, got string) error {
	return &base.CorruptError{Where: "commit", Key: c.ID.String(), Got: got}
}

// visits is a heap; see commit.CompareGeneration.
type visits []*visit

func (q visits) Len() int           { return len(q) }
func (q visits) Less(i, j int) bool { return commit.CompareGeneration(q[i].commit, q[j].commit) > 0 }
func (q visits) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }

// Push is for package heap.
func (q *visits) Push(x any) { *q = append(*q, x.(*visit)) }

// Pop is for package heap.
func (q *visits) Pop() any {
	old := *q
	v := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return v
}
