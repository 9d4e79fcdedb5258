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

// merging returns what package epoch says of merges while storage has given-up commits, with the
// commits of the page; nil: it has none.
func (p *Page) merging(ctx context.Context) (*epoch.Joined, epoch.Graph, error) {
	if len(p.state.GiveUp) == 0 {
		return nil, nil, nil
	}
	g, unsynced, err := p.graph(ctx)
	if err != nil {
		return nil, nil, err
	}
	st := p.logState(g, unsynced, wire.Retention{})
	st.Gone = p.state.Gone.Without(p.state.Send)
	j := epoch.Join(g, p.state.Gone, st)
	return &j, g, nil
}

// ErrWaits is the error of Next while the heads have to be merged before anything is sent: see
// epoch.Joined. It matches base.ErrConflict.
var ErrWaits = fmt.Errorf("nothing is sent until the heads of the page are merged, as that takes versions that were given up: %w", base.ErrConflict)

// Prune removes the commits of State.GiveUp that nothing needs from storage, and returns their
// number. It leaves those that merges may need (epoch.Joined.Held), and those of Options.InUse. A
// transaction may yet put a commit on a pinned one.
func (p *Page) Prune(ctx context.Context) (pruned int, err error) {
	pinned := setOf(p.o.Store.Pins()) // before the graph: a transaction may end in between
	j, g, err := p.merging(ctx)
	if err != nil || j == nil {
		return 0, err
	}
	held := j.Held(pinned)
	used := map[commit.ID]bool{}
	if p.o.InUse != nil {
		for _, id := range p.o.InUse() {
			used[id] = true
		}
	}
	var left, ids []commit.ID
	for _, id := range p.state.GiveUp {
		if used[id] || held.Has(short(id)) {
			left = append(left, id)
		} else {
			ids = append(ids, id)
		}
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
