package replica

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/storage"
)

// foldOf returns the fold that a join asks for, nil for none, and has near edges lead to its bases
// where the log has one head. heads are those of the log.
func (p *Page) foldOf(j *epoch.Joined, st epoch.State, before *Fold, near map[epoch.Commit]epoch.Set, heads []commit.ID) *Fold {
	var f *Fold
	if len(j.Folds) > 0 || before != nil {
		f = &Fold{Heads: heads}
	}
	if before != nil {
		f.Bases = before.Bases
	}
	for _, of := range j.Folds {
		f.Bases = f.Bases.Union(of.Bases.Without(j.View.Set()))
	}
	if f == nil || len(heads) != 1 {
		return f
	}
	head := short(heads[0])
	i, ok := st.Kept.Index(head)
	if !ok {
		return f
	}
	near[head] = st.Kept[i].Near.Union(f.Bases)
	return f
}

// refold looks for unsynced commits that came, while an epoch was entered, on what it has given up.
func (p *Page) refold(ctx context.Context) error {
	if len(p.state.GiveUp) == 0 || p.state.Fold != nil {
		return nil
	}
	g, unsynced, err := p.graph(ctx)
	if err != nil {
		return err
	}
	giveUp := setOf(p.state.GiveUp)
	stands := slices.ContainsFunc(g, func(n epoch.Node) bool { return unsynced.Has(n.ID) && len(n.Near.And(giveUp)) > 0 })
	if !stands {
		return nil
	}
	st := epoch.State{Gone: p.state.memory().Without(p.state.Send)}
	for _, n := range g {
		if !unsynced.Has(n.ID) && !giveUp.Has(n.ID) {
			st.Kept = append(st.Kept, n)
		}
	}
	j := epoch.Join(epoch.Local{View: g, Memory: p.state.memory()}, st)
	var heads []commit.ID
	for _, c := range st.Heads().Without(p.state.Send) {
		id, ok, err := p.find(ctx, c)
		if err != nil {
			return err
		}
		if ok {
			heads = append(heads, id)
		}
	}
	near := maps.Clone(p.state.Near)
	if near == nil {
		near = map[epoch.Commit]epoch.Set{}
	}
	f := p.foldOf(&j, st, nil, near, heads)
	if f == nil {
		for _, n := range j.Unsynced {
			i, _ := g.Index(n.ID)
			if !g[i].Near.Within(j.View.Set()) {
				near[n.ID] = n.Near
			}
		}
	}
	n := p.state.Next()
	n.setNear(near)
	n.setFold(f)
	return p.write(ctx, nil, &storage.SyncBatch{}, n)
}

// Folding returns the heads of the log that have to be merged into one, as all devices do, before
// anything else is merged; nil: nothing has to be.
func (p *Page) Folding() []commit.ID {
	if f := p.state.Fold; f != nil && len(f.Heads) > 1 {
		return slices.Clone(f.Heads)
	}
	return nil
}

// Folded takes note that the heads that Folding returned were merged into one. From then on that
// stands on what the log has given up and unsynced commits stand on.
func (p *Page) Folded(ctx context.Context, head commit.ID) error {
	f := p.state.Fold
	if f == nil || len(f.Heads) < 2 {
		return nil
	}
	c, err := p.o.Store.Commit(ctx, head)
	if err != nil {
		return fmt.Errorf("fold the heads of the log: %w", err)
	}
	near := maps.Clone(p.state.Near)
	if near == nil {
		near = map[epoch.Commit]epoch.Set{}
	}
	near[short(head)] = p.state.node(c).Near.Union(f.Bases)
	n := p.state.Next()
	n.setNear(near)
	n.setFold(&Fold{Heads: []commit.ID{head}, Bases: f.Bases})
	return p.write(ctx, nil, &storage.SyncBatch{}, n)
}

// Prune takes commits of State.GiveUp out of storage, as far as nothing needs them, and returns how
// many. While unsynced heads stand on them it takes none.
func (p *Page) Prune(ctx context.Context) (pruned int, err error) {
	if len(p.state.GiveUp) == 0 && p.state.Fold == nil {
		return 0, nil
	}
	if err := p.refold(ctx); err != nil {
		return 0, err
	}
	if p.state.Fold != nil {
		if len(p.o.Store.Heads()) > 1 || len(p.state.Fold.Heads) > 1 {
			return 0, nil
		}
		if err := p.unfold(ctx); err != nil {
			return 0, err
		}
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
	kept, err := p.o.Store.Prune(ctx, ids)
	if err != nil && !errors.Is(err, base.ErrConflict) {
		return 0, err
	}
	pruned = len(ids) - len(kept)
	if pruned == 0 {
		return 0, nil
	}
	n := p.state.Next()
	n.setGiveUp(append(left, kept...))
	return pruned, p.write(ctx, nil, &storage.SyncBatch{}, n)
}

// unfold ends a fold: unsynced commits get near edges in the place of parents that were given up,
// and near edges to what was given up go.
func (p *Page) unfold(ctx context.Context) error {
	g, unsynced, err := p.graph(ctx)
	if err != nil {
		return err
	}
	giveUp := setOf(p.state.GiveUp)
	near := maps.Clone(p.state.Near)
	if near == nil {
		near = map[epoch.Commit]epoch.Set{}
	}
	for _, n := range g.Reduce(g.Set().Without(giveUp)) {
		i, _ := g.Index(n.ID)
		if _, ok := near[n.ID]; ok && !unsynced.Has(n.ID) {
			near[n.ID] = near[n.ID].Without(giveUp)
		} else if len(g[i].Near.And(giveUp)) > 0 {
			near[n.ID] = n.Near
		}
	}
	next := p.state.Next()
	next.setNear(near)
	next.setFold(nil)
	return p.write(ctx, nil, &storage.SyncBatch{}, next)
}
