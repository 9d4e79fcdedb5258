package storage_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/vfs"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/split"
	"github.com/ledgerd/ledger/storage"
	"github.com/ledgerd/ledger/storage/index"
)

const worldDir = "repo/page"

// tier is how much is tried: 1 on every change, 2 at night.
func tier() int {
	n, err := strconv.Atoi(os.Getenv("LEDGER_TIER"))
	if err != nil || n < 1 {
		return 1
	}
	return n
}

// testSeed is the seed of random tests: LEDGER_SEED, or 1.
func testSeed(t testing.TB) uint64 {
	t.Helper()
	v := os.Getenv("LEDGER_SEED")
	if v == "" {
		return 1
	}
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil {
		t.Fatalf("LEDGER_SEED: %v", err)
	}
	return n
}

// world is a page in memory with what was promised about it: which commits and tags were reported as done, and which may be there.
type world struct {
	t   testing.TB
	o   storage.Options
	mem *vfs.Mem
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
	clock  atomic.Int64
}

func newWorld(t testing.TB, seed uint64, o storage.Options) *world {
	w := &world{
		t: t, o: o, foldTxRows: 16, mem: vfs.NewMem(), ix: index.NewMemory(), rng: rand.New(rand.NewPCG(seed, 77)),
		models: map[commit.ID]map[string][]byte{commit.First().ID: {}}, tags: map[string][]commit.ID{}, tagged: map[string]int{},
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
	c *commit.Commit
	p *storage.Pending
}

// putValue adds the pieces of a value and flushes the journal after every flush pieces; 0: never.
func putValue(ctx context.Context, j *storage.Journal, key string, v []byte, flush int) (btree.Change, error) {
	e := fb.Entry{Key: []byte(key), Value: v, Inline: true, Size: uint64(len(v))}
	if len(v) <= btree.InlineLimit {
		return btree.Change{Entry: e, Delete: v == nil}, nil
	}
	n := 0
	root, err := split.SplitBytes(ctx, split.DefaultTable(), object.Chunk, v, func(ctx context.Context, p split.Piece) error {
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
	m := maps.Clone(w.models[parents[0].ID])
	for k, v := range e {
		if m[k] = v; v == nil {
			delete(m, k)
		}
	}
	w.models[c.ID] = m
	w.maybe = append(w.maybe, c)
	w.mu.Unlock()
	p, err := w.s.Submit(ctx, j, c)
	return tx{c, p}, err
}

// wait waits for a commit and notes the promise.
func (w *world) wait(t tx) error {
	if err := t.p.Wait(); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.acked = append(w.acked, t.c)
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
	acked  []*commit.Commit
	tagged map[string]int
}

func (w *world) promise() promise {
	w.mu.Lock()
	defer w.mu.Unlock()
	return promise{w.acked[:len(w.acked):len(w.acked)], maps.Clone(w.tagged)}
}

// errHeads marks heads that are not those of the commits that are there.
var errHeads = errors.New("other heads")

// verify compares a page with a promise: every acknowledged commit is there; each other one is, with all its ancestors, or is not; the
// heads are what follows from that; the tags have the last value that was acknowledged or one that was set later.
func (w *world) verify(s *storage.Store, p promise, rng *rand.Rand) error {
	ctx := context.Background()
	w.mu.Lock()
	maybe := w.maybe[:len(w.maybe):len(w.maybe)]
	tags := maps.Clone(w.tags)
	w.mu.Unlock()
	for _, c := range p.acked {
		if _, err := s.Commit(ctx, c.ID); err != nil {
			return fmt.Errorf("acknowledged commit of generation %d: %w", c.Generation, err)
		}
	}
	present := map[commit.ID]*commit.Commit{commit.First().ID: commit.First()}
	for _, c := range maybe {
		if _, err := s.Commit(ctx, c.ID); err == nil {
			present[c.ID] = c
		} else if !errors.Is(err, base.ErrNotFound) {
			return err
		}
	}
	want := maps.Clone(present)
	for _, c := range present {
		for _, parent := range c.Parents {
			if present[parent] == nil {
				return fmt.Errorf("commit %s is there without its parent %s", c.ID, parent)
			}
			delete(want, parent)
		}
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
	if len(p.acked) > 0 {
		look = append(look, p.acked[rng.IntN(len(p.acked))])
	}
	for _, c := range look {
		if err := w.verifyContent(s, c); err != nil {
			return err
		}
	}
	return w.verifyTags(s, p, tags)
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
