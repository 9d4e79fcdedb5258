package replica

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/commit"
)

// short returns the short name of a commit, as in package epoch.
func short(id commit.ID) epoch.Commit { return epoch.Commit(binary.BigEndian.Uint64(id[:8])) }

// prefix returns the first bytes of a commit's id.
func prefix(c epoch.Commit) []byte { return binary.BigEndian.AppendUint64(nil, uint64(c)) }

// node returns a commit as a node of a graph.
func (s *State) node(c *commit.Commit) epoch.Node {
	n := epoch.Node{ID: short(c.ID), Generation: c.Generation, Time: c.Timestamp}
	if near, ok := s.Near[n.ID]; ok {
		n.Near = near
		return n
	}
	n.Near = parentsOf(c)
	return n
}

// parentsOf returns the parents of a commit without the first commit.
func parentsOf(c *commit.Commit) (parents epoch.Set) {
	for _, id := range c.Parents {
		if id != commit.First().ID {
			parents = parents.Union(epoch.Set{short(id)})
		}
	}
	return parents
}

// graph returns all commits of the page except the first one, including those of State.GiveUp, and
// which of them are unsynced.
func (p *Page) graph(ctx context.Context) (g epoch.Graph, unsynced epoch.Set, err error) {
	if g, err = p.graphOf(ctx, p.state, nil); err != nil {
		return nil, nil, err
	}
	mine, err := p.o.Store.Unsynced(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("list what is unsynced: %w", err)
	}
	return g, setOf(mine), nil
}

// graphOf returns the graph of the commits of the page, and of received ones, according to a State.
func (p *Page) graphOf(ctx context.Context, s *State, received []*commit.Commit) (epoch.Graph, error) {
	var nodes []epoch.Node
	parents := map[epoch.Commit]epoch.Set{}
	add := func(c *commit.Commit) {
		n := s.node(c)
		if _, ok := s.Near[n.ID]; ok {
			parents[n.ID] = parentsOf(c)
		}
		nodes = append(nodes, n)
	}
	for _, c := range received {
		add(c)
	}
	err := p.o.Store.EachCommit(ctx, func(c *commit.Commit) error {
		add(c)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the commits: %w", err)
	}
	g := epoch.Graph(nil).With(nodes...)
	// The log may lack a parent that is here: it was given up, or is unsynced. Its children descend
	// from it all the same.
	here := g.Set()
	for id, of := range parents {
		i, _ := g.Index(id)
		g[i].Near = g[i].Near.Union(of.And(here))
	}
	return g, nil
}

// nearby returns a graph in place of that of all commits, for an epoch that leaves the history of
// the log as it is. It has the head of the log, the unsynced commits with their nearest ancestors,
// and the tagged commits. The head stands directly on the others of the log. It returns nil if the
// log has several heads.
func (p *Page) nearby(ctx context.Context, tags []wire.Tag) (epoch.Graph, error) {
	heads, err := p.HeadsOfLog(ctx)
	if err != nil || len(heads) != 1 {
		return nil, err
	}
	mine, err := p.o.Store.Unsynced(ctx)
	if err != nil {
		return nil, fmt.Errorf("list what is unsynced: %w", err)
	}
	changed, err := p.o.Store.UnsyncedTags(ctx)
	if err != nil {
		return nil, fmt.Errorf("list changes of tags: %w", err)
	}
	for _, t := range changed {
		tags = append(slices.Clip(tags), wire.Tag{Commit: t.Commit})
	}
	var nodes []epoch.Node
	var log epoch.Set
	for _, t := range tags {
		log = log.Union(epoch.Set{short(t.Commit)})
	}
	for _, id := range mine {
		c, err := p.o.Store.Known(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("read unsynced commit: %w", err)
		}
		n := p.state.node(c)
		n.Near = n.Near.Union(parentsOf(c))
		nodes, log = append(nodes, n), log.Union(n.Near)
	}
	top := p.state.node(heads[0])
	below, err := p.load(ctx, log.Without(setOf(mine)).Without(epoch.SetOf(top.ID, short(commit.First().ID))))
	if err != nil {
		return nil, err
	}
	top.Near = setOf(idsOf(below))
	for _, c := range below {
		nodes = append(nodes, epoch.Node{ID: short(c.ID), Generation: c.Generation, Time: c.Timestamp})
	}
	return epoch.Graph(nil).With(append(nodes, top)...), nil
}

// logState returns the commits of the log with a retention: those of a graph that are neither
// unsynced nor given up.
func (p *Page) logState(g epoch.Graph, unsynced epoch.Set, r wire.Retention) epoch.State {
	return epoch.State{Kept: g.Reduce(g.Set().Without(unsynced.Union(setOf(p.state.GiveUp)))), Retention: epoch.Retention(r)}
}

func setOf(ids []commit.ID) epoch.Set {
	short8 := make([]epoch.Commit, 0, len(ids))
	for _, id := range ids {
		short8 = append(short8, short(id))
	}
	return epoch.SetOf(short8...)
}

// idsOf returns the ids of commits.
func idsOf(cs []*commit.Commit) []commit.ID {
	ids := make([]commit.ID, len(cs))
	for i, c := range cs {
		ids[i] = c.ID
	}
	return ids
}

// find returns the commit of the page with a short name.
func (p *Page) find(ctx context.Context, c epoch.Commit) (commit.ID, bool, error) {
	ids, err := p.o.Store.FindCommits(ctx, prefix(c), false, 1)
	if err != nil || len(ids) == 0 {
		return commit.ID{}, false, err
	}
	return ids[0], true, nil
}

// load returns those of the given commits that are here.
func (p *Page) load(ctx context.Context, of epoch.Set) (out []*commit.Commit, err error) {
	for _, s := range of {
		id, ok, err := p.find(ctx, s)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		c, err := p.o.Store.Commit(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("read commit %s: %w", id.Short(), err)
		}
		out = append(out, c)
	}
	return out, nil
}
