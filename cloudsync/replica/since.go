package replica

import (
	"container/heap"
	"context"

	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/commit"
)

// since returns the commits of the log that are heads or below them, and not below one of from. It
// passes over those that outside reports, and reads little more than what it returns.
func (p *Page) since(ctx context.Context, heads []*commit.Commit, from epoch.Set, outside func(commit.ID) bool) (out []*commit.Commit, err error) {
	w := &descent{by: map[commit.ID]*reached{}}
	for _, h := range heads {
		w.reach(h, false)
	}
	old, err := p.load(ctx, from)
	if err != nil {
		return nil, err
	}
	for _, c := range old {
		w.reach(c, true)
	}
	for w.fresh > 0 {
		r := heap.Pop(w).(*reached)
		if !r.old {
			w.fresh--
			out = append(out, r.c)
		}
		near, err := p.nearest(ctx, r.c)
		if err == nil {
			near, err = p.passing(ctx, near, outside)
		}
		if err != nil {
			return nil, err
		}
		for _, n := range near {
			w.reach(n, r.old)
		}
	}
	return out, nil
}

// reached is a commit to which a descent has come; old says that it is below what is left out.
type reached struct {
	c   *commit.Commit
	old bool
}

// descent goes through commits from the greatest generation down, so that all that stand on one
// have come before it. fresh counts those in the queue that are not old.
type descent struct {
	queue []*reached
	by    map[commit.ID]*reached
	fresh int
}

func (w *descent) reach(c *commit.Commit, old bool) {
	r := w.by[c.ID]
	switch {
	case r == nil:
		r = &reached{c, old}
		w.by[c.ID] = r
		heap.Push(w, r)
		if !old {
			w.fresh++
		}
	case old && !r.old:
		r.old = true
		w.fresh--
	}
}

// Len implements heap.Interface, as do the others.
func (w *descent) Len() int           { return len(w.queue) }
func (w *descent) Less(i, j int) bool { return w.queue[i].c.Generation > w.queue[j].c.Generation }
func (w *descent) Swap(i, j int)      { w.queue[i], w.queue[j] = w.queue[j], w.queue[i] }
func (w *descent) Push(x any)         { w.queue = append(w.queue, x.(*reached)) }
func (w *descent) Pop() any {
	last := len(w.queue) - 1
	r := w.queue[last]
	w.queue = w.queue[:last]
	return r
}
