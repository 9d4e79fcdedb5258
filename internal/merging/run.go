package merging

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/merge"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// Wait merges the durable heads, as Merge does, and waits until the page has one. Errors:
// *merge.Error, base.ErrConflict (several heads and no background merges), base.ErrReadOnly,
// base.ErrNoSpace, base.ErrCorrupt, those of ctx.
func (m *Driver) Wait(ctx context.Context) error {
	err := ctx.Err()
	if heads := len(m.store().Heads()); err == nil && heads > 1 {
		if !m.env.Automatic {
			return fmt.Errorf("wait for merge: the page has %d heads, and nothing merges them by itself: %w", heads, base.ErrConflict)
		}
		_, err = m.Merge(ctx)
	}
	if err != nil {
		return fmt.Errorf("wait for merge: %w", err)
	}
	return nil
}

// run is one attempt to merge the heads of a page.
type run struct {
	m       *Driver
	rules   Rules
	sink    *storage.Journal
	heads   []*commit.Commit
	cloud   *cloudsync.Standing // as of the heads or later
	merged  []merge.Merged
	inTurn  bool                  // it holds the write turn and must not fetch
	failure atomic.Pointer[error] // of code that cannot return one
}

// fail makes the run fail, unless it has already failed.
func (r *run) fail(err error) { r.failure.CompareAndSwap(nil, &err) }

// errAgain ends a run that must start again at once: the rules of the page have changed, or the run
// would have to fetch a tree while writers wait, or the tree of a common ancestor is lost
// everywhere and the next run will not use it, or history was given up that the run may have read
// in part.
var errAgain = errors.New("the merge begins again")

var errRulesChanged = fmt.Errorf("the rules have changed: %w", errAgain)

// Merge merges the durable heads until there is one, with the page's present rules, and returns the
// merges in order; with an error, those made before it. Concurrent calls wait for each other.
// Errors: *merge.Error, base.ErrReadOnly, base.ErrNoSpace, base.ErrCorrupt, those of ctx.
func (m *Driver) Merge(ctx context.Context) ([]merge.Merged, error) {
	if m.env.Session.ReadOnly {
		if len(m.store().Heads()) > 1 {
			return nil, fmt.Errorf("merge: the repository is open for reading: %w", base.ErrReadOnly)
		}
		return nil, nil
	}
	if err := m.turn.Take(ctx); err != nil {
		return nil, fmt.Errorf("merge: %w", err)
	}
	defer m.turn.Give()
	var all []merge.Merged
	for {
		started := m.env.Session.Clock.Now()
		results, err := m.once(ctx)
		if errors.Is(err, errAgain) && ctx.Err() == nil {
			continue
		}
		if err != nil {
			if ctx.Err() == nil {
				m.env.Failed(err)
				m.env.Session.Note(err)
			}
			return all, err
		}
		if len(results) == 0 {
			return all, nil
		}
		all = append(all, results...)
		took := m.env.Session.Clock.Now().Sub(started)
		for _, merged := range results {
			m.env.Merged(merged, took)
		}
	}
}

// once merges the durable heads with the page's present rules. It returns no results when there is
// one head.
func (m *Driver) once(ctx context.Context) ([]merge.Merged, error) {
	ctx, done := m.beginRun(ctx)
	defer done()
	r := &run{m: m}
	defer r.rollback()
	if err := r.protect("Options.MergeRules", func() error {
		r.rules = m.env.Rules()
		return nil
	}); err != nil {
		return nil, fmt.Errorf("merge: %w", err)
	}
	r.begin()
	if err := r.take(ctx, m.store().Heads()); err != nil || len(r.heads) <= 1 {
		return nil, err
	}
	if err := r.compute(ctx); err != nil {
		return nil, err
	}
	pending, err := r.submit(ctx)
	if err != nil || pending == nil {
		return nil, r.explain(ctx, err)
	}
	if err := pending.Wait(); err != nil {
		return nil, r.explain(ctx, err)
	}
	return r.merged, nil
}

// begin makes a new journal, before the heads are read: if the disk fails in between, the merge
// fails too and does not rely on lost data.
func (r *run) begin() {
	r.rollback()
	r.sink = r.m.store().NewJournal()
}

func (r *run) rollback() {
	if r.sink != nil {
		r.sink.Rollback()
	}
}

// take takes the heads to merge, and the record of the bucket that leads to their bases.
func (r *run) take(ctx context.Context, heads []*commit.Commit) (err error) {
	if r.cloud, err = cloudsync.StandingOf(ctx, r.m.store()); err != nil {
		return fmt.Errorf("merge: %w", err)
	}
	r.heads = heads
	return nil
}

// compute makes the merges of r.heads in the journal.
func (r *run) compute(ctx context.Context) error {
	rules, err := r.rules.compile(r)
	if err != nil {
		return r.explain(ctx, err)
	}
	r.merged, err = merge.Heads(ctx, r.env(), rules, r.heads)
	if failure := r.failure.Load(); failure != nil {
		err = *failure
	}
	if ctx.Err() == nil && r.sink.Pruned() {
		return fmt.Errorf("merge while history is given up: %w", errAgain)
	}
	return r.explain(ctx, err)
}

// env returns the page for package merge.
func (r *run) env() *merge.Env {
	store := r.m.store()
	lost := func(id commit.ID) bool {
		_, ok := r.m.lost.Load(id)
		return ok
	}
	return &merge.Env{
		View: merge.View{
			Page: store.Page(), Commits: r.cloud.Over(r.m.page.Commits(), store), Lost: lost,
			Tree: func(c *commit.Commit) btree.Tree {
				return btree.Tree{Page: store.Page(), Source: fetchingNodes{r, c.ID}, Root: c.Root}
			},
		},
		Sink: r.sink, Pieces: r.sink, Table: r.m.env.Session.Table(),
	}
}

// fetchingNodes reads the nodes of a commit's tree for a merge, and fetches the tree of a treeless
// common ancestor.
type fetchingNodes struct {
	run *run
	id  commit.ID
}

// Node implements btree.Source.
func (f fetchingNodes) Node(ctx context.Context, d object.Digest) (*fb.Node, error) {
	n, err := f.run.sink.Node(ctx, d)
	if err == nil || !errors.Is(err, base.ErrNeedsFetch) || f.run.inTurn {
		return n, err
	}
	err = f.run.m.env.Fetch(ctx, f.id)
	if errors.Is(err, base.ErrGone) {
		if _, known := f.run.m.lost.LoadOrStore(f.id, true); !known {
			return nil, fmt.Errorf("fetch the tree of commit %s: %w: %w", f.id.Short(), errAgain, err)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("fetch the tree of commit %s: %w", f.id.Short(), err)
	}
	return f.run.sink.Node(ctx, d)
}

// submit submits the merges to the disk. It returns nil when no work is left.
func (r *run) submit(ctx context.Context) (pending *storage.Pending, err error) {
	store := r.m.store()
	unlock, err := store.Lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if r.moved() {
		if len(store.ChainedHeads()) == 1 {
			return nil, nil
		}
		// With code of the app the merge is kept, and new heads are merged next. Otherwise the
		// merge runs again in this turn, in which no writer can commit: on a busy page it might
		// never finish.
		if r.rules.quick() {
			if err := r.again(ctx); err != nil {
				if errors.Is(err, base.ErrNeedsFetch) {
					err = fmt.Errorf("%w: %w", errAgain, err)
				}
				return nil, err
			}
		}
	}
	var cs []*commit.Commit
	for i := range r.merged {
		m := &r.merged[i]
		if m.Conflicts > 0 {
			r.sink.Explain(m.Commit.ID, m.Explanation)
		}
		cs = append(cs, m.Commit)
	}
	if err := ctx.Err(); err != nil { // also when the rules have changed
		return nil, err
	}
	return store.Submit(ctx, r.sink, cs...)
}

// moved reports whether the heads differ from the merged ones. The caller holds the write turn.
func (r *run) moved() bool {
	return !slices.EqualFunc(r.m.store().ChainedHeads(), r.heads, func(a, b *commit.Commit) bool { return a.ID == b.ID })
}

// again merges the heads again while no writer can commit.
func (r *run) again(ctx context.Context) error {
	r.begin()
	r.inTurn = true
	heads := r.m.store().ChainedHeads()
	for _, h := range heads {
		if err := r.m.store().WaitDurable(h); err != nil {
			return err
		}
	}
	if err := r.take(ctx, heads); err != nil {
		return err
	}
	return r.compute(ctx)
}

// explain adds the heads to an error, and the cause when the context ended the run.
func (r *run) explain(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ended := ctx.Err(); ended != nil {
		return fmt.Errorf("merge: %w", cmp.Or(context.Cause(ctx), ended))
	}
	if _, ok := errors.AsType[*merge.Error](err); ok {
		return err
	}
	return &merge.Error{Left: r.heads[0].ID, Right: r.heads[1].ID, Err: err}
}
