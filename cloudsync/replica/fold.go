package replica

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"

	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/storage"
)

// merging returns the history for merges while storage still has commits that were given up.
func (p *Page) merging(ctx context.Context) (*epoch.Merging, error) {
	g, unsynced, err := p.graph(ctx)
	if err != nil {
		return nil, err
	}
	st := p.logState(g, unsynced, wire.Retention{})
	st.Gone = p.state.Gone.Without(p.state.Send)
	j := epoch.Join(epoch.Local{View: g, Memory: p.state.Gone, Top: p.state.Top, Left: p.state.Left}, st)
	m := j.Merging(setOf(p.state.GiveUp))
	return &m, nil
}

// folding returns the history for merges while there are folds, else nil.
func (p *Page) folding(ctx context.Context) (*epoch.Merging, error) {
	if len(p.state.GiveUp) == 0 {
		return nil, nil
	}
	m, err := p.merging(ctx)
	if err != nil || m.On == nil {
		return nil, err
	}
	return m, nil
}

// first returns the commits that have to be merged into one before all other merges: the heads of
// the log, also those on which unsynced commits stand, or the heads above m.On.
func first(ctx context.Context, m *epoch.Merging, store *storage.Store, heads []*commit.Commit) (first []*commit.Commit, err error) {
	if m.Top == 0 {
		p := &Page{o: Options{Store: store}}
		return p.load(ctx, m.On)
	}
	for _, h := range heads {
		var known []epoch.Commit // commits of the history on which the head stands
		for queue := []*commit.Commit{h}; len(queue) > 0; queue = queue[1:] {
			c := queue[0]
			if _, ok := m.Graph.Index(short(c.ID)); ok {
				known = append(known, short(c.ID))
				continue
			}
			for _, id := range c.Parents { // the head is newer
				parent, err := store.Commit(ctx, id)
				if err != nil && !isPruned(err) {
					return nil, fmt.Errorf("look for what is merged first: %w", err)
				}
				if err == nil {
					queue = append(queue, parent)
				}
			}
		}
		if len(m.Graph.Ancestors(known...).And(m.On)) > 0 {
			first = append(first, h)
		}
	}
	return first, nil
}

// Folding returns the commits that have to be merged into one, as on all devices, before anything
// else is merged or sent; nil if there are none. See Standing.First.
func (p *Page) Folding(ctx context.Context) ([]*commit.Commit, error) {
	m, err := p.folding(ctx)
	if err != nil || m == nil {
		return nil, err
	}
	return first(ctx, m, p.o.Store, p.o.Store.Heads())
}

// Prune removes the commits of State.GiveUp that nothing needs from storage, and returns their
// number. It removes none while unsynced heads stand on them and are not merged with the log.
func (p *Page) Prune(ctx context.Context) (pruned int, err error) {
	if m, err := p.folding(ctx); err != nil || m != nil {
		return 0, err
	}
	used := map[commit.ID]bool{}
	if p.o.InUse != nil {
		for _, id := range p.o.InUse() {
			used[id] = true
		}
	}
	var left, ids []commit.ID
	for _, id := range p.state.GiveUp {
		if used[id] {
			left = append(left, id)
		} else {
			ids = append(ids, id)
		}
	}
	g, _, err := p.graph(ctx)
	if err != nil {
		return 0, err
	}
	kept, err := p.o.Store.Prune(ctx, ids)
	if err != nil && !errors.Is(err, base.ErrConflict) {
		return 0, err
	}
	pruned = len(ids) - len(kept)
	if pruned == 0 {
		return 0, nil
	}
	// Commits kept because they are in use stay ancestors of their descendants.
	gone := setOf(ids).Without(setOf(kept))
	n := p.state.Next()
	n.GiveUp = append(left, kept...)
	n.Near = nearWithout(g, gone, n.Near)
	b := &storage.SyncBatch{}
	for _, c := range gone {
		b.Metadata = append(b.Metadata, storage.Metadata{Type: senderRow(c)})
	}
	return pruned, p.write(ctx, nil, b, n)
}

// Prune gives up commits of a page that has no record of a bucket, as storage.Store.Prune does.
// Then it records the nearest remaining ancestors of their descendants, for merges and for a later
// bucket. A crash in between loses this record. kept and errors are those of Store.Prune.
func Prune(ctx context.Context, store *storage.Store, ids []commit.ID) (kept []commit.ID, err error) {
	s, err := loadState(ctx, store, seal.ID{})
	if err != nil {
		return nil, err
	}
	p := &Page{o: Options{Store: store}, state: s}
	g, _, err := p.graph(ctx)
	if err != nil {
		return nil, err
	}
	kept, err = store.Prune(ctx, ids)
	left, _, leftErr := p.graph(ctx)
	if leftErr != nil {
		return kept, errors.Join(err, leftErr)
	}
	near := nearWithout(g, g.Set().Without(left.Set()), s.Near)
	rows := splitRow(rowNear, encode(reflect.ValueOf(near)), encode(reflect.ValueOf(s.Near)))
	return kept, errors.Join(err, store.WithReserve(ctx, func(bool) error { return submit(ctx, store, nil, &storage.SyncBatch{Metadata: rows}) }))
}

// nearWithout returns near, updated with the nearest ancestors of commits of the graph after gone
// are removed.
func nearWithout(g epoch.Graph, gone epoch.Set, near map[epoch.Commit]epoch.Set) map[epoch.Commit]epoch.Set {
	near = cloned(near)
	maps.DeleteFunc(near, func(id epoch.Commit, _ epoch.Set) bool { return gone.Has(id) })
	for _, n := range g.Reduce(g.Set().Without(gone)) {
		if i, _ := g.Index(n.ID); len(g[i].Near.And(gone)) > 0 {
			near[n.ID] = n.Near
		}
	}
	return near
}
