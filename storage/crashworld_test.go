package storage_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/vfs/vfstest"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/split"
	"github.com/ledgerd/ledger/storage"
	"github.com/ledgerd/ledger/storage/index"
)

const worldDir = "repo/page"

// world is a page in memory with what was promised about it: which commits and tags were reported
// as done, and which may be there.
type world struct {
	t   testing.TB
	o   storage.Options
	mem *vfstest.Mem
	ix  *index.Memory
	s   *storage.Store
	rng *rand.Rand

	tidy       bool // make no pieces that no commit reaches
	foldTxRows int  // rows of one transaction of a fold

	boundary func(what string) // after every change of the file system and of the index; may be nil
	before   func() error      // ahead of every change of the index; may be nil

	mu     sync.Mutex
	acked  []*commit.Commit                // guarded by mu
	maybe  []*commit.Commit                // guarded by mu; all that were ever submitted
	models map[commit.ID]map[string][]byte // guarded by mu
	tags   map[string][]commit.ID          // guarded by mu; values that a tag had, zero: absent
	tagged map[string]int                  // guarded by mu; which of them is acknowledged

	// Explanations that merges were submitted with, zero: with none; which of them were
	// acknowledged; and what they hold.
	explained    map[commit.ID][]object.Digest       // guarded by mu
	ackExplained map[commit.ID][]object.Digest       // guarded by mu
	decided      map[object.Digest]map[string][]byte // guarded by mu

	given map[commit.ID]bool // guarded by mu; commits that were pruned, or may be

	model *syncModel // of what sync knows; nil: not looked at
	cloud *cloud     // what a Fetcher gives; nil: there is none

	clock atomic.Int64
}

func newWorld(t testing.TB, seed uint64, o storage.Options) *world {
	w := &world{
		t: t, o: o, foldTxRows: 16, mem: vfstest.NewMem(), ix: index.NewMemory(), rng: rand.New(rand.NewPCG(seed, 77)),
		models: map[commit.ID]map[string][]byte{commit.First().ID: {}}, tags: map[string][]commit.ID{}, tagged: map[string]int{},
		explained: map[commit.ID][]object.Digest{}, ackExplained: map[commit.ID][]object.Digest{}, decided: map[object.Digest]map[string][]byte{},
	}
	w.o.Dir, w.o.Page, w.o.FS, w.o.MemoryIndex = worldDir, testPage, w.mem, w.ix
	if err := w.mem.MkdirAll("repo"); err != nil {
		t.Fatal(err)
	}
	if err := w.mem.SyncDir("."); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) tell(what string) {
	if w.boundary != nil {
		w.boundary(what)
	}
}

// tryOpen opens the page, which it makes at first.
func (w *world) tryOpen() error {
	if err := storage.Create(context.Background(), w.o); err != nil {
		return err
	}
	s, err := storage.Open(context.Background(), w.o)
	if err != nil {
		return err
	}
	storage.SetFoldTxRows(s, w.foldTxRows)
	storage.HookIndex(s, w.before, func() { w.tell("index") })
	w.connect(s)
	w.s = s
	return nil
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) open() { w.t.Helper(); w.must(w.tryOpen()) }

func (w *world) close() { w.t.Helper(); w.must(w.s.Close()) }

func (w *world) reopen() { w.t.Helper(); w.close(); w.open() }

// tx is a commit that is being made.
type tx struct {
	c       *commit.Commit
	p       *storage.Pending
	explain object.Digest // zero: the commit has no explanation
}

// putValue adds the pieces of a value and flushes the journal after every flush pieces; 0: never.
func putValue(ctx context.Context, j *storage.Journal, key string, v []byte, flush int) (btree.Change, error) {
	e := fb.Entry{Key: []byte(key), Value: v, Inline: true, Size: uint64(len(v))}
	if len(v) <= btree.InlineLimit {
		return btree.Change{Entry: e, Delete: v == nil}, nil
	}
	n := 0
	root, err := split.SplitBytes(ctx, split.DefaultTable(), v, func(ctx context.Context, p split.Piece) error {
		if err := j.PutPiece(ctx, p.Digest, p.Content); err != nil {
			return err
		}
		if n++; flush > 0 && n%flush == 0 {
			return j.Flush(ctx)
		}
		return nil
	})
	return btree.Change{Entry: fb.Entry{Key: []byte(key), Digest: root, Size: uint64(len(v))}}, err
}

// submit submits a commit on base, nil: the newest head.
func (w *world) submit(parent *commit.Commit, e edit, flush int) (tx, error) {
	ctx := context.Background()
	unlock, err := w.s.Lock(ctx)
	if err != nil {
		return tx{}, err
	}
	defer unlock()
	j := w.s.NewJournal()
	defer j.Rollback()
	if parent == nil {
		parent = w.s.NewestHead()
	}
	return w.submitJournal(j, e, flush, parent)
}

func (w *world) submitJournal(j *storage.Journal, e edit, flush int, parents ...*commit.Commit) (tx, error) {
	t, err := w.make(j, e, flush, parents...)
	if err != nil {
		return tx{}, err
	}
	txs, err := w.submitAll(j, t)
	return txs[0], err
}

// make makes a commit in a journal and notes what it would hold. It is not submitted.
func (w *world) make(j *storage.Journal, e edit, flush int, parents ...*commit.Commit) (tx, error) {
	ctx := context.Background()
	root, err := btree.Tree{Page: testPage, Source: j, Root: parents[0].Root}.Apply(ctx, j, func(yield func(btree.Change, error) bool) {
		for _, k := range sortedKeys(e) {
			if ch, err := putValue(ctx, j, k, e[k], flush); !yield(ch, err) || err != nil {
				return
			}
		}
	})
	if err != nil {
		return tx{}, err
	}
	c, err := commit.NewMerge(root, parents[0], parents[len(parents)-1])
	if len(parents) == 1 {
		c, err = commit.New(commit.Params{Now: time.Unix(1, w.clock.Add(1)), Root: root, Parents: parents})
	}
	if err != nil {
		return tx{}, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	m := maps.Clone(w.models[parents[0].ID])
	for k, v := range e {
		if m[k] = v; v == nil {
			delete(m, k)
		}
	}
	w.models[c.ID] = m
	return tx{c: c}, nil
}

// explain gives a merge that is being made an explanation of n decisions.
func (w *world) explain(j *storage.Journal, t *tx, rng *rand.Rand, n int) error {
	root, model, err := putDecisions(j, rng, n)
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.decided[root] = model
	w.mu.Unlock()
	t.explain = root
	j.Explain(t.c.ID, root)
	return nil
}

// putDecisions adds a tree of n decisions to a journal, now and then with a rule whose name does
// not fit into an entry.
func putDecisions(j *storage.Journal, rng *rand.Rand, n int) (object.Digest, map[string][]byte, error) {
	ctx := context.Background()
	model := map[string][]byte{}
	for i := range n {
		rule := "last one wins"
		if rng.IntN(10) == 0 {
			rule = strings.Repeat("a rule with a long name ", 20)
		}
		v := append([]byte{1, byte(1 + rng.IntN(4)), 3}, binary.AppendUvarint(nil, uint64(len(rule)))...)
		v = append(append(v, rule...), noise(rng, 64)...)
		model[fmt.Sprintf("key %03d", i)] = v
	}
	root, err := btree.Tree{Page: testPage, Source: j, Root: btree.EmptyRoot}.Apply(ctx, j, func(yield func(btree.Change, error) bool) {
		for _, k := range sortedKeys(model) {
			if ch, err := putValue(ctx, j, k, model[k], 0); !yield(ch, err) || err != nil {
				return
			}
		}
	})
	return root, model, err
}

// submitAll submits commits that were made in a journal, parents first.
func (w *world) submitAll(j *storage.Journal, txs ...tx) ([]tx, error) {
	cs := make([]*commit.Commit, len(txs))
	w.mu.Lock()
	for i, t := range txs {
		cs[i] = t.c
		w.maybe = append(w.maybe, t.c)
		if len(t.c.Parents) == 2 {
			w.explained[t.c.ID] = append(w.explained[t.c.ID], t.explain)
		}
	}
	w.mu.Unlock()
	p, err := w.s.Submit(context.Background(), j, cs...)
	for i := range txs {
		txs[i].p = p
	}
	return txs, err
}

// mergeHeads merges heads with one submission, two by two, most of them with explanations, and now
// and then with a commit on top.
func (w *world) mergeHeads(rng *rand.Rand, heads []*commit.Commit) error {
	j := w.s.NewJournal()
	defer j.Rollback()
	var txs []tx
	top := heads[0]
	for _, h := range heads[1:] {
		t, err := w.make(j, edit{"merged": noise(rng, 20+rng.IntN(600))}, rng.IntN(2), top, h)
		if err == nil && rng.IntN(3) > 0 {
			err = w.explain(j, &t, rng, 1+rng.IntN(30))
		}
		if err != nil {
			return err
		}
		txs, top = append(txs, t), t.c
	}
	if rng.IntN(3) == 0 {
		t, err := w.make(j, small(rng.IntN(100)), 0, top)
		if err != nil {
			return err
		}
		txs = append(txs, t)
	}
	return w.submitAndWait(j, txs)
}

// splitHead makes n commits on one with one submission.
func (w *world) splitHead(rng *rand.Rand, base *commit.Commit, n int) error {
	j := w.s.NewJournal()
	defer j.Rollback()
	var txs []tx
	for range n {
		t, err := w.make(j, edit{fmt.Sprint("side ", rng.IntN(5)): noise(rng, 20+rng.IntN(600))}, 0, base)
		if err != nil {
			return err
		}
		txs = append(txs, t)
	}
	return w.submitAndWait(j, txs)
}

func (w *world) submitAndWait(j *storage.Journal, txs []tx) error {
	txs, err := w.submitAll(j, txs...)
	if err != nil {
		return err
	}
	var errs []error
	for _, t := range txs {
		errs = append(errs, w.wait(t))
	}
	return errors.Join(errs...)
}

// wait waits for a commit and notes the promise.
func (w *world) wait(t tx) error {
	if err := t.p.Wait(); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.acked = append(w.acked, t.c)
	if len(t.c.Parents) == 2 {
		w.ackExplained[t.c.ID] = append(w.ackExplained[t.c.ID], t.explain)
	}
	return nil
}

func (w *world) tryCommit(parent *commit.Commit, e edit, flush int) (*commit.Commit, error) {
	t, err := w.submit(parent, e, flush)
	if err == nil {
		err = w.wait(t)
	}
	return t.c, err
}

func (w *world) commit(e edit) *commit.Commit {
	w.t.Helper()
	c, err := w.tryCommit(nil, e, 0)
	w.must(err)
	return c
}

// commitFlushed makes a commit whose pieces go to bulk segments, flush at a time.
func (w *world) commitFlushed(e edit, flush int) {
	w.t.Helper()
	_, err := w.tryCommit(nil, e, flush)
	w.must(err)
}

// commitGroup makes n commits that go to the log together, as far as the log lets them.
func (w *world) commitGroup(n int, e func(i int) edit) {
	w.t.Helper()
	var txs []tx
	for i := range n {
		t, err := w.submit(nil, e(i), 0)
		w.must(err)
		txs = append(txs, t)
	}
	for _, t := range txs {
		w.must(w.wait(t))
	}
}

// setTag sets a tag, or deletes it when c is nil.
func (w *world) setTag(name string, c *commit.Commit) error {
	var id commit.ID
	if c != nil {
		id = c.ID
	}
	w.mu.Lock()
	if len(w.tags[name]) == 0 {
		w.tags[name] = []commit.ID{{}}
	}
	w.tags[name] = append(w.tags[name], id)
	n := len(w.tags[name]) - 1
	w.mu.Unlock()
	var err error
	if c != nil {
		err = w.s.SetTag(context.Background(), name, id)
	} else {
		err = w.s.DeleteTag(context.Background(), name)
	}
	if err == nil {
		w.mu.Lock()
		w.tagged[name] = n
		w.mu.Unlock()
	}
	return err
}

// promise is what must be there at a moment.
type promise struct {
	acked     []*commit.Commit
	tagged    map[string]int
	explained map[commit.ID][]object.Digest
}

func (w *world) promise() promise {
	w.mu.Lock()
	defer w.mu.Unlock()
	return promise{w.acked[:len(w.acked):len(w.acked)], maps.Clone(w.tagged), maps.Clone(w.ackExplained)}
}

// errHeads marks heads that are not those of the commits that are there.
var errHeads = errors.New("other heads")

// verify compares a page with a promise: every acknowledged commit is there; each other one is,
// with all its ancestors, or is not; the heads are what follows from that; the tags have the last
// value that was acknowledged or one that was set later.
func (w *world) verify(s *storage.Store, p promise, rng *rand.Rand) error {
	ctx := context.Background()
	w.mu.Lock()
	maybe := w.maybe[:len(w.maybe):len(w.maybe)]
	tags := maps.Clone(w.tags)
	w.mu.Unlock()
	w.mu.Lock()
	given := maps.Clone(w.given)
	w.mu.Unlock()
	for _, c := range p.acked {
		if _, err := s.Commit(ctx, c.ID); err != nil && !given[c.ID] {
			return fmt.Errorf("acknowledged commit of generation %d: %w", c.Generation, err)
		}
	}
	present := map[commit.ID]*commit.Commit{commit.First().ID: commit.First()}
	// Newest first: beside writers, a commit may come between two looks, and its parents come
	// before it.
	for _, c := range slices.Backward(maybe) {
		here, err := w.verifyMerge(s, p, c, func() (bool, error) {
			_, err := s.Commit(ctx, c.ID)
			if errors.Is(err, base.ErrNotFound) || given[c.ID] && errors.Is(err, base.ErrGone) {
				return false, nil
			}
			return err == nil, err
		})
		if err != nil {
			return err
		}
		if here {
			present[c.ID] = c
		}
	}
	want := maps.Clone(present)
	for _, c := range present {
		for _, parent := range c.Parents {
			if present[parent] == nil && !given[parent] {
				return fmt.Errorf("commit %s is there without its parent %s", c.ID, parent)
			}
			delete(want, parent)
		}
	}
	if len(given) > 0 && len(want) > 1 {
		delete(want, commit.First().ID) // its children were pruned
	}
	heads := s.Heads()
	for _, h := range heads {
		if want[h.ID] == nil {
			return fmt.Errorf("%s is a head and should not be: %w", h.ID, errHeads)
		}
	}
	if len(heads) != len(want) {
		return fmt.Errorf("%d heads, want %d: %w", len(heads), len(want), errHeads)
	}
	look := heads
	if n := len(p.acked); n > 0 {
		if c := p.acked[rng.IntN(n)]; !given[c.ID] {
			look = append(look, c)
		}
	}
	for _, c := range look {
		if err := w.verifyContent(s, c); err != nil {
			return err
		}
	}
	if err := w.verifyDecisions(s, present, rng); err != nil {
		return err
	}
	if err := w.verifySync(s, present); err != nil {
		return err
	}
	return w.verifyTags(s, p, tags)
}

// verifyMerge asks whether a commit is there, and compares what is known of a merge with that: its
// parents lead to it, and it has an explanation that it was submitted with, an acknowledged one if
// it was acknowledged; or nothing knows it.
func (w *world) verifyMerge(s *storage.Store, p promise, c *commit.Commit, isHere func() (bool, error)) (bool, error) {
	if len(c.Parents) != 2 {
		return isHere()
	}
	ctx := context.Background()
	merges, err := s.Merges(ctx, c.Parents[1], c.Parents[0])
	if err != nil {
		return false, err
	}
	_, explained, err := s.Explanation(ctx, c.ID)
	if err != nil {
		return false, err
	}
	here, err := isHere()
	if err != nil || !here {
		if explained || slices.Contains(merges, c.ID) {
			err = errors.Join(err, fmt.Errorf("merge %s is not there and is listed or explained", c.ID))
		}
		return false, err
	}
	if merges, err = s.Merges(ctx, c.Parents[1], c.Parents[0]); err != nil || !slices.Contains(merges, c.ID) {
		return true, errors.Join(err, fmt.Errorf("merge %s is not listed", c.ID))
	}
	root, _, err := s.Explanation(ctx, c.ID)
	if err != nil {
		return true, err
	}
	w.mu.Lock()
	possible := w.explained[c.ID]
	w.mu.Unlock()
	if acked := p.explained[c.ID]; len(acked) > 0 {
		possible = acked
	}
	if !slices.Contains(possible, root) {
		return true, fmt.Errorf("merge %s of generation %d has explanation %s, want one of %v", c.ID, c.Generation, root, possible)
	}
	return true, nil
}

// verifyDecisions reads the explanation of one of the merges that are there.
func (w *world) verifyDecisions(s *storage.Store, present map[commit.ID]*commit.Commit, rng *rand.Rand) error {
	var merges []commit.ID
	for id, c := range present {
		if len(c.Parents) == 2 {
			merges = append(merges, id)
		}
	}
	if len(merges) == 0 {
		return nil
	}
	slices.SortFunc(merges, commit.ID.Compare)
	id := merges[rng.IntN(len(merges))]
	root, ok, err := s.Explanation(context.Background(), id)
	if err != nil || !ok {
		return err
	}
	got, err := contentOf(context.Background(), s, root)
	if err != nil {
		return fmt.Errorf("read explanation of merge %s: %w", id, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if want := w.decided[root]; len(want) == 0 || !maps.EqualFunc(got, want, bytes.Equal) {
		return fmt.Errorf("the explanation of merge %s holds %d decisions, want %d, or others", id, len(got), len(want))
	}
	return nil
}

func (w *world) verifyContent(s *storage.Store, c *commit.Commit) error {
	w.mu.Lock()
	want := w.models[c.ID]
	w.mu.Unlock()
	got, err := content(context.Background(), s, c)
	if err != nil {
		return fmt.Errorf("read commit of generation %d: %w", c.Generation, err)
	}
	if !maps.EqualFunc(got, want, bytes.Equal) {
		return fmt.Errorf("commit of generation %d holds %d keys, want %d, or other values", c.Generation, len(got), len(want))
	}
	return nil
}

func (w *world) verifyTags(s *storage.Store, p promise, tags map[string][]commit.ID) error {
	got, err := s.Tags(context.Background())
	if err != nil {
		return err
	}
	for name, values := range tags {
		found := false
		for _, id := range values[p.tagged[name]:] {
			found = found || id == got[name]
		}
		if !found {
			return fmt.Errorf("tag %q is %s, which it was not after what was acknowledged", name, got[name])
		}
	}
	for name := range got {
		if tags[name] == nil && !strings.HasPrefix(name, "free/") {
			return fmt.Errorf("tag %q was never set", name)
		}
	}
	return nil
}

func checkClean(s *storage.Store) error {
	r, err := s.Check(context.Background(), storage.CheckOptions{})
	if err != nil {
		return fmt.Errorf("check: %w", err)
	}
	if !r.Clean() {
		return fmt.Errorf("check: %w", errors.Join(r.Problems...))
	}
	return nil
}

func sortedKeys(e edit) []string { return slices.Sorted(maps.Keys(e)) }

// noise returns n bytes that do not repeat.
func noise(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}
