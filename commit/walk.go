package commit

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/ledgerd/ledger/internal/base"
)

// Getter finds commits. It is never asked for the first commit.
type Getter interface {
	// Commit returns the commit with the given id; the error matches base.ErrNotFound when there is
	// none, and base.ErrGone for a parent that was pruned. It may wait for a disk.
	Commit(ctx context.Context, id ID) (*Commit, error)
}

// Walk yields the commits with the given ids and all their ancestors, each once: the greatest
// generation first, among equal ones the greatest timestamp, then the greatest id. So no commit
// comes before one of its descendants, and the last is the first commit of the page. Without ids it
// yields nothing. It holds the commits between those that it has yielded and their ancestors: as
// many as the graph is wide. Parents that were pruned are passed over, with all below them: then
// the last need not be the first commit. At most one error is yielded, last: what the Getter
// returned, ctx's, or a *base.CorruptError for a parent whose generation is not below its child's.
func Walk(ctx context.Context, g Getter, from []ID) iter.Seq2[*Commit, error] {
	return func(yield func(*Commit, error) bool) {
		w := newWalker(g)
		for _, id := range from {
			if err := w.add(ctx, id, nil); err != nil {
				yield(nil, err)
				return
			}
		}
		for len(w.queue) > 0 {
			if err := ctx.Err(); err != nil {
				yield(nil, fmt.Errorf("walk commits: %w", err))
				return
			}
			c := w.next()
			if !yield(c, nil) {
				return
			}
			if _, err := w.addParents(ctx, c); err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// IsAncestor reports whether a is b or one of b's ancestors. It goes no further down than a's
// generation. Errors: as Walk; and one that matches base.ErrGone when commits between them may have
// been pruned that would tell.
func IsAncestor(ctx context.Context, g Getter, a, b *Commit) (bool, error) {
	if a.IsFirst() || a.ID == b.ID {
		return true, nil
	}
	if a.Generation >= b.Generation {
		return false, nil
	}
	w, pruned := newWalker(g), false
	end := func() (bool, error) {
		if pruned {
			return false, fmt.Errorf("look for ancestor %s: commits above it were pruned: %w", a.ID, base.ErrGone)
		}
		return false, nil
	}
	w.push(b)
	for len(w.queue) > 0 {
		if err := ctx.Err(); err != nil {
			return false, fmt.Errorf("look for ancestor %s: %w", a.ID, err)
		}
		// Since the greatest generation comes first, nothing in the queue is above c, and when c's
		// parents can at best be of a's generation only their ids matter.
		c := w.next()
		if c.Generation <= a.Generation {
			return end()
		}
		for _, p := range c.Parents {
			if p == a.ID {
				return true, nil
			}
		}
		if c.Generation == a.Generation+1 {
			continue
		}
		gone, err := w.addParents(ctx, c)
		if err != nil {
			return false, err
		}
		pruned = pruned || gone
	}
	return end()
}

// walker takes commits out of a queue, the greatest generation first. Each commit enters once: what
// leaves is above all that can still enter, so that only the commits in the queue need be
// remembered.
type walker struct {
	getter Getter
	queue  queue
	held   map[ID]*Commit // the commits in queue
}

func newWalker(g Getter) *walker { return &walker{getter: g, held: map[ID]*Commit{}} }

// add puts the commit with the given id into the queue, unless it is there. child is the commit
// whose parent it is, nil if there is none.
func (w *walker) add(ctx context.Context, id ID, child *Commit) error {
	c, held := w.held[id]
	if !held && id == First().ID {
		c = First()
	} else if !held {
		var err error
		if c, err = w.getter.Commit(ctx, id); err != nil {
			return fmt.Errorf("walk to commit %s: %w", id, err)
		}
		if c.ID != id {
			return corrupt(c, "stands where commit "+id.String()+" belongs")
		}
	}
	if child != nil && c.Generation >= child.Generation {
		return corrupt(child, fmt.Sprintf("generation %d above a parent of generation %d", child.Generation, c.Generation))
	}
	if !held {
		w.push(c)
	}
	return nil
}

// addParents adds the parents of a commit and reports whether one of them was pruned.
func (w *walker) addParents(ctx context.Context, c *Commit) (pruned bool, err error) {
	for _, p := range c.Parents {
		err := w.add(ctx, p, c)
		if errors.Is(err, base.ErrGone) {
			pruned = true
		} else if err != nil {
			return pruned, err
		}
	}
	return pruned, nil
}

func (w *walker) push(c *Commit) {
	w.held[c.ID] = c
	heap.Push(&w.queue, c)
}

func (w *walker) next() *Commit {
	c := heap.Pop(&w.queue).(*Commit)
	delete(w.held, c.ID)
	return c
}

// queue is a heap of commits; see CompareGeneration.
type queue []*Commit

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return CompareGeneration(q[i], q[j]) > 0 }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }

// Push is for package heap.
func (q *queue) Push(x any) { *q = append(*q, x.(*Commit)) }

// Pop is for package heap.
func (q *queue) Pop() any {
	old := *q
	c := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	return c
}

// CompareGeneration orders commits by generation, then as Compare. Walk yields the greatest first.
func CompareGeneration(a, b *Commit) int {
	return cmp.Or(cmp.Compare(a.Generation, b.Generation), Compare(a, b))
}
