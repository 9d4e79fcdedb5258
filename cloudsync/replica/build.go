package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// BuildTrees builds the trees of treeless commits from the checkpoint and the entries of the epoch.
// It makes no request if all trees are here. It also stores the trees that it builds on the way. It
// reads the commits of the checkpoint twice, for any number of ids, and holds 24 bytes for each.
// Errors: base.ErrGone if the log does not lead to one of the trees, after building the others;
// those of the bucket, of the disk and of ctx; base.ErrCorrupt, naming the object, for damage in
// the bucket.
func (p *Page) BuildTrees(ctx context.Context, ids []commit.ID) error {
	wanted, err := p.treeless(ctx, ids)
	if len(wanted) > 0 {
		if err = p.newBuilder(false).build(ctx, wanted); errors.Is(err, base.ErrCorrupt) {
			err = p.newBuilder(true).build(ctx, wanted)
		}
	}
	if err != nil {
		return blame(p.o.Names.Checkpoints(p.state.At.Epoch), fmt.Errorf("build %d trees: %w", len(ids), err))
	}
	return nil
}

// builder builds trees in passes over the commits of the log.
type builder struct {
	p *Page
	// kept leaves out records of commits that were given up after their run was written: the bucket
	// may have deleted what these need.
	kept bool
	// bases are the commits from whose trees the differences lead, 0 for the empty tree.
	bases map[epoch.Commit]epoch.Commit
	// needed are the commits whose differences are applied. starts are the commits whose trees a
	// snapshot has.
	needed map[epoch.Commit]bool
	starts map[epoch.Commit]*commit.Commit
	s      *step // has data that is not submitted
	built  map[epoch.Commit]object.Digest
}

func (p *Page) newBuilder(kept bool) *builder {
	return &builder{
		p: p, kept: kept, bases: map[epoch.Commit]epoch.Commit{}, needed: map[epoch.Commit]bool{}, starts: map[epoch.Commit]*commit.Commit{},
	}
}

// builtTogether is how many trees are submitted together.
const builtTogether = 256

func (b *builder) build(ctx context.Context, wanted []*commit.Commit) error {
	roots := map[epoch.Commit]*commit.Commit{} // of snapshots
	snapshots := map[object.Digest]bool{}
	if h := b.p.state.Header; h != nil {
		for _, n := range h.Snapshots {
			snapshots[n.To] = true
		}
	}
	err := b.eachCommit(ctx, func(r *wire.Commit) error {
		id := short(r.Commit.ID)
		if _, ok := b.bases[id]; ok || r.Treeless {
			return nil
		}
		if b.bases[id] = 0; !r.Base.IsZero() && r.Base != commit.First().ID {
			b.bases[id] = short(r.Base)
		}
		if snapshots[r.Commit.Root] {
			roots[id] = r.Commit
		}
		return nil
	})
	if err != nil {
		return err
	}
	var gone error
	for _, c := range wanted {
		ok, err := b.plan(ctx, short(c.ID), roots)
		if err != nil {
			return err
		}
		if !ok {
			gone = fmt.Errorf("the log does not lead to the tree of commit %s: %w", c.ID, base.ErrGone)
		}
	}
	if err := b.follow(ctx); err != nil {
		return err
	}
	return gone
}

// treeless returns the given commits whose trees are not here.
func (p *Page) treeless(ctx context.Context, ids []commit.ID) (out []*commit.Commit, err error) {
	for _, id := range ids {
		c, err := p.o.Store.Commit(ctx, id)
		if err != nil {
			return nil, err
		}
		held, err := p.o.Store.TreeHeld(ctx, c)
		if err != nil {
			return nil, fmt.Errorf("look for the tree of commit %s: %w", id, err)
		}
		if !held {
			out = append(out, c)
		}
	}
	return out, nil
}

// eachCommit calls fn with the commit records of the checkpoint and of the entries of the epoch.
func (b *builder) eachCommit(ctx context.Context, fn func(*wire.Commit) error) error {
	s := b.p.state
	if s.Header != nil {
		err := b.p.runs.Each(ctx, s.Header, wire.Commits, func(r wire.Record) error {
			c := r.(*wire.Commit)
			if b.kept && s.wasGivenUp(short(c.Commit.ID)) {
				return nil
			}
			return fn(c)
		})
		if err != nil {
			return badObject("", err)
		}
	}
	for n := s.At.Number - s.Entries + 1; n <= s.At.Number; n++ {
		err := b.p.readEntry(ctx, s.At.Epoch, n, func(r wire.Record, _ storage.CloudPlace) error {
			if c, ok := r.(*wire.Commit); ok {
				return fn(c)
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// plan finds the differences that lead to the tree of a commit. It reports false if the log lacks
// one.
func (b *builder) plan(ctx context.Context, at epoch.Commit, roots map[epoch.Commit]*commit.Commit) (bool, error) {
	var chain []epoch.Commit
	for at != 0 && !b.needed[at] && b.starts[at] == nil {
		if len(chain) > 0 || roots[at] == nil {
			_, held, err := b.treeHere(ctx, at)
			if err != nil {
				return false, err
			}
			if held {
				break
			}
		}
		if c := roots[at]; c != nil {
			b.starts[at] = c
			break
		}
		next, ok := b.bases[at]
		if !ok || len(chain) > len(b.bases) {
			return false, nil
		}
		chain = append(chain, at)
		at = next
	}
	for _, c := range chain {
		b.needed[c] = true
	}
	return true, nil
}

// treeHere returns the root of the tree of a commit, and whether the tree is here.
func (b *builder) treeHere(ctx context.Context, at epoch.Commit) (root object.Digest, held bool, err error) {
	cs, err := b.p.load(ctx, epoch.Set{at})
	if err != nil || len(cs) == 0 {
		return root, false, err
	}
	held, err = b.p.o.Store.TreeHeld(ctx, cs[0])
	return cs[0].Root, held, err
}

// follow applies the needed differences.
func (b *builder) follow(ctx context.Context) error {
	if err := b.begin(ctx); err != nil {
		return err
	}
	defer func() { b.s.end() }()
	for id, c := range b.starts {
		if err := b.p.snapshot(ctx, b.s, b.p.state.Header, c.Root); err != nil {
			return err
		}
		b.built[id] = c.Root
		b.add(ctx, c)
	}
	if len(b.needed) > 0 {
		if err := b.eachCommit(ctx, func(r *wire.Commit) error { return b.step(ctx, r) }); err != nil {
			return err
		}
	}
	return b.submit(ctx)
}

func (b *builder) begin(ctx context.Context) (err error) {
	b.built = map[epoch.Commit]object.Digest{}
	b.s, err = b.p.begin(ctx)
	return err
}

// add adds the tree of a commit to the step, if the commit is here.
func (b *builder) add(ctx context.Context, c *commit.Commit) {
	if _, err := b.p.o.Store.Commit(ctx, c.ID); err == nil {
		b.s.b.Commits = append(b.s.b.Commits, storage.ReceivedCommit{Commit: c, Shallow: true})
	}
}

// submit stores the trees built so far.
func (b *builder) submit(ctx context.Context) error {
	if len(b.s.b.Commits) == 0 {
		return nil
	}
	if err := submit(ctx, b.p.o.Store, b.s.j, &b.s.b); err != nil {
		return err
	}
	b.s.end()
	return b.begin(ctx)
}

// step applies the difference of a commit if it is needed.
func (b *builder) step(ctx context.Context, r *wire.Commit) error {
	id := short(r.Commit.ID)
	if !b.needed[id] {
		return nil
	}
	delete(b.needed, id)
	from, ok := btree.EmptyRoot, true
	if !r.Base.IsZero() && r.Base != commit.First().ID {
		if from, ok = b.built[short(r.Base)]; !ok {
			var err error
			if from, ok, err = b.treeHere(ctx, short(r.Base)); err != nil {
				return err
			}
		}
	}
	if !ok {
		return fmt.Errorf("commit %s: the difference leads from a tree that is not here: %w", r.Commit.ID, base.ErrGone)
	}
	if err := b.p.applyDiffs(ctx, from, r.Commit.Root, []wire.Diff{r.Diff}, b.s, b.s, nil); err != nil {
		return fmt.Errorf("commit %s: %w", r.Commit.ID, err)
	}
	b.built[id] = r.Commit.Root
	if b.add(ctx, r.Commit); len(b.s.b.Commits) < builtTogether {
		return nil
	}
	return b.submit(ctx)
}

// rescue secures the data that commits need. It builds trees of treeless commits, as far as the log
// leads to them. It fetches pieces that are not held and whose places, as lost reports, no longer
// count.
func (p *Page) rescue(ctx context.Context, needed epoch.Graph, lost func(storage.CloudPlace) bool) error {
	cs, err := p.load(ctx, needed.Set())
	if err != nil {
		return err
	}
	if err := p.BuildTrees(ctx, idsOf(cs)); err != nil && !errors.Is(err, base.ErrGone) && !errors.Is(err, base.ErrCorrupt) {
		return err
	}
	slices.SortFunc(cs, commit.CompareGeneration)
	r := &rescuer{p: p, lost: lost, seen: map[object.Digest]bool{}}
	for _, c := range cs {
		i, _ := needed.Index(short(c.ID))
		near, err := p.load(ctx, needed[i].Near) // the log keeps these, or they are needed too
		if err == nil {
			_, err = p.values(ctx, c, near, r.piece)
		}
		if err != nil {
			return err
		}
	}
	return r.fetch(ctx)
}

// rescuer fetches pieces as long as their places count.
type rescuer struct {
	p    *Page
	lost func(storage.CloudPlace) bool
	seen map[object.Digest]bool
	want []object.Digest
}

// piece examines a piece. It reports whether to go on with the pieces that the piece lists.
func (r *rescuer) piece(ctx context.Context, d object.Digest) (bool, error) {
	if r.seen[d] {
		return false, nil
	}
	if len(r.seen) >= maxKnown {
		clear(r.seen)
	}
	r.seen[d] = true
	st, err := r.p.o.Store.PieceState(d)
	if err != nil || st.Held || !st.Synced || !r.lost(st.Place) {
		return st.Held, err
	}
	if r.want = append(r.want, d); len(r.want) < maxMissing && !d.Kind().IsIndex() {
		return false, nil
	}
	if err := r.fetch(ctx); err != nil {
		return false, err
	}
	st, err = r.p.o.Store.PieceState(d)
	return st.Held, err
}

// fetch fetches the queued pieces, as far as the bucket has them.
func (r *rescuer) fetch(ctx context.Context) error {
	want := r.want
	r.want = nil
	return r.p.Salvage(ctx, want)
}

// Salvage fetches pieces as far as they are readable at their places: one by one if not all are
// readable. Errors are those of the bucket and of the disk; lost pieces are no error.
func (p *Page) Salvage(ctx context.Context, ds []object.Digest) error {
	fetch := func(ds []object.Digest) (whole bool, err error) {
		_, err = p.o.Fetcher.FetchAll(ctx, ds)
		if errors.Is(err, base.ErrGone) || errors.Is(err, base.ErrCorrupt) || errors.Is(err, base.ErrUnsupported) {
			return false, nil
		}
		return true, err
	}
	if whole, err := fetch(ds); whole || err != nil {
		return err
	}
	for _, d := range ds {
		if _, err := fetch([]object.Digest{d}); err != nil {
			return err
		}
	}
	return nil
}
