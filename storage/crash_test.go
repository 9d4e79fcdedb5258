package storage_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/tier"
	"github.com/ledgerd/ledger/internal/vfs"
	"github.com/ledgerd/ledger/internal/vfs/vfstest"
	"github.com/ledgerd/ledger/storage"
	"github.com/ledgerd/ledger/storage/index"
)

// crasher cuts the power after every change of a world's file system and index, and opens what that
// leaves.
type crasher struct {
	w       *world
	name    string
	seed    uint64
	fast    bool // read little: for histories with much content
	total   *atomic.Int64
	older   []*index.Memory // guarded by mu
	op      int             // guarded by mu
	failed  bool            // guarded by mu
	mu      sync.Mutex
	partial atomic.Int64 // recoveries that found something torn, unsynced, or no index
}

const crashVariants = 4

// boundary tries the crashes of one moment: nothing kept, everything kept, two mixtures.
func (c *crasher) boundary(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	op := c.op
	c.op++
	if c.failed {
		return
	}
	for v := range tier.Of(crashVariants-1, crashVariants, crashVariants*tier.Factor()) {
		rng := rand.New(rand.NewPCG(c.seed, uint64(op)<<8|uint64(v)))
		p := c.w.promise()
		ix := c.index(rng) // before the files: an index never knows more than they hold
		keep := rng.Float64
		switch v {
		case 0:
			keep = vfstest.KeepNone
		case 1:
			keep = vfstest.KeepAll
		}
		if err := c.recovers(c.w.mem.CrashClone(keep), ix, p, rng); err != nil {
			c.failed = true
			c.w.t.Errorf("LEDGER_SEED=%d, %s, operation %d (%s), crash %d: %v", tier.Seed(), c.name, op, what, v, err)
			return
		}
	}
}

// index returns what page.db may be after the crash: as it is, gone, or as it was (a copy that was
// put back).
func (c *crasher) index(rng *rand.Rand) *index.Memory {
	now := c.w.ix.Clone()
	if len(c.older) < 64 {
		c.older = append(c.older, now.Clone())
	} else {
		c.older[rng.IntN(len(c.older))] = now.Clone()
	}
	switch rng.IntN(10) {
	case 0, 1:
		return index.NewMemory()
	case 2, 3:
		return c.older[rng.IntN(len(c.older))].Clone()
	}
	return now
}

// openCrashed opens a page after a crash as a program would.
func (c *crasher) openCrashed(fs vfs.FS, ix *index.Memory) (*storage.Store, error) {
	o := c.w.o
	o.FS, o.MemoryIndex = fs, ix
	if err := storage.Create(context.Background(), o); err != nil {
		return nil, err
	}
	s, err := storage.Open(context.Background(), o)
	if err == nil {
		c.w.connect(s)
	}
	return s, err
}

func (c *crasher) recovers(mem *vfstest.Mem, ix *index.Memory, p promise, rng *rand.Rand) (err error) {
	if rng.IntN(10) == 0 {
		if mem, ix, err = c.crashAgain(mem, ix, rng); err != nil {
			return fmt.Errorf("recover, to crash again: %w", err)
		}
	}
	c.total.Add(1)
	s, err := c.openCrashed(mem, ix)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if r := s.Recovery(); len(r.Torn) > 0 || r.RewrittenBatches > 0 || r.IndexRebuilt != "" {
		c.partial.Add(1)
	}
	if err := c.w.verify(s, p, rng); err != nil {
		return err
	}
	if !c.fast && rng.IntN(4) == 0 {
		if err := checkClean(s); err != nil {
			return err
		}
	}
	return c.again(s, mem, ix, rng)
}

// crashAgain recovers, with another power cut at some moment of it, and returns what that leaves.
func (c *crasher) crashAgain(mem *vfstest.Mem, ix *index.Memory, rng *rand.Rand) (*vfstest.Mem, *index.Memory, error) {
	at, n := rng.IntN(12), 0
	seed := rng.Uint64()
	var left *vfstest.Mem
	var leftIx *index.Memory
	take := func() {
		leftIx = ix.Clone()
		left = mem.CrashClone(vfstest.KeepSome(seed))
	}
	hooked := vfstest.NewHooked(mem, func(vfstest.Op) {
		if n++; n == at {
			take()
		}
	})
	s, err := c.openCrashed(hooked, ix)
	if err != nil {
		return nil, nil, err
	}
	if left == nil {
		take()
	}
	return left, leftIx, s.Close()
}

// again opens the page a second time, after it was closed or after one more power cut, and finds
// the same.
func (c *crasher) again(s *storage.Store, mem *vfstest.Mem, ix *index.Memory, rng *rand.Rand) (err error) {
	heads := s.Heads()
	var also *commit.Commit
	if rng.IntN(4) == 0 { // what comes after a recovery is as durable as what came before
		var p *storage.Pending
		also, p, err = submitOn(context.Background(), s, heads[len(heads)-1], edit{"after": noise(rng, 300)})
		if err == nil {
			err = p.Wait()
		}
		if err != nil {
			return fmt.Errorf("commit after recovery: %w", err)
		}
	}
	closed := rng.IntN(2) == 0
	if closed {
		if err := s.Close(); err != nil {
			return err
		}
	} else {
		ix = ix.Clone()
	}
	s2, err := c.openCrashed(mem.CrashClone(vfstest.KeepNone), ix)
	if err != nil {
		return fmt.Errorf("open again: %w", err)
	}
	defer func() { err = errors.Join(err, s2.Close()) }()
	if r := s2.Recovery(); closed && (len(r.Torn) > 0 || r.RewrittenBatches > 0 || r.IndexRebuilt != "") {
		return fmt.Errorf("recovery after closing: %+v", r)
	}
	if also != nil {
		if _, err := s2.Commit(context.Background(), also.ID); err != nil {
			return fmt.Errorf("commit after recovery is gone: %w", err)
		}
		return nil
	}
	heads2 := s2.Heads()
	for i := range heads {
		if len(heads) != len(heads2) || heads[i].ID != heads2[i].ID {
			return fmt.Errorf("other heads after opening again")
		}
	}
	return nil
}

// crashScript is one history.
type crashScript struct {
	name string
	o    storage.Options
	fast bool
	run  func(w *world)
}

func small(i int) edit { return edit{fmt.Sprintf("key %03d", i%40): fmt.Appendf(nil, "value %d", i)} }

func many(from, n int) edit {
	e := edit{}
	for i := range n {
		e[fmt.Sprintf("key %03d", from+i)] = fmt.Appendf(nil, "value %d of many", from+i)
	}
	return e
}

var crashScripts = []crashScript{
	{name: "first open", run: func(*world) {}},
	{name: "one put", run: func(w *world) { w.commit(small(1)) }},
	{name: "a hundred keys", run: func(w *world) { w.commit(many(0, 100)) }},
	{name: "chain", run: func(w *world) {
		for i := range 12 {
			w.commit(small(i))
		}
	}},
	{name: "large stream", fast: true, run: func(w *world) {
		w.commit(small(1))
		storage.SetFoldTxRows(w.s, 4096)
		w.commit(edit{"large": noise(w.rng, 5<<20)})
		w.commit(small(2))
	}},
	{name: "streams in many batches", run: func(w *world) {
		w.commit(small(1))
		w.commitFlushed(edit{"a": noise(w.rng, 80<<10), "b": noise(w.rng, 30<<10)}, 2)
		w.commitFlushed(edit{"c": noise(w.rng, 40<<10)}, 1)
		w.commit(small(2))
	}},
	{name: "delete everything", run: func(w *world) {
		w.commit(many(0, 60))
		w.commit(edit{"large": noise(w.rng, 50<<10)})
		e := edit{"large": nil}
		for k := range many(0, 60) {
			e[k] = nil
		}
		w.commit(e)
		w.commit(small(1))
	}},
	{name: "groups", run: func(w *world) {
		for g := range 4 {
			w.commitGroup(5, func(i int) edit { return small(g*5 + i) })
		}
	}},
	{name: "tags", run: func(w *world) {
		a, b := w.commit(small(1)), w.commit(small(2))
		w.must(w.setTag("x", a))
		w.must(w.setTag("y", b))
		w.must(w.setTag("x", b))
		w.reopen()
		w.must(w.setTag("y", nil))
		w.must(w.setTag("z", w.commit(small(3))))
	}},
	{name: "two journals", run: func(w *world) { interleave(w) }},
	{name: "small segments", o: storage.Options{SegmentBytes: 2048}, run: func(w *world) {
		for i := range 12 {
			w.commit(many(i*3, 8))
		}
		w.commitFlushed(edit{"a": noise(w.rng, 50<<10)}, 1)
		w.commit(small(1))
	}},
	{name: "fold often", o: storage.Options{FoldRows: 8}, run: func(w *world) {
		for i := range 8 {
			w.commit(many(i*5, 10))
		}
		w.commitFlushed(edit{"a": noise(w.rng, 60<<10)}, 1)
	}},
	{name: "fold and reopen", o: storage.Options{SegmentBytes: 4096}, run: func(w *world) {
		for i := range 5 {
			w.commit(small(i))
			w.must(w.s.Fold(w.t.Context()))
			w.commitFlushed(edit{"a": noise(w.rng, 20<<10)}, 1)
			w.reopen()
		}
	}},
	{name: "siblings and merge", run: func(w *world) {
		root := w.commit(many(0, 20))
		a, err := w.tryCommit(root, small(1), 0)
		w.must(err)
		b, err := w.tryCommit(root, edit{"b": noise(w.rng, 20<<10)}, 1)
		w.must(err)
		w.reopen()
		j := w.s.NewJournal()
		m, err := w.submitJournal(j, edit{"b": noise(w.rng, 20<<10)}, 0, a, b)
		w.must(err)
		w.must(w.wait(m))
		w.commit(small(2))
	}},
	{name: "merges with explanations", o: storage.Options{FoldRows: 30}, run: func(w *world) {
		root := w.commit(many(0, 20))
		w.must(w.splitHead(w.rng, root, 3))
		w.must(w.mergeHeads(w.rng, w.s.Heads()))
		w.must(w.splitHead(w.rng, w.s.NewestHead(), 2))
		w.reopen()
		w.must(w.mergeHeads(w.rng, w.s.Heads()))
		w.must(w.s.Fold(w.t.Context()))
		w.must(w.splitHead(w.rng, w.s.NewestHead(), 4))
		w.must(w.mergeHeads(w.rng, w.s.Heads()[1:]))
		w.must(w.mergeHeads(w.rng, w.s.Heads()))
	}},
	{name: "steps of sync", o: storage.Options{SegmentBytes: 8192}, run: func(w *world) { syncScript(w, 24) }},
	{name: "steps of sync, folded", run: func(w *world) {
		w.withSync()
		for range 12 {
			w.must(w.syncStep(w.rng))
		}
		w.must(w.s.Fold(w.t.Context()))
		w.must(w.fetchAll())
		w.must(w.forgetStep())
		w.must(w.s.Fold(w.t.Context()))
		for range 6 {
			w.must(w.syncStep(w.rng))
		}
		w.endJournals()
	}},
	{name: "collect", o: storage.Options{SegmentBytes: 8192}, run: func(w *world) {
		w.commit(many(0, 60))
		c := w.s.NewCollector(storage.CollectOptions{Deletions: 3})
		for i := range 3 {
			e := edit{"large": noise(w.rng, 20<<10), fmt.Sprintf("key %03d", i): []byte("given up")}
			j := w.s.NewJournal()
			_, err := w.make(j, e, 1, w.s.NewestHead())
			w.must(err)
			w.must(j.Flush(w.t.Context()))
			j.Rollback()
			for range i {
				_, err := c.Step(w.t.Context())
				w.must(err)
			}
			w.commit(e) // what is garbage, or being deleted, is wanted again
			w.commit(edit{"large": nil})
		}
		cycles(w.t, c, 2)
	}},
	{name: "prune, collect and compact", fast: true, o: storage.Options{SegmentBytes: 4096}, run: func(w *world) {
		for round := range 3 {
			w.commit(many(0, 30))
			w.commitFlushed(edit{"large": noise(w.rng, 12<<10)}, 1)
			for i := range 3 {
				w.commit(small(i))
				w.commit(small(i + 40))
			}
			w.giveUp()
			cycles(w.t, w.s.NewCollector(storage.CollectOptions{Deletions: 20}), 1+round%2)
			_, err := w.s.Compact(w.t.Context(), storage.CompactOptions{MinDeadShare: compactShares[round], MaxBytes: 6000})
			w.must(err)
			if round == 1 {
				w.reopen()
			}
		}
		w.commit(small(1)) // to what there was before
	}},
	{name: "full disk", o: storage.Options{SegmentBytes: 8192}, run: func(w *world) {
		room := 1 << 30
		w.o.FS = vfstest.NewFaulty(w.o.FS, func(op vfstest.Op) error {
			if !takesSpace(op.Kind) {
				return nil
			}
			if room--; room < 0 {
				return syscall.ENOSPC
			}
			return nil
		})
		w.reopen()
		for i := range 4 {
			w.commit(many(i*3, 8))
			before := batchBytes(w.s)
			room = 2 + 2*i
			fixed := rand.New(rand.NewPCG(1, uint64(i))) // the same pieces, and so as many writes, with every seed
			if _, err := w.tryCommit(nil, edit{"a": noise(fixed, 150<<10)}, 1); !errors.Is(err, base.ErrNoSpace) {
				w.t.Errorf("commit on a full disk: %v, want ErrNoSpace", err)
			}
			room = 1 << 30
			if after := batchBytes(w.s); after != before {
				w.t.Errorf("batches of %d bytes before a commit that failed, %d after", before, after)
			}
		}
		w.commitFlushed(edit{"a": noise(w.rng, 20<<10)}, 1)
	}},
	{name: "large node", fast: true, run: func(w *world) {
		e := largeNode(w.rng)
		w.commit(e)
		w.commit(edit{sortedKeys(e)[5]: noise(w.rng, 100)})
	}},
}

// giveUp prunes all commits but the heads.
func (w *world) giveUp() {
	heads := w.s.Heads()
	var ids []commit.ID
	w.mu.Lock()
	if w.given == nil {
		w.given = map[commit.ID]bool{}
	}
	for _, c := range w.acked {
		if !slices.ContainsFunc(heads, func(h *commit.Commit) bool { return h.ID == c.ID }) {
			ids = append(ids, c.ID)
			w.given[c.ID] = true
		}
	}
	w.mu.Unlock()
	_, err := w.s.Prune(context.Background(), ids)
	w.must(err)
}

// syncScript does n random steps of sync, with folds and reopenings between.
func syncScript(w *world, n int) {
	w.withSync()
	for range n {
		switch w.rng.IntN(10) {
		case 0:
			w.endJournals()
			w.reopen()
		case 1:
			w.must(w.s.Fold(w.t.Context()))
		default:
			w.must(w.syncStep(w.rng))
		}
	}
	w.endJournals()
}

// interleave makes two journals at once that share a piece, and rolls one back.
func interleave(w *world) {
	ctx := context.Background()
	shared := noise(w.rng, 20<<10)
	j1, j2 := w.s.NewJournal(), w.s.NewJournal()
	defer j2.Rollback()
	for _, j := range []*storage.Journal{j1, j2, j1} {
		_, err := putValue(ctx, j, "a", noise(w.rng, 20<<10), 1)
		w.must(err)
		_, err = putValue(ctx, j, "shared", shared, 1)
		w.must(err)
	}
	j1.Rollback()
	w.commit(small(1))
	t, err := w.submitJournal(j2, edit{"shared": shared, "own": noise(w.rng, 20<<10)}, 1, w.s.NewestHead())
	w.must(err)
	w.must(w.wait(t))
}

// randomScript does about n random things.
func randomScript(w *world, n int) {
	for range n {
		switch w.rng.IntN(14) {
		case 0:
			w.reopen()
		case 1:
			w.must(w.s.Fold(w.t.Context()))
		case 2:
			w.commitGroup(1+w.rng.IntN(6), func(k int) edit { return small(w.rng.IntN(100)) })
		case 3, 4:
			w.commitFlushed(edit{fmt.Sprint("v", w.rng.IntN(5)): noise(w.rng, 1000+w.rng.IntN(40<<10))}, w.rng.IntN(3))
		case 5:
			if !w.tidy {
				interleave(w)
			}
		case 6:
			w.must(w.setTag(fmt.Sprint("tag", w.rng.IntN(3)), w.s.NewestHead()))
		case 7:
			acked := w.promise().acked
			if len(acked) == 0 || len(w.s.Heads()) > 3 {
				continue
			}
			if w.rng.IntN(3) == 0 {
				w.must(w.splitHead(w.rng, acked[w.rng.IntN(len(acked))], 2+w.rng.IntN(2)))
				continue
			}
			_, err := w.tryCommit(acked[w.rng.IntN(len(acked))], small(w.rng.IntN(100)), 0)
			w.must(err)
		case 8:
			if h := w.s.Heads(); len(h) > 1 {
				w.must(w.mergeHeads(w.rng, h[:2+w.rng.IntN(len(h)-1)]))
			}
		case 9:
			e := many(w.rng.IntN(40), 20)
			for k := range e {
				if w.rng.IntN(2) == 0 {
					e[k] = nil
				}
			}
			w.commit(e)
		default:
			w.commit(small(w.rng.IntN(100)))
		}
	}
}

func randomOptions(rng *rand.Rand) storage.Options {
	var o storage.Options
	if rng.IntN(2) == 0 {
		o.SegmentBytes = int64(1+rng.IntN(8)) << 10
	}
	if rng.IntN(2) == 0 {
		o.FoldRows = 4 + rng.IntN(60)
	}
	return o
}

// TestCrash cuts the power after every change of the files and of the index (I1, I3, I4): what was
// acknowledged is there, what was not is there wholly or not at all, and opening again finds the
// same.
func TestCrash(t *testing.T) {
	scripts := crashScripts
	seed := tier.Seed()
	randoms := tier.Of(1, 8, 200)
	if testing.Short() {
		randoms = 1
	}
	for i := range randoms {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		scripts = append(scripts[:len(scripts):len(scripts)], crashScript{
			name: fmt.Sprintf("random %d", i), o: randomOptions(rng), run: func(w *world) { randomScript(w, 25) },
		})
	}
	for i := range max(1, randoms/4) {
		scripts = append(scripts[:len(scripts):len(scripts)], crashScript{
			name: fmt.Sprintf("random of sync %d", i), o: storage.Options{SegmentBytes: int64(2+i) << 10}, run: func(w *world) { syncScript(w, 30) },
		})
	}
	var total, partial atomic.Int64
	t.Cleanup(func() { t.Logf("%d recoveries, %d of which had something to mend", total.Load(), partial.Load()) })
	for i, sc := range scripts {
		t.Run(sc.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, seed<<8|uint64(i), sc.o)
			w.o.Cache = storage.NewNodeCache(1 << 20)
			c := &crasher{w: w, name: sc.name, seed: seed<<8 | uint64(i), total: &total, fast: sc.fast}
			w.boundary = c.boundary
			w.o.FS = vfstest.NewHooked(w.mem, func(op vfstest.Op) { c.boundary(op.String()) })
			w.open()
			sc.run(w)
			w.close()
			c.boundary("end")
			partial.Add(c.partial.Load())
			if c.op < 4 {
				t.Fatalf("only %d operations", c.op)
			}
		})
	}
}
