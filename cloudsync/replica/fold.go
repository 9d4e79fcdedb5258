package replica

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/storage"
)

// foldOf returns the fold that a join asks for, nil for none. Meanwhile near edges lead to what is
// given up: from each commit of view that is known to stand on it, and to the bases of the fold
// from the head of the log, where that has one. heads are those of the log.
func (p *Page) foldOf(ctx context.Context, j *epoch.Joined, st epoch.State, before *Fold, near map[epoch.Commit]epoch.Set, heads []commit.ID, view epoch.Graph, giveUp epoch.Set) (*Fold, error) {
	if len(j.Folds) == 0 && before == nil {
		return nil, nil
	}
	for _, n := range st.Kept {
		i, ok := view.Index(n.ID)
		if !ok {
			continue
		}
		if down := view[i].Near.And(giveUp); len(down) > 0 {
			near[n.ID] = n.Near.Union(down)
		}
	}
	f := &Fold{Heads: heads}
	if before != nil {
		f.Bases = before.Bases
	}
	for _, of := range j.Folds {
		f.Bases = f.Bases.Union(of.Bases.Without(j.View.Set()))
		id, ok, err := p.find(ctx, of.Head)
		if err != nil {
			return nil, err
		}
		if ok {
			f.Waiting = append(f.Waiting, id)
		}
	}
	if len(heads) != 1 {
		return f, nil
	}
	head := short(heads[0])
	if i, ok := st.Kept.Index(head); ok {
		near[head] = near[head].Union(st.Kept[i].Near).Union(f.Bases)
	}
	return f, nil
}

// stands reports whether unsynced commits stand on what was given up, and no fold is known: they
// came while an epoch was entered, or with a transaction that had begun before.
func (p *Page) stands(ctx context.Context) (bool, error) {
	if len(p.state.GiveUp) == 0 || p.state.Fold != nil {
		return false, nil
	}
	unsynced, err := p.o.Store.Unsynced(ctx)
	if err != nil {
		return false, fmt.Errorf("list what is unsynced: %w", err)
	}
	giveUp := setOf(p.state.GiveUp)
	for _, id := range unsynced {
		c, err := p.o.Store.Commit(ctx, id)
		if err != nil {
			return false, fmt.Errorf("read commit %s: %w", id.Short(), err)
		}
		if len(p.state.node(c).Near.And(giveUp)) > 0 {
			return true, nil
		}
	}
	return false, nil
}

// refold notes the fold of commits that stand on what was given up.
func (p *Page) refold(ctx context.Context) error {
	if stands, err := p.stands(ctx); err != nil || !stands {
		return err
	}
	near, f, err := p.refolded(ctx)
	if err != nil {
		return err
	}
	n := p.state.Next()
	n.setNear(near)
	n.setFold(f)
	return p.write(ctx, nil, &storage.SyncBatch{}, n)
}

// refolded returns what State.Near and State.Fold are once unsynced commits stand on what was given
// up.
func (p *Page) refolded(ctx context.Context) (map[epoch.Commit]epoch.Set, *Fold, error) {
	g, unsynced, err := p.graph(ctx)
	if err != nil {
		return nil, nil, err
	}
	st := epoch.State{Kept: g.Reduce(g.Set().Without(unsynced.Union(setOf(p.state.GiveUp)))), Gone: p.state.memory().Without(p.state.Send)}
	j := epoch.Join(epoch.Local{View: g, Memory: p.state.memory()}, st)
	var heads []commit.ID
	for _, c := range st.Heads().Without(p.state.Send) {
		id, ok, err := p.find(ctx, c)
		if err != nil {
			return nil, nil, err
		}
		if ok {
			heads = append(heads, id)
		}
	}
	near := maps.Clone(p.state.Near)
	if near == nil {
		near = map[epoch.Commit]epoch.Set{}
	}
	f, err := p.foldOf(ctx, &j, st, nil, near, heads, g, setOf(p.state.GiveUp))
	if err != nil {
		return nil, nil, err
	}
	if f == nil {
		for _, n := range j.Unsynced {
			i, _ := g.Index(n.ID)
			if !g[i].Near.Within(j.View.Set()) {
				near[n.ID] = n.Near
			}
		}
	}
	return near, f, nil
}

// next returns the commits that are merged into one before anything else is, nil for none.
func (f *Fold) next() []commit.ID {
	switch {
	case f == nil:
		return nil
	case len(f.Heads) > 1:
		return f.Heads
	case len(f.Waiting) > 0:
		return slices.Concat(f.Heads, f.Waiting[:1])
	}
	return nil
}

// first returns those of some heads that have to be merged into one before anything else is: what
// next returns, or what was built on that. one is a head that is above all of these, nil for none.
// Where nothing has to be merged first it returns heads.
func (f *Fold) first(ctx context.Context, store *storage.Store, heads []*commit.Commit) (first []*commit.Commit, one *commit.Commit, err error) {
	ids := f.next()
	if ids == nil {
		return heads, nil, nil
	}
	for _, h := range heads {
		above := 0
		for _, id := range ids {
			c, err := store.Commit(ctx, id)
			if err != nil {
				return nil, nil, fmt.Errorf("read what is merged first: %w", err)
			}
			ok, err := commit.IsAncestor(ctx, store, c, h)
			if err != nil && !errors.Is(err, base.ErrGone) {
				return nil, nil, fmt.Errorf("look for what is merged first: %w", err)
			}
			if ok {
				above++
			}
		}
		if above > 0 {
			first = append(first, h)
		}
		if above == len(ids) {
			one = h
		}
	}
	return first, one, nil
}

// Folding returns the heads that have to be merged into one, as all devices do, before anything
// else is merged; nil: nothing has to be. See Standing.First.
func (p *Page) Folding(ctx context.Context) ([]*commit.Commit, error) {
	if err := p.refold(ctx); err != nil {
		return nil, err
	}
	if p.state.Fold.next() == nil {
		return nil, nil
	}
	first, _, err := p.state.Fold.first(ctx, p.o.Store, p.o.Store.Heads())
	return first, err
}

// Folded takes note, once there is a commit that merges what is merged first, and reports whether
// there was. When that were the heads of the log, it stands on what the log has given up and
// unsynced commits stand on.
func (p *Page) Folded(ctx context.Context) (bool, error) {
	f := p.state.Fold
	_, one, err := f.first(ctx, p.o.Store, p.o.Store.Heads())
	if err != nil || one == nil {
		return false, err
	}
	next := &Fold{Heads: []commit.ID{one.ID}, Waiting: f.Waiting, Bases: f.Bases}
	n := p.state.Next()
	if len(f.Heads) == 1 {
		next.Waiting = f.Waiting[1:]
	} else {
		near := maps.Clone(p.state.Near)
		if near == nil {
			near = map[epoch.Commit]epoch.Set{}
		}
		near[short(one.ID)] = p.state.node(one).Near.Union(f.Bases)
		n.setNear(near)
	}
	n.setFold(next)
	return true, p.write(ctx, nil, &storage.SyncBatch{}, n)
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
		if len(p.o.Store.Heads()) > 1 || p.state.Fold.next() != nil {
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
	// What is kept since it is in use stays below what stands on it.
	gone := setOf(ids).Without(setOf(kept))
	n := p.state.Next()
	n.setGiveUp(append(left, kept...))
	n.setNear(nearWithout(g, gone, n.Near))
	b := &storage.SyncBatch{}
	for _, c := range gone {
		b.Metadata = append(b.Metadata, storage.Metadata{Type: senderRow(c)})
	}
	return pruned, p.write(ctx, nil, b, n)
}

// unfold ends a fold: unsynced commits get near edges in the place of parents that were given up,
// and near edges to what was given up go.
func (p *Page) unfold(ctx context.Context) error {
	g, _, err := p.graph(ctx)
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
		if len(g[i].Near.And(giveUp)) > 0 {
			near[n.ID] = n.Near
		}
	}
	next := p.state.Next()
	next.setNear(near)
	next.setFold(nil)
	return p.write(ctx, nil, &storage.SyncBatch{}, next)
}

// Prune gives up commits of a page that knows of no bucket, as storage.Store.Prune does, and notes
// then the nearest ancestors that are left of what stands on them: merges go by these, and so does
// a bucket that the page gets later. A crash in between loses them. kept and errors are those of
// Store.Prune.
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
	now, before := s.Next(), s
	now.setNear(nearWithout(g, g.Set().Without(left.Set()), s.Near))
	rows := make([][]byte, 2)
	for i, of := range []*State{now, before} {
		var encodeErr error
		if rows[i], encodeErr = of.encode(rowNear); encodeErr != nil {
			return kept, errors.Join(err, encodeErr)
		}
	}
	pending, keepErr := store.SubmitSync(ctx, nil, &storage.SyncBatch{Metadata: splitRow(rowNear, rows[0], rows[1])})
	if keepErr == nil {
		keepErr = pending.Wait()
	}
	return kept, errors.Join(err, keepErr)
}

// nearWithout returns near with the nearest ancestors that commits of a graph have without those
// that go.
func nearWithout(g epoch.Graph, gone epoch.Set, near map[epoch.Commit]epoch.Set) map[epoch.Commit]epoch.Set {
	near = maps.Clone(near)
	if near == nil {
		near = map[epoch.Commit]epoch.Set{}
	}
	maps.DeleteFunc(near, func(id epoch.Commit, _ epoch.Set) bool { return gone.Has(id) })
	for _, n := range g.Reduce(g.Set().Without(gone)) {
		if i, _ := g.Index(n.ID); len(g[i].Near.And(gone)) > 0 {
			near[n.ID] = n.Near
		}
	}
	return near
}
