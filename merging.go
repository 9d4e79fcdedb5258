package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync/atomic"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/merge"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// MergeResult is one merge of two heads.
type MergeResult struct {
	// Commit is the merge commit, and Left and Right its parents: Left is the lesser by (timestamp,
	// id).
	Commit, Left, Right Commit
	// How tells what it took: "three-way" (key by key), "equal" (both sides had the same content),
	// "subset" (only one side had commits that are no merges), "rest" (neither had: the greater was
	// taken whole), or "known" (the page had the merge already).
	How string
	// Conflicts counts the decisions that Page.Conflicts gives for Commit.
	Conflicts int
}

// MergeError says which heads could not be merged. Errors of a Resolver or a GroupStrategy are in
// it.
type MergeError struct {
	Left, Right CommitID
	Err         error
}

// Error implements error.
func (e *MergeError) Error() string {
	return fmt.Sprintf("merge %s and %s: %v", e.Left.Short(), e.Right.Short(), e.Err)
}

// Unwrap returns the cause.
func (e *MergeError) Unwrap() error { return e.Err }

// errTreeMissing ends a run that would have to fetch a tree while it keeps others from writing: the
// next run fetches it before.
var errTreeMissing = errors.New("a tree is to be fetched")

// errTreeLost ends a run that needs the tree of a common ancestor which is nowhere any more: the
// next run does without it.
var errTreeLost = errors.New("a tree is lost")

// errRulesChanged ends a run whose rules are no longer those of the page.
var errRulesChanged = errors.New("the rules have changed")

// Merge merges all durable heads of the page into one, now, and waits until that is durable. It
// does so with Options.Merge.Manual too, which is what it is for; else the heads come together in
// the background. Heads that appear while a resolver thinks are merged next. It returns the merges
// in order, nil when there was one head; with an error, those that had come about before it. Merges
// of one page run one after another; ctx governs the waiting and is what resolvers get. It must not
// be called by an Update closure, a Resolver or a GroupStrategy of the same page, which would wait
// for itself. Errors: *MergeError, ErrClosed, ErrReadOnly, ErrNoSpace, ErrCorrupt, those of ctx.
func (p *Page) Merge(ctx context.Context) ([]MergeResult, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	call := p.gate.Call(ctx)
	defer call.Release()
	if err := call.Err(); err != nil {
		return nil, call.Explain(fmt.Errorf("merge: %w", err))
	}
	results, err := p.shared.merger.attempt(call)
	return results, call.Explain(err)
}

// WaitForMerge waits until the page has one durable head. It has a merge that failed before tried
// again at once, and returns the error of an attempt that is made during the call. Where nothing
// merges by itself, with Options.Merge.Manual or read-only, it fails at once with ErrConflict when
// there are several heads. As to where it must not be called see Merge. Errors: *MergeError,
// ErrConflict, ErrClosed, ErrReadOnly, ErrNoSpace, ErrCorrupt, those of ctx.
func (p *Page) WaitForMerge(ctx context.Context) error {
	if err := p.enter(); err != nil {
		return err
	}
	defer p.leave()
	call := p.gate.Call(ctx)
	defer call.Release()
	for {
		if err := call.Err(); err != nil {
			return call.Explain(fmt.Errorf("wait for merge: %w", err))
		}
		changed := p.store.HeadsChanged()
		heads := len(p.store.Heads())
		if heads == 1 {
			return nil
		}
		if !p.shared.merger.automatic {
			return fmt.Errorf("wait for merge: the page has %d heads, and nothing merges them by itself: %w", heads, ErrConflict)
		}
		outcome, forget := p.shared.merger.request()
		select {
		case err := <-outcome:
			if err != nil {
				return fmt.Errorf("wait for merge: %w", err)
			}
		case <-changed:
		case <-call.Done():
		}
		forget()
	}
}

// mergeRun is one attempt to merge the heads of a page.
type mergeRun struct {
	m       *merger
	rules   *MergeRules
	version uint64 // of the rules
	journal *storage.Journal
	sink    *txSink // guards journal
	heads   []*commit.Commit
	cloud   *cloudsync.Standing // as of the heads or later
	merged  []merge.Merged
	inTurn  bool                  // it has the write turn: nothing can be fetched
	failure atomic.Pointer[error] // of code that cannot return one
}

// fail makes the run fail, unless it has failed already.
func (run *mergeRun) fail(err error) { run.failure.CompareAndSwap(nil, &err) }

// attempt merges the durable heads until there is one, with the rules that the page has then. One
// at a time does so.
func (m *merger) attempt(ctx context.Context) ([]MergeResult, error) {
	if m.s.repo.o.ReadOnly {
		if len(m.s.store.Heads()) > 1 {
			return nil, fmt.Errorf("merge: the repository is open for reading: %w", ErrReadOnly)
		}
		return nil, nil
	}
	select {
	case m.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("merge: %w", ctx.Err())
	}
	defer func() { <-m.turn }()
	var all []MergeResult
	for {
		started := m.s.repo.clock.Now()
		results, err := m.once(ctx)
		if (errors.Is(err, errRulesChanged) || errors.Is(err, errTreeMissing) || errors.Is(err, errTreeLost)) && ctx.Err() == nil {
			continue
		}
		if err != nil {
			if ctx.Err() == nil {
				m.s.observe(Event{Kind: EventMergeFailed, Err: err})
				m.s.note(err)
			}
			return all, err
		}
		if len(results) == 0 {
			return all, nil
		}
		all = append(all, results...)
		took := m.s.repo.clock.Now().Sub(started)
		for _, r := range results {
			m.s.observe(Event{Kind: EventMerge, Commit: r.Commit.ID, Changes: r.Conflicts, Duration: took})
		}
	}
}

// once merges the durable heads with the rules that the page has now. It returns no results when
// there is one head.
func (m *merger) once(ctx context.Context) ([]MergeResult, error) {
	ctx, version, done := m.beginRun(ctx)
	defer done()
	run := &mergeRun{m: m, version: version}
	defer run.rollback()
	if err := run.protect("Options.Merge.Rules", func() error {
		run.rules = m.s.repo.rules(m.s.key)
		return nil
	}); err != nil {
		return nil, fmt.Errorf("merge: %w", err)
	}
	run.begin()
	if err := run.take(ctx, m.s.store.Heads()); err != nil || len(run.heads) <= 1 {
		return nil, err
	}
	if err := run.compute(ctx); err != nil {
		return nil, err
	}
	pending, err := run.submit(ctx)
	if err != nil || pending == nil {
		return nil, run.explain(ctx, err)
	}
	if err := pending.Wait(); err != nil {
		return nil, run.explain(ctx, err)
	}
	return run.results(), nil
}

// begin makes a new journal. It comes before the heads: should the disk fail in between, the merge
// fails too and does not rely on what is lost.
func (run *mergeRun) begin() {
	run.rollback()
	run.journal = run.m.s.store.NewJournal()
	run.sink = &txSink{j: run.journal}
}

func (run *mergeRun) rollback() {
	if run.sink != nil {
		run.sink.rollback()
	}
}

// take takes the heads that are to be merged. Where the bucket has begun an epoch without commits
// on which something here stands, those of its log are merged first.
func (run *mergeRun) take(ctx context.Context, heads []*commit.Commit) (err error) {
	if run.cloud, err = cloudsync.StandingOf(ctx, run.m.s.store); err != nil {
		return fmt.Errorf("merge: %w", err)
	}
	if run.heads, err = run.cloud.First(ctx, run.m.s.store, heads); err != nil {
		return fmt.Errorf("merge: %w", err)
	}
	return nil
}

// compute makes the merges of run.heads in the journal.
func (run *mergeRun) compute(ctx context.Context) error {
	rules, err := run.rules.compile(run)
	if err != nil {
		return run.explain(ctx, err)
	}
	run.merged, err = merge.Heads(ctx, run.env(), rules, run.heads)
	if failure := run.failure.Load(); failure != nil {
		err = *failure
	}
	return run.explain(ctx, err)
}

// env returns the page for package merge.
func (run *mergeRun) env() *merge.Env {
	s := run.m.s
	commits := newRootsOf(storedCommits{run.m.page})
	commits.lost = run.m.isLost
	for _, h := range run.heads {
		commits.add(h)
	}
	return &merge.Env{
		View: merge.View{
			Page: s.key.ID, Commits: run.cloud.Over(commits, s.store), Nodes: fetchingNodes{run, commits}, Pieces: run.sink, Explanation: s.store.Explanation,
			Lost: run.m.isLost,
		},
		Sink: run.sink,
		Scratch: func() (merge.Sink, func()) {
			k := &txSink{j: s.store.NewJournal()}
			return k, k.rollback
		},
		Table: s.repo.table.Load(),
		Known: s.mergesOf,
	}
}

// fetchingNodes reads nodes for a merge, which may need the tree of a common ancestor that is known
// as history only.
type fetchingNodes struct {
	run     *mergeRun
	commits *rootsOf
}

// Node implements btree.Source.
func (f fetchingNodes) Node(ctx context.Context, d object.Digest) (*fb.Node, error) {
	n, err := f.run.sink.Node(ctx, d)
	if err == nil || !errors.Is(err, ErrNeedsFetch) {
		return n, err
	}
	id, ok := f.commits.of(d)
	if !ok || f.run.inTurn {
		return nil, err
	}
	synced, err := f.run.m.s.cloud.Synced(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNeedsFetch, err)
	}
	err = synced.BuildTree(ctx, id)
	if errors.Is(err, ErrGone) && f.run.m.lose(id) {
		return nil, fmt.Errorf("fetch the tree of commit %s: %w: %w", id.Short(), errTreeLost, err)
	}
	if err != nil {
		return nil, fmt.Errorf("fetch the tree of commit %s: %w", id.Short(), err)
	}
	return f.run.sink.Node(ctx, d)
}

// mergesOf returns the commits that merge exactly a and b.
func (s *pageStore) mergesOf(ctx context.Context, a, b commit.ID) ([]*commit.Commit, error) {
	ids, err := s.store.Merges(ctx, a, b)
	if err != nil {
		return nil, err
	}
	cs := make([]*commit.Commit, 0, len(ids))
	for _, id := range ids {
		c, err := s.store.Known(ctx, id)
		if err != nil {
			return nil, err
		}
		cs = append(cs, c)
	}
	return cs, nil
}

// submit hands the merges to the disk. It returns nil when nothing is left to be done.
func (run *mergeRun) submit(ctx context.Context) (*storage.Pending, error) {
	store := run.m.s.store
	unlock, err := store.Lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	moved, err := run.moved(ctx)
	if err != nil {
		return nil, err
	}
	if moved {
		if len(store.ChainedHeads()) == 1 {
			return nil, nil
		}
		// With code of the app the merge stands as it is, and what is new is merged next.
		// Otherwise, on a busy page, it might never catch up: nobody commits in this turn.
		if run.rules.quick() {
			if err := run.again(ctx); err != nil {
				if errors.Is(err, ErrNeedsFetch) {
					err = fmt.Errorf("%w: %w", errTreeMissing, err)
				}
				return nil, err
			}
		}
	}
	run.sink.mu.Lock() // against readers that a resolver has left behind
	defer run.sink.mu.Unlock()
	var cs []*commit.Commit
	for i := range run.merged {
		m := &run.merged[i]
		if m.Conflicts > 0 {
			run.journal.Explain(m.Commit.ID, m.Explanation)
		}
		cs = append(cs, m.Commit)
	}
	if err := cmp.Or(ctx.Err(), run.m.check(run.version)); err != nil {
		return nil, err
	}
	return store.Submit(ctx, run.journal, cs...)
}

// moved reports whether there are other heads than those that have been merged. The caller holds
// the write turn.
func (run *mergeRun) moved(ctx context.Context) (bool, error) {
	heads, err := run.cloud.First(ctx, run.m.s.store, run.m.s.store.ChainedHeads())
	if err != nil {
		return false, fmt.Errorf("merge: %w", err)
	}
	return !slices.EqualFunc(heads, run.heads, func(a, b *commit.Commit) bool { return a.ID == b.ID }), nil
}

// again merges the heads anew while nobody can commit.
func (run *mergeRun) again(ctx context.Context) error {
	run.begin()
	run.inTurn = true
	if err := run.take(ctx, run.m.s.store.ChainedHeads()); err != nil {
		return err
	}
	for _, h := range run.heads {
		if err := run.m.s.store.WaitDurable(h); err != nil {
			return err
		}
	}
	return run.compute(ctx)
}

// explain says which heads an error is about, and what ended the run where its context did.
func (run *mergeRun) explain(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ended := ctx.Err(); ended != nil {
		return fmt.Errorf("merge: %w", cmp.Or(context.Cause(ctx), ended))
	}
	if _, ok := errors.AsType[*MergeError](err); ok {
		return err
	}
	return &MergeError{Left: CommitID(run.heads[0].ID), Right: CommitID(run.heads[1].ID), Err: err}
}

func (run *mergeRun) results() []MergeResult {
	out := make([]MergeResult, len(run.merged))
	for i, m := range run.merged {
		out[i] = MergeResult{
			Commit: newCommit(m.Commit), Left: newCommit(m.Left), Right: newCommit(m.Right), How: howText(m.How), Conflicts: m.Conflicts,
		}
	}
	return out
}

func howText(h merge.How) string {
	switch h {
	case merge.Known:
		return "known"
	case merge.Equal:
		return "equal"
	case merge.Subset:
		return "subset"
	case merge.Rest:
		return "rest"
	}
	return "three-way"
}

// Decision is what a merge decided about a key.
type Decision struct {
	Key []byte
	// Outcome is "left", "right", "new" or "deleted": what a side had, a value that neither had, or
	// nothing.
	Outcome string
	// Rule names what decided, such as "last one wins".
	Rule string
	// LeftWriter and RightWriter are the commits that had given the key what it had on each side;
	// zero where the rule did not look for them.
	LeftWriter, RightWriter CommitID
	// Left and Right are the entries of the merge's parents, Left of the lesser by (timestamp, id),
	// and Result is that of the merge; nil where the key is absent. Their values may be read until
	// the page is closed.
	Left, Right, Result *Entry
}

// Conflicts yields what a merge commit decided about the keys that begin with prefix, in order of
// keys; nothing for a merge without conflicts. The record is one of this repository: a merge that
// came from elsewhere may have none. Errors, as the last element: ErrNotFound, ErrInvalid (the
// commit is no merge), ErrClosed, ErrCorrupt, those of ctx.
func (p *Page) Conflicts(ctx context.Context, id CommitID, prefix []byte) iter.Seq2[Decision, error] {
	return func(yield func(Decision, error) bool) {
		fail := func(err error) { yield(Decision{}, fmt.Errorf("read the conflicts of merge %s: %w", id.Short(), err)) }
		c, release, err := p.pinOutside(ctx, id)
		if err != nil {
			fail(err)
			return
		}
		defer release()
		left, right, err := p.sides(ctx, c)
		if err != nil {
			fail(err)
			return
		}
		root, ok, err := p.explanation(ctx, c.ID)
		if err != nil {
			fail(err)
			return
		}
		if !ok {
			return
		}
		trees := [3]btree.Tree{p.tree(left), p.tree(right), p.tree(c)}
		for d, err := range merge.Decisions(ctx, p.mergeView(), root, prefix) {
			var out Decision
			if err == nil {
				out, err = p.newDecision(ctx, &d, &trees)
			}
			if err != nil {
				fail(err)
				return
			}
			if !yield(out, nil) {
				return
			}
		}
	}
}

// explanation returns the root of the decisions of a merge, for callers who do not stay entered.
func (p *Page) explanation(ctx context.Context, id commit.ID) (root object.Digest, ok bool, err error) {
	if err := p.enter(); err != nil {
		return root, false, err
	}
	defer p.leave()
	root, ok, err = p.store.Explanation(ctx, id)
	if err != nil {
		p.note(err)
	}
	return root, ok, err
}

// mergeView returns the page for package merge, for callers who do not stay entered.
func (p *Page) mergeView() *merge.View {
	commits := newRootsOf(enteredCommits{p})
	return &merge.View{
		Page: p.shared.key.ID, Commits: nearCommits{commits, p}, Nodes: fetchedRoots{enteredNodes{p}, commits.of}, Pieces: enteredPieces{p}, Explanation: p.explanation,
	}
}

// nearCommits gives the nearest ancestors of a commit of which a parent was given up, for callers
// who do not stay entered.
type nearCommits struct {
	commit.Getter
	p *Page
}

// Near implements merge.NearGetter.
func (n nearCommits) Near(ctx context.Context, id commit.ID) ([]commit.ID, bool, error) {
	return n.p.near(ctx, id)
}

func (p *Page) near(ctx context.Context, id commit.ID) ([]commit.ID, bool, error) {
	if err := p.enter(); err != nil {
		return nil, false, err
	}
	defer p.leave()
	st, err := cloudsync.StandingOf(ctx, p.store)
	if err != nil {
		return nil, false, err
	}
	return st.Near(ctx, p.store, id)
}

// sides returns the parents of a merge commit, the lesser first.
func (p *Page) sides(ctx context.Context, c *commit.Commit) (left, right *commit.Commit, err error) {
	if len(c.Parents) != 2 {
		return nil, nil, fmt.Errorf("the commit has %d parents: %w", len(c.Parents), ErrInvalid)
	}
	if left, err = p.durableCommit(ctx, c.Parents[0]); err != nil {
		return nil, nil, err
	}
	if right, err = p.durableCommit(ctx, c.Parents[1]); err != nil {
		return nil, nil, err
	}
	if commit.Compare(left, right) > 0 {
		left, right = right, left
	}
	return left, right, nil
}

func (p *Page) newDecision(ctx context.Context, d *merge.Decision, trees *[3]btree.Tree) (Decision, error) {
	out := Decision{
		Key: append([]byte{}, d.Key...), Outcome: outcomeText(d.Outcome), Rule: d.Rule,
		LeftWriter: CommitID(d.LeftWriter), RightWriter: CommitID(d.RightWriter),
	}
	for i, to := range []**Entry{&out.Left, &out.Right, &out.Result} {
		e, ok, err := trees[i].Get(ctx, d.Key)
		if err != nil {
			return Decision{}, err
		}
		if ok {
			n := newEntry(p, &e, true)
			*to = &n
		}
	}
	return out, nil
}

func outcomeText(o merge.Outcome) string {
	switch o {
	case merge.TakeLeft:
		return "left"
	case merge.TakeRight:
		return "right"
	case merge.TakeNone:
		return "deleted"
	}
	return "new"
}
