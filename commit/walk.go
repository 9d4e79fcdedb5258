package commit

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/ledgerd/ledger/internal/base"
)

// Getter finds commits. It is never called for the first commit.
type Getter interface {
	// Commit returns the commit with the given id; the error matches base.ErrNotFound when there is
	// none, and base.ErrGone for a parent that was pruned. It may wait for a disk.
	Commit(ctx context.Context, id ID) (*Commit, error)
}

// Walk yields the commits with the given ids and all their ancestors, each once, by descending
// generation, then timestamp, then id. So no commit precedes one of its descendants, and the last
// is the first commit of the page. Without ids it yields nothing. It holds the unvisited parents of
// visited commits: as many as the graph is wide. Pruned parents are skipped, with everything below
// them: then the last commit need not be the first commit of the page. At most one error is
// yielded, last: that of the Getter, that of ctx, or a *base.CorruptError for a parent whose
// generation is not below its child's.
func Walk(ctx context.Context, g Getter, from []ID) iter.Seq2[*Commit, error] {
	return func(yield func(*Commit, error) bool) {
		var q Queue[struct{}]
		for _, id := range from {
			c, err := q.Find(ctx, g, id, nil)
			if err != nil {
				yield(nil, err)
				return
			}
			q.Add(c)
		}
		for q.Len() > 0 {
			if err := ctx.Err(); err != nil {
				yield(nil, fmt.Errorf("walk commits: %w", err))
				return
			}
			c := q.Next().Commit
			if !yield(c, nil) {
				return
			}
			if _, err := q.addParents(ctx, g, c); err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// IsAncestor reports whether a is b or an ancestor of b. It walks down to a's generation at most.
// Errors: as for Walk; and one that matches base.ErrGone when pruned commits may hide the answer.
func IsAncestor(ctx context.Context, g Getter, a, b *Commit) (bool, error) {
	if a.IsFirst() || a.ID == b.ID {
		return true, nil
	}
	var q Queue[struct{}]
	pruned := false
	q.Add(b)
	// Since the greatest generation is first, nothing in the queue is above c. When the parents of
	// c are at most of a's generation, only their ids matter.
	for q.Len() > 0 {
		if err := ctx.Err(); err != nil {
			return false, fmt.Errorf("look for ancestor %s: %w", a.ID, err)
		}
		c := q.Next().Commit
		if c.Generation <= a.Generation {
			break
		}
		if slices.Contains(c.Parents, a.ID) {
			return true, nil
		}
		if c.Generation == a.Generation+1 {
			continue
		}
		gone, err := q.addParents(ctx, g, c)
		if err != nil {
			return false, err
		}
		pruned = pruned || gone
	}
	if pruned {
		return false, fmt.Errorf("look for ancestor %s: commits above it were pruned: %w", a.ID, base.ErrGone)
	}
	return false, nil
}

// Queue returns commits in the order of CompareGeneration, the greatest first, each with marks of
// the walk that it serves. A walk that adds the parents of each commit it removes visits every
// commit once, after all its descendants: a removed commit is above all that can still enter, so
// that only the commits in the queue are held. The zero Queue is empty. It is for one goroutine at
// a time.
type Queue[M any] struct {
	heap queued[M]
	held map[ID]*Queued[M]
}

// Queued is a commit in a Queue.
type Queued[M any] struct {
	*Commit
	Marks M
}

// Len returns the number of commits in the queue.
func (q *Queue[M]) Len() int { return len(q.heap) }

// Add returns the entry of c in the queue, a new one with zero marks when it is not there.
func (q *Queue[M]) Add(c *Commit) *Queued[M] {
	v, ok := q.held[c.ID]
	if !ok {
		if q.held == nil {
			q.held = map[ID]*Queued[M]{}
		}
		v = &Queued[M]{Commit: c}
		q.held[c.ID] = v
		heap.Push(&q.heap, v)
	}
	return v
}

// Next removes the greatest commit from the queue, which must not be empty.
func (q *Queue[M]) Next() *Queued[M] {
	v := heap.Pop(&q.heap).(*Queued[M])
	delete(q.held, v.ID)
	return v
}

// Find returns the commit with the given id, from the queue if it is there, and verifies that it
// can be a parent of child, which may be nil. It adds nothing. Errors: those of the Getter,
// *base.CorruptError.
func (q *Queue[M]) Find(ctx context.Context, g Getter, id ID, child *Commit) (*Commit, error) {
	if v, ok := q.held[id]; ok {
		return v.Commit, checkChild(v.Commit, child)
	}
	return Find(ctx, g, id, child)
}

// Find is Queue.Find without a queue. It finds the first commit without the Getter.
func Find(ctx context.Context, g Getter, id ID, child *Commit) (*Commit, error) {
	c := First()
	if id != c.ID {
		var err error
		if c, err = g.Commit(ctx, id); err != nil {
			return nil, fmt.Errorf("read commit %s: %w", id, err)
		}
		if c.ID != id {
			return nil, corrupt(c, "stands where commit "+id.String()+" belongs")
		}
	}
	return c, checkChild(c, child)
}

// checkChild verifies that the generation of a child, if there is one, is above that of its parent.
func checkChild(parent, child *Commit) error {
	if child != nil && parent.Generation >= child.Generation {
		return corrupt(child, fmt.Sprintf("generation %d above a parent of generation %d", child.Generation, parent.Generation))
	}
	return nil
}

// addParents adds the parents of a commit and reports whether one of them was pruned.
func (q *Queue[M]) addParents(ctx context.Context, g Getter, child *Commit) (pruned bool, err error) {
	for _, id := range child.Parents {
		c, err := q.Find(ctx, g, id, child)
		switch {
		case errors.Is(err, base.ErrGone):
			pruned = true
		case err != nil:
			return pruned, err
		default:
			q.Add(c)
		}
	}
	return pruned, nil
}

// queued is the heap of a Queue.
type queued[M any] []*Queued[M]

func (q queued[M]) Len() int           { return len(q) }
func (q queued[M]) Less(i, j int) bool { return CompareGeneration(q[i].Commit, q[j].Commit) > 0 }
func (q queued[M]) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }

// Push is for package heap.
func (q *queued[M]) Push(x any) { *q = append(*q, x.(*Queued[M])) }

// Pop is for package heap.
func (q *queued[M]) Pop() any {
	old := *q
	v := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return v
}

// CompareGeneration orders commits by generation, then as Compare. Walk yields the greatest first.
func CompareGeneration(a, b *Commit) int {
	return cmp.Or(cmp.Compare(a.Generation, b.Generation), Compare(a, b))
}
