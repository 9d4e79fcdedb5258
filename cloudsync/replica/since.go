package replica

import (
	"context"
	"slices"

	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/commit"
)

// since returns the commits of the log that are heads or below them, and not below one of from. It
// passes over those that outside reports, and reads little more than what it returns.
func (p *Page) since(ctx context.Context, heads []*commit.Commit, from epoch.Set, outside func(commit.ID) bool) (out []*commit.Commit, err error) {
	var queue []*commit.Commit // the greatest generation last, so that all that stand on one have come before it
	below := map[commit.ID]bool{}
	reach := func(cs []*commit.Commit, old bool) {
		for _, c := range cs {
			if i, ok := slices.BinarySearchFunc(queue, c, commit.CompareGeneration); !ok {
				queue = slices.Insert(queue, i, c)
			}
			below[c.ID] = below[c.ID] || old
		}
	}
	reach(heads, false)
	old, err := p.load(ctx, from)
	if err != nil {
		return nil, err
	}
	reach(old, true)
	for slices.ContainsFunc(queue, func(c *commit.Commit) bool { return !below[c.ID] }) {
		c := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		if !below[c.ID] {
			out = append(out, c)
		}
		near, err := p.nearest(ctx, c)
		if err == nil {
			near, err = p.passing(ctx, near, outside)
		}
		if err != nil {
			return nil, err
		}
		reach(near, below[c.ID])
		delete(below, c.ID)
	}
	return out, nil
}
