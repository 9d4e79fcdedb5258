package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/checkpoint"
	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
)

// Propose implements pagelog.Page. A cut that gives nothing up costs only what is new since the
// last one. Errors match base.ErrConflict if x is a cut and a change of a tag is unsynced.
func (p *Page) Propose(ctx context.Context, x *epoch.Proposal, seen epoch.Looked) error {
	e := &proposing{p: p, x: x, old: &checkpoint.Header{}, h: &checkpoint.Header{}, used: map[epoch.ID]bool{}, fresh: map[epoch.ID]wire.Pack{}}
	if h := p.state.Header; h != nil {
		e.old = h
	}
	defer func() {
		if e.diffs != nil {
			e.diffs.close()
		}
	}()
	for _, do := range []func(context.Context) error{
		func(ctx context.Context) error { return e.begin(ctx, seen) },
		e.commits, e.gone, e.pieces, e.missing, e.snapshots, e.packs,
	} {
		if err := do(ctx); err != nil {
			return err
		}
	}
	e.h.Base = wire.Base{Number: x.Base, Hash: x.BaseHash}
	e.h.Retention = p.state.Retention
	return p.runs.Put(ctx, x, e.h)
}

// proposing is a checkpoint that is being written.
type proposing struct {
	p *Page
	x *epoch.Proposal
	// old is the header of the present epoch, and h the new one.
	old, h *checkpoint.Header
	// whole says that nothing is given up, so that old stays valid.
	whole bool
	heads []*commit.Commit // of the new epoch
	kept  epoch.Graph
	// before are the commits of the page that are heads of the present checkpoint, or their
	// ancestors.
	before epoch.Set
	given  epoch.Set // commits given up now, or by entries of the epoch; of a renewal, all
	erase  bool      // something is erased: the objects that hold it are written again
	// shown are the objects that the bucket has; nil if the bucket was not asked. own says
	// that the bucket has the log of the page.
	shown map[epoch.ID]bool
	own   bool
	// used are the objects with differences that the checkpoint names.
	used map[epoch.ID]bool
	// fresh are the records of packs that are new or have changed.
	fresh map[epoch.ID]wire.Pack
	// lost are pieces that are not held and whose places the bucket has lost.
	lost []object.Digest
	// diffs is the object for short differences, nil if there is none yet.
	diffs *diffWriter
}

// begin decides what the epoch keeps.
func (e *proposing) begin(ctx context.Context, seen epoch.Looked) error {
	p := e.p
	if err := e.tags(ctx); err != nil {
		return err
	}
	renews := e.x.Kind == epoch.Renewal
	if renews {
		if err := e.survey(ctx, seen); err != nil {
			return err
		}
	} else {
		e.h.Runs, e.h.Snapshots = slices.Clone(e.old.Runs), slices.Clone(e.old.Snapshots)
	}
	e.erase = !renews && len(p.erase.Commits)+len(p.erase.Values) > 0
	return e.keep(ctx)
}

// keep decides which commits the epoch keeps.
func (e *proposing) keep(ctx context.Context) error {
	p := e.p
	g, unsynced, err := p.graph(ctx)
	if err != nil {
		return err
	}
	st := p.logState(g, unsynced, p.state.Retention)
	for _, t := range e.h.Tags {
		st.Tags = append(st.Tags, epoch.Tag{Name: t.Name, Commit: short(t.Commit)})
	}
	var next epoch.State
	heads := st.Heads()
	switch {
	case e.x.Kind == epoch.Renewal:
		st.Gone = p.state.Gone.Without(p.state.Send)
		next = st.Renewal(e.x.Erased, p.state.Send, nil)
		e.given = next.Gone
	case len(heads) > 1:
		return ErrHeads
	default:
		erase := setOf(p.erase.Commits).Without(heads)
		next = st.Reduced(st.Keep(p.state.EntryTime, erase), nil)
		e.x.Erased = erase
		e.given = next.Gone.Union(p.state.Left)
	}
	e.kept = next.Kept
	e.before = g.Ancestors(p.state.From...)
	e.whole = e.x.Kind != epoch.Renewal && !e.erase && len(e.given) == 0
	if e.heads, err = e.p.load(ctx, next.Heads()); err != nil { // as devices that enter the epoch see them
		return err
	}
	slices.SortFunc(e.heads, commit.Compare)
	e.h.Tags = slices.DeleteFunc(e.h.Tags, func(t wire.Tag) bool { return t.Commit != commit.First().ID && !e.keeps(short(t.Commit)) })
	return nil
}

// keeps reports whether a commit of the log is kept.
func (e *proposing) keeps(c epoch.Commit) bool {
	_, ok := e.kept.Index(c)
	return ok
}

// tags gets the tags of the log.
func (e *proposing) tags(ctx context.Context) error {
	mine, err := e.p.o.Store.UnsyncedTags(ctx)
	if err != nil {
		return fmt.Errorf("list changes of tags: %w", err)
	}
	if len(mine) > 0 && e.x.Kind == epoch.Cut {
		return fmt.Errorf("%d changes of tags are not in the bucket: %w", len(mine), base.ErrConflict)
	}
	all, err := e.p.o.Store.Tags(ctx)
	if err != nil {
		return fmt.Errorf("read the tags: %w", err)
	}
	for _, t := range mine {
		delete(all, t.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		e.h.Tags = append(e.h.Tags, wire.Tag{Name: name, Commit: all[name]})
	}
	return nil
}

// survey finds what a renewal can carry over from the present epoch: packs and differences that the
// bucket shows, and readable runs of commits. The rest is written again.
func (e *proposing) survey(ctx context.Context, seen epoch.Looked) error {
	e.shown, e.own = map[epoch.ID]bool{}, seen.Own || seen.Damaged
	if !e.own {
		return nil
	}
	s, n := e.p.state, e.p.o.Names
	dirs := map[string]bool{n.Packs(s.At.Epoch): true}
	for _, r := range e.old.Runs {
		dirs[n.Checkpoints(r.Epoch)] = true
	}
	sizes := map[epoch.ID]uint64{}
	for _, w := range s.Manifest {
		dirs[n.Packs(w.Epoch)] = true
	}
	for dir := range dirs {
		if err := e.list(ctx, dir, sizes); err != nil {
			return err
		}
	}
	for _, w := range slices.Concat(s.Announced, s.Manifest) {
		if w.Pieces > 0 && sizes[w.ID] != w.Bytes {
			delete(e.shown, w.ID)
		}
	}
	for _, r := range e.old.Runs {
		if r.Kind == wire.Commits && len(s.Send) == 0 { // these have commits that are to be given up
			e.h.Runs = append(e.h.Runs, r)
		}
	}
	err := e.p.runs.Each(ctx, e.h, wire.Commits, func(wire.Record) error { return nil })
	if errors.Is(err, base.ErrCorrupt) || errors.Is(err, base.ErrUnsupported) { // it was readable once
		e.h.Runs, err = nil, nil
	}
	return err
}

// list records the objects of a directory.
func (e *proposing) list(ctx context.Context, dir string, sizes map[epoch.ID]uint64) error {
	err := bucket.Each(ctx, e.p.o.Bucket, "", dir, func(info bucket.Info) bool {
		if name, ok := e.p.o.Names.Parse(info.Name); ok {
			e.shown[name.ID] = true
			sizes[name.ID] = uint64(info.Size)
		}
		return true
	})
	if err != nil {
		return fmt.Errorf("list %s: %w", dir, err)
	}
	return nil
}

// there reports whether the bucket has an object of the present epoch. It is true if the bucket was
// not asked.
func (e *proposing) there(id epoch.ID) bool { return e.shown == nil || e.shown[id] }

// commits writes the run of commits: those new since the last header, and those whose record has
// changed.
func (e *proposing) commits(ctx context.Context) error {
	todo, err := e.todo(ctx)
	if err != nil {
		return err
	}
	slices.SortFunc(todo, func(a, b *commit.Commit) int {
		return wire.Compare(&wire.Commit{Commit: a}, &wire.Commit{Commit: b})
	})
	if err := e.build(ctx, todo); err != nil {
		return err
	}
	fresh := func(yield func(wire.Record, error) bool) {
		for _, c := range todo {
			r, err := e.record(ctx, c)
			if !yield(r, err) || err != nil {
				return
			}
		}
	}
	// After an erasure no run may have an erased commit.
	_, err = e.p.runs.Add(ctx, e.x.ID, e.h, wire.Commits, fresh, e.erase, func(r wire.Record) bool { return e.keeps(short(r.(*wire.Commit).Commit.ID)) })
	if err != nil {
		return err
	}
	return e.finishDiffs(ctx)
}

// todo returns the commits that need a record.
func (e *proposing) todo(ctx context.Context) ([]*commit.Commit, error) {
	todo := e.kept.Set()
	if !slices.ContainsFunc(e.h.Runs, func(r wire.Run) bool { return r.Kind == wire.Commits }) {
		return e.p.load(ctx, todo)
	}
	if todo = todo.Without(e.before); !e.whole {
		changed, err := e.changed(ctx)
		if err != nil {
			return nil, err
		}
		todo = todo.Union(epoch.SetOf(changed...))
	}
	return e.p.load(ctx, todo)
}

// changed returns the commits in the runs whose record is no longer right: a nearest ancestor or
// the base is given up, or the difference is lost. It records the differences that the other
// commits use.
func (e *proposing) changed(ctx context.Context) (out []epoch.Commit, err error) {
	err = e.p.runs.Each(ctx, e.h, wire.Commits, func(rec wire.Record) error {
		r := rec.(*wire.Commit)
		id := short(r.Commit.ID)
		i, ok := e.kept.Index(id)
		if !ok {
			return nil
		}
		near := r.Near
		if near == nil {
			near = parentsOf(r.Commit)
		}
		lost := r.Diff.Place != nil && !e.there(r.Diff.Place.Pack)
		lost = lost || r.Diff.Place != nil && e.erase // erased data may stand beside it
		if !slices.Equal(near, e.kept[i].Near) || !r.Base.IsZero() && e.given.Has(short(r.Base)) || lost {
			out = append(out, id)
		} else if r.Diff.Place != nil {
			e.used[r.Diff.Place.Pack] = true
		}
		return nil
	})
	return out, err
}

// build builds trees that records need and that are not here, as far as the log leads to them.
func (e *proposing) build(ctx context.Context, todo []*commit.Commit) error {
	if len(e.old.Runs) == 0 && e.p.state.Entries == 0 || e.shown != nil && len(e.h.Runs) == 0 {
		return nil
	}
	var ids []commit.ID
	for _, c := range todo {
		if _, ok := e.placed(c); ok {
			continue
		}
		near, err := e.near(ctx, c)
		if err != nil {
			return err
		}
		ids = append(ids, idsOf(append(near, c))...)
	}
	err := e.p.BuildTrees(ctx, ids)
	if errors.Is(err, base.ErrGone) || e.shown != nil && errors.Is(err, base.ErrCorrupt) {
		return nil
	}
	return err
}

// near returns the nearest kept ancestors of a commit.
func (e *proposing) near(ctx context.Context, c *commit.Commit) ([]*commit.Commit, error) {
	i, ok := e.kept.Index(short(c.ID))
	if !ok {
		return nil, nil
	}
	return e.p.load(ctx, e.kept[i].Near)
}

// placed returns the place of a commit's difference, if an entry of the epoch has brought the
// difference as an object that can stay. Its base must be of a lesser generation: the tree of the
// base is then built first, since the records of a run are in that order.
func (e *proposing) placed(c *commit.Commit) (at Placed, ok bool) {
	at, ok = e.p.state.Placed[short(c.ID)]
	i, kept := e.kept.Index(short(at.Base))
	first := at.Base.IsZero() || at.Base == commit.First().ID || kept && e.kept[i].Generation < c.Generation
	return at, ok && first && e.there(at.Diff.Pack)
}

// record returns the record of a commit.
func (e *proposing) record(ctx context.Context, c *commit.Commit) (*wire.Commit, error) {
	s, err := SenderOf(ctx, e.p.o.Store, c.ID)
	if err != nil {
		return nil, err
	}
	r := &wire.Commit{Commit: c, Sender: s.Device}
	if slices.ContainsFunc(parentsOf(c), func(p epoch.Commit) bool { return !e.keeps(p) }) {
		i, _ := e.kept.Index(short(c.ID))
		r.Near = append(epoch.Set{}, e.kept[i].Near...)
	}
	if at, ok := e.placed(c); ok {
		r.Base, r.Diff.Place = at.Base, &at.Diff
		e.name(&at.Diff)
		return r, nil
	}
	if c.Root == btree.EmptyRoot {
		return r, nil
	}
	held, err := e.p.o.Store.TreeHeld(ctx, c)
	if r.Treeless = !held; err != nil || !held {
		return r, err
	}
	d, err := e.delta(ctx, c)
	if err != nil {
		return nil, fmt.Errorf("difference of commit %s: %w", c.ID.Short(), err)
	}
	r.Base = d.base
	if d.place == nil && len(d.kept) > runDiff {
		r.Diff.Place, err = e.share(ctx, d)
		return r, err
	}
	r.Diff, err = e.p.diffOf(ctx, d)
	return r, err
}

// share writes a difference into an object that several differences share.
func (e *proposing) share(ctx context.Context, d *delta) (at *wire.Place, err error) {
	if e.diffs != nil && e.diffs.place.Stored > spillBytes {
		if err := e.finishDiffs(ctx); err != nil {
			return nil, err
		}
	}
	if e.diffs == nil {
		e.diffs = e.p.newDiffWriter(e.x.ID, false)
	}
	begun := e.diffs.place
	if _, err = e.diffs.Write(d.kept); err != nil {
		return nil, err
	}
	return e.diffs.end(begun)
}

// finishDiffs uploads the object of short differences.
func (e *proposing) finishDiffs(ctx context.Context) error {
	w := e.diffs
	if w == nil {
		return nil
	}
	e.diffs = nil
	defer w.close()
	at, err := w.finish(ctx)
	if err == nil {
		e.name(at)
	}
	return err
}

// delta makes the difference of a commit from the tree of one of its nearest kept ancestors.
func (e *proposing) delta(ctx context.Context, c *commit.Commit) (*delta, error) {
	near, err := e.near(ctx, c)
	if err != nil {
		return nil, err
	}
	var ks []candidate
	for _, n := range near {
		if ks, err = e.p.addHeld(ctx, ks, n); err != nil {
			return nil, err
		}
	}
	if len(ks) == 0 {
		ks = append(ks, candidate{tree: e.p.tree(btree.EmptyRoot)})
	}
	d, long, err := e.p.shortest(ctx, ks, e.p.tree(c.Root))
	if err != nil || !long {
		return d, err
	}
	if err := e.p.uploadDiff(ctx, e.x.ID, d, false); err != nil {
		return nil, err
	}
	e.name(d.place)
	return d, nil
}

// name adds an object with a difference to the manifest.
func (e *proposing) name(at *wire.Place) {
	if e.used[at.Pack] = true; e.p.isNamed(at.Pack) {
		return
	}
	e.fresh[at.Pack] = wire.Pack{Epoch: at.Epoch, ID: at.Pack, Bytes: min(at.Stored, wire.MaxPackBytes)}
}

// isNamed reports whether the manifest has an object.
func (p *Page) isNamed(id epoch.ID) bool {
	_, ok := p.state.index[id]
	return ok
}

// gone writes the run of given-up commits.
func (e *proposing) gone(ctx context.Context) error {
	fresh := recordsOf(slices.Values(e.given), func(c epoch.Commit) wire.Record { return &wire.Gone{Commit: c} })
	_, err := e.p.runs.Add(ctx, e.x.ID, e.h, wire.GivenUp, fresh, false, nil)
	return err
}

// missing writes the run of pieces that no device has sent, in place of the present one.
func (e *proposing) missing(ctx context.Context) error {
	all := slices.Concat(slices.Collect(maps.Keys(e.p.state.Missing)), e.lost)
	if e.shown != nil {
		err := e.p.o.Store.MissingPieces(ctx, func(d object.Digest) error {
			all = append(all, d)
			return nil
		})
		if err != nil {
			return fmt.Errorf("look for pieces that nobody has sent: %w", err)
		}
	}
	slices.SortFunc(all, object.Digest.Compare)
	all = slices.Compact(all)
	e.h.Runs = slices.DeleteFunc(e.h.Runs, func(r wire.Run) bool { return r.Kind == wire.NotStored })
	fresh := recordsOf(slices.Values(all), func(d object.Digest) wire.Record { return &wire.Missing{Piece: d} })
	_, err := e.p.runs.Add(ctx, e.x.ID, e.h, wire.NotStored, fresh, false, nil)
	return err
}

// packs writes the run of packs.
func (e *proposing) packs(ctx context.Context) error {
	if e.shown != nil {
		for _, w := range e.p.state.Manifest {
			if e.there(w.ID) {
				e.fresh[w.ID] = w
			}
		}
	}
	if !e.whole {
		for _, w := range e.p.state.Manifest {
			if w.Pieces == 0 && !e.used[w.ID] && e.there(w.ID) {
				e.drop(w)
			}
		}
	}
	fresh := slices.SortedFunc(maps.Values(e.fresh), func(a, b wire.Pack) int { return wire.Compare(&a, &b) })
	_, err := e.p.runs.Add(ctx, e.x.ID, e.h, wire.Packs, recordsOf(slices.Values(fresh), func(w wire.Pack) wire.Record { return &w }), false, nil)
	return err
}

// recordsOf yields a record for each element.
func recordsOf[T any](of iter.Seq[T], record func(T) wire.Record) iter.Seq2[wire.Record, error] {
	return func(yield func(wire.Record, error) bool) {
		for x := range of {
			if !yield(record(x), nil) {
				return
			}
		}
	}
}

// drop records in the manifest that an object is no longer named.
func (e *proposing) drop(w wire.Pack) {
	w.Since, w.Dropped = 0, true
	e.fresh[w.ID] = w
}

// Named returns the objects of past epochs that the present one names: packs, differences and the
// parts of checkpoints.
func (p *Page) Named() (ids []epoch.ID) {
	for _, w := range p.state.Manifest {
		ids = append(ids, w.ID)
	}
	if p.state.Header != nil {
		ids = append(ids, parts(p.state.Header)...)
	}
	return ids
}

// NamedBy returns what Named returned in a past epoch. It reads the epoch's checkpoint. Errors:
// base.ErrCorrupt (the checkpoint is damaged, or the bucket has lost it), those of the bucket and
// of ctx.
func (p *Page) NamedBy(ctx context.Context, x *epoch.Proposal) (ids []epoch.ID, err error) {
	if x.Checkpoint == (epoch.ID{}) {
		return nil, nil
	}
	h, err := p.runs.Read(ctx, x)
	if err != nil {
		return nil, err
	}
	err = p.runs.Each(ctx, h, wire.Packs, func(r wire.Record) error {
		if w := r.(*wire.Pack); !w.Dropped {
			ids = append(ids, w.ID)
		}
		return nil
	})
	return append(ids, parts(h)...), err
}

// parts returns the runs and snapshots of a checkpoint.
func parts(h *checkpoint.Header) (ids []epoch.ID) {
	for _, r := range h.Runs {
		ids = append(ids, r.ID)
	}
	for _, s := range h.Snapshots {
		ids = append(ids, s.Diff.Pack)
	}
	return ids
}

// compareIDs orders ids.
func compareIDs(a, b epoch.ID) int { return bytes.Compare(a[:], b[:]) }
