package storage_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/tier"
	"github.com/ledgerd/ledger/internal/vfs/vfstest"
	"github.com/ledgerd/ledger/storage"
)

// faultKind is a way in which operations fail.
type faultKind struct {
	name   string
	err    error
	hits   func(vfstest.OpKind) bool
	sticky bool
}

var faultKinds = []faultKind{
	{"EIO once", syscall.EIO, vfstest.OpKind.Mutates, false},
	{"EIO for ever", syscall.EIO, vfstest.OpKind.Mutates, true},
	{"ENOSPC once", syscall.ENOSPC, takesSpace, false},
	{"ENOSPC for ever", syscall.ENOSPC, takesSpace, true},
	{"read error once", syscall.EIO, func(k vfstest.OpKind) bool { return !k.Mutates() }, false},
}

func takesSpace(k vfstest.OpKind) bool {
	return k == vfstest.OpWrite || k == vfstest.OpCreate || k == vfstest.OpMkdir || k == vfstest.OpPreallocate
}

// faulty is a script whose operation number at fails.
type faulty struct {
	*world
	kind faultKind
	at   int

	mu    sync.Mutex
	ops   int
	hit   *vfstest.Op // the first that failed
	space bool        // there is space again
}

func (f *faulty) inject(op vfstest.Op) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ops++
	if f.space || op.N < f.at || op.N > f.at && !f.kind.sticky || !f.kind.hits(op.Kind) {
		return nil
	}
	if f.hit == nil {
		f.hit = &op
	}
	return f.kind.err
}

func (f *faulty) fired() *vfstest.Op {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.hit
}

// faultSteps are what a script does. Each opens the page when that has failed before.
var faultSteps = []func(w *world) error{
	func(w *world) error { _, err := w.tryCommit(nil, small(1), 0); return err },
	func(w *world) error { _, err := w.tryCommit(nil, edit{"a": noise(w.rng, 40<<10)}, 1); return err },
	chainedGroup,
	func(w *world) error { return w.setTag("x", w.s.Heads()[0]) },
	func(w *world) error { return w.s.Fold(context.Background()) },
	syncSome,
	func(w *world) error { _, err := w.tryCommit(nil, many(0, 40), 0); return err },
	func(w *world) error {
		if a := w.promise().acked; len(a) > 0 {
			_, err := w.tryCommit(a[0], small(7), 0)
			return err
		}
		return nil
	},
	mergeAll,
	func(w *world) error {
		err := w.s.Close()
		w.s = nil
		return err
	},
	func(w *world) error { _, err := w.tryCommit(nil, edit{"a": noise(w.rng, 20<<10)}, 1); return err },
	chainedGroup,
	syncSome,
	func(w *world) error { return w.s.Fold(context.Background()) },
	func(w *world) error { return w.forgetStep() },
	func(w *world) error { return w.splitHead(w.rng, w.s.Heads()[0], 3) },
	mergeAll,
	func(w *world) error { return w.setTag("x", w.s.Heads()[0]) },
	func(w *world) error { _, err := w.tryCommit(nil, small(3), 0); return err },
}

// chainedGroup submits commits that stand on each other before the first is waited for. When one
// fails, all behind it fail (I5).
func chainedGroup(w *world) error {
	var txs []tx
	var errs []error
	for i := range 3 {
		t, err := w.submit(nil, small(20+i), 0)
		if err != nil {
			errs = append(errs, err)
			break
		}
		txs = append(txs, t)
	}
	failed := false
	for _, t := range txs {
		err := w.wait(t)
		if failed && err == nil {
			return fmt.Errorf("a commit on one that has failed was acknowledged: %w", errWrong)
		}
		failed = failed || err != nil
		errs = append(errs, err)
	}
	if h := w.s.NewestHead(); failed {
		if _, err := w.s.Commit(context.Background(), h.ID); err != nil {
			return fmt.Errorf("newest head after a failure: %w: %w", err, errWrong)
		}
		for _, t := range txs {
			if t.c.ID == h.ID {
				return fmt.Errorf("a failed commit is the newest head: %w", errWrong)
			}
		}
	}
	return errors.Join(errs...)
}

// syncSome does steps of sync, up to one that fails.
func syncSome(w *world) error {
	defer w.endJournals()
	steps := []func(*rand.Rand) error{w.localCommit, w.receiveStep, w.placeStep, w.dropStep, w.statusStep, w.fetchStep, w.nameStep, w.receiveStep}
	for _, step := range steps {
		if err := step(w.rng); err != nil {
			return err
		}
	}
	return nil
}

// mergeAll merges the heads, with explanations.
func mergeAll(w *world) error {
	if h := w.s.Heads(); len(h) > 1 {
		return w.mergeHeads(w.rng, h)
	}
	return nil
}

// errWrong marks what no fault excuses.
var errWrong = errors.New("wrong")

func (f *faulty) run() error {
	for i, step := range faultSteps {
		before := f.fired()
		if f.s == nil {
			if err := f.tryOpen(); err != nil {
				if before == nil && f.fired() == nil {
					return fmt.Errorf("open before step %d: %w", i, err)
				}
				continue
			}
		}
		err := step(f.world)
		hit := f.fired()
		if errors.Is(err, errWrong) || err != nil && hit == nil {
			return fmt.Errorf("step %d: %w", i, err)
		}
		if f.s == nil || err == nil || before != nil || hit == nil {
			continue
		}
		if err := f.afterFailure(hit, err); err != nil {
			return fmt.Errorf("step %d, %s failed: %w", i, hit, err)
		}
	}
	return nil
}

// afterFailure looks at an open page whose step has just failed because of hit.
func (f *faulty) afterFailure(hit *vfstest.Op, stepErr error) error {
	switch {
	case hit.Kind == vfstest.OpSync || hit.Kind == vfstest.OpSyncDir:
		if !errors.Is(stepErr, base.ErrReadOnly) {
			return fmt.Errorf("a failed sync gave %w", stepErr)
		}
		if _, err := f.tryCommit(nil, small(9), 0); !errors.Is(err, base.ErrReadOnly) {
			return fmt.Errorf("commit after a failed sync: got %v, want ErrReadOnly", err)
		}
	case errors.Is(f.kind.err, syscall.ENOSPC):
		if !errors.Is(stepErr, base.ErrNoSpace) {
			return fmt.Errorf("a full disk gave %w", stepErr)
		}
		f.mu.Lock()
		f.space = true
		f.mu.Unlock()
		if _, err := f.tryCommit(nil, small(9), 0); err != nil {
			return fmt.Errorf("commit when there is space again: %w", err)
		}
	}
	return f.verify(f.s, f.promise(), f.rng) // readers go on
}

// recovered opens what is there now and what a power cut would leave.
func (f *faulty) recovered() error {
	p := f.promise()
	rng := rand.New(rand.NewPCG(1, uint64(f.at)))
	for _, keep := range []func() float64{vfstest.KeepAll, vfstest.KeepNone} {
		o := f.o
		o.FS, o.MemoryIndex = f.mem.CrashClone(keep), f.ix.Clone()
		if err := storage.Create(context.Background(), o); err != nil {
			return err
		}
		s, err := storage.Open(context.Background(), o)
		if err != nil {
			return fmt.Errorf("open again: %w", err)
		}
		f.connect(s)
		err = f.verify(s, p, rng)
		if err == nil && (f.at+len(f.kind.name))%3 == 0 {
			err = checkClean(s)
		}
		if err = errors.Join(err, s.Close()); err != nil {
			return err
		}
	}
	return nil
}

func newFaulty(t *testing.T, kind faultKind, at int) *faulty {
	f := &faulty{world: newWorld(t, 1, storage.Options{SegmentBytes: 8192, Cache: storage.NewNodeCache(1 << 20)}), kind: kind, at: at}
	f.o.FS = vfstest.NewFaulty(f.mem, f.inject)
	f.withSync()
	return f
}

// TestFaults lets each operation of a script fail, in several ways: what was acknowledged stays,
// nothing is acknowledged that was not written, a failed sync makes the page read-only and a full
// disk does not.
func TestFaults(t *testing.T) {
	for _, kind := range faultKinds {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			cases := 0
			for at := tier.Of(1, 0, 0); ; at += tier.Of(3, 1, 1) {
				f := newFaulty(t, kind, at)
				err := f.run()
				if f.s != nil {
					_ = f.s.Close() // may fail for the fault
				}
				if err == nil {
					err = f.recovered()
				}
				if err != nil {
					t.Fatalf("operation %d (%v): %v", at, f.hit, err)
				}
				if f.hit != nil {
					cases++
				}
				if at >= f.ops {
					break
				}
			}
			t.Logf("%d faults", cases)
			if cases < 20 {
				t.Fatal("too few")
			}
		})
	}
}

// TestFailedIndex lets each change of the index fail: a page whose index cannot be written has its
// log none the less, and numbers of pieces are never given twice (I6).
func TestFailedIndex(t *testing.T) {
	for at := 0; ; at++ {
		w := newWorld(t, 1, storage.Options{})
		w.foldTxRows = 4
		n, failed, over := 0, false, false
		w.before = func() error {
			if n++; n-1 == at && !over {
				failed = true
				return storage.ErrTestIndex
			}
			return nil
		}
		w.open()
		seen := map[uint64]string{}
		for i := range 3 {
			if _, err := w.tryCommit(nil, many(i*10, 15), 0); err != nil {
				t.Fatalf("change %d: commit: %v", at, err)
			}
			err := w.s.Fold(t.Context())
			if err != nil && !errors.Is(err, storage.ErrTestIndex) {
				t.Fatalf("change %d: fold: %v", at, err)
			}
			numbersStay(t, w, seen)
		}
		over = true
		w.must(w.verify(w.s, w.promise(), w.rng))
		w.must(checkClean(w.s))
		w.reopen()
		w.commit(many(50, 15))
		w.must(checkClean(w.s))
		numbersStay(t, w, seen)
		w.close()
		if !failed {
			if at < 5 {
				t.Fatalf("only %d changes of the index", at)
			}
			return
		}
	}
}

// numbersStay compares the numbers of pieces with those of before.
func numbersStay(t *testing.T, w *world, seen map[uint64]string) {
	t.Helper()
	numbers, next, err := storage.Numbers(w.ix)
	if err != nil {
		t.Fatal(err)
	}
	for n, d := range numbers {
		if old, ok := seen[n]; ok && old != d {
			t.Fatalf("number %d stood for %x and stands for %x", n, old, d)
		}
		seen[n] = d
		if n >= next {
			t.Fatalf("number %d is given and would be given again from %d on", n, next)
		}
	}
}

// TestLostHead takes a commit on from NewestHead whose group then fails: who waits for it, builds
// on it or tags it is told (I5).
func TestLostHead(t *testing.T) {
	f := newFaulty(t, faultKind{"", syscall.ENOSPC, func(k vfstest.OpKind) bool { return k == vfstest.OpWrite }, false}, 1<<30)
	w := f.world
	w.open()
	first := w.commit(small(1))
	lost, err := w.submit(nil, small(2), 0)
	w.must(err)
	head := w.s.NewestHead()
	if head.ID != lost.c.ID {
		t.Fatal("the submitted commit is not the newest head")
	}
	f.mu.Lock()
	f.at = f.ops
	f.kind.sticky = true
	f.mu.Unlock()
	if err := w.wait(lost); !errors.Is(err, base.ErrNoSpace) {
		t.Fatalf("got %v, want ErrNoSpace", err)
	}
	f.mu.Lock()
	f.space = true
	f.mu.Unlock()
	if err := w.s.WaitDurable(head); !errors.Is(err, base.ErrNoSpace) {
		t.Errorf("wait for a lost commit: got %v, want ErrNoSpace", err)
	}
	if err := w.s.WaitDurable(first); err != nil {
		t.Errorf("wait for a durable commit: %v", err)
	}
	if _, err := w.tryCommit(head, small(3), 0); !errors.Is(err, base.ErrNoSpace) {
		t.Errorf("commit on a lost commit: got %v, want ErrNoSpace", err)
	}
	if err := w.s.SetTag(t.Context(), "x", head.ID); !errors.Is(err, base.ErrNotFound) {
		t.Errorf("tag of a lost commit: got %v, want ErrNotFound", err)
	}
	if h := w.s.NewestHead(); h.ID != first.ID {
		t.Errorf("newest head is %s, want %s", h.ID, first.ID)
	}
	w.commit(small(4))
	w.must(checkClean(w.s))
	w.close()
}

// TestEqualCommits submits one commit several times, as transactions with equal changes at one time
// do.
func TestEqualCommits(t *testing.T) {
	w := newWorld(t, 1, storage.Options{})
	w.open()
	a := w.commit(small(1))
	again := func(c *commit.Commit) {
		t.Helper()
		p, err := w.s.Submit(t.Context(), nil, c)
		w.must(err)
		w.must(p.Wait())
	}
	again(a)
	b := w.commit(small(2))
	again(a)
	if h := w.s.Heads(); len(h) != 1 || h[0].ID != b.ID {
		t.Fatalf("heads %v", h)
	}
	w.must(w.s.Fold(t.Context()))
	again(a)
	c, err := w.submit(nil, small(3), 0)
	w.must(err)
	p, err := w.s.Submit(t.Context(), nil, c.c) // before the first is durable
	w.must(err)
	w.must(p.Wait())
	w.must(w.wait(c))
	w.must(w.verify(w.s, w.promise(), w.rng))
	w.reopen()
	w.must(w.verify(w.s, w.promise(), w.rng))
	w.must(checkClean(w.s))
	w.close()
}

// gate is a file system of which one write waits and then has a result.
type gate struct {
	armed   bool
	result  error
	reached chan struct{}
	end     chan struct{}
	mu      sync.Mutex
}

func (g *gate) inject(op vfstest.Op) error {
	g.mu.Lock()
	armed := g.armed && op.Kind == vfstest.OpWrite
	g.armed = g.armed && !armed
	g.mu.Unlock()
	if !armed {
		return nil
	}
	close(g.reached)
	<-g.end
	return g.result
}

// TestFailureTakesBackWhatFollows fails an append while another group is collected behind it, and a
// journal is open that relies on a piece in it: nothing of what follows is acknowledged (I1, I5).
func TestFailureTakesBackWhatFollows(t *testing.T) {
	g := &gate{result: syscall.ENOSPC, reached: make(chan struct{}), end: make(chan struct{})}
	w := newWorld(t, 1, storage.Options{})
	w.o.FS = vfstest.NewFaulty(w.mem, g.inject)
	w.open()
	base1 := w.commit(small(1))
	shared := noise(w.rng, 3000)
	g.mu.Lock()
	g.armed = true
	g.mu.Unlock()
	first, err := w.submit(nil, edit{"shared": shared}, 0)
	w.must(err)
	var wg sync.WaitGroup
	var firstErr error
	wg.Go(func() { firstErr = w.wait(first) })
	<-g.reached
	second, err := w.submit(nil, small(2), 0) // in the group behind
	w.must(err)
	j := w.s.NewJournal()
	defer j.Rollback()
	_, err = putValue(t.Context(), j, "again", shared, 0) // held, as it seems
	w.must(err)
	close(g.end)
	wg.Wait()
	if !errors.Is(firstErr, base.ErrNoSpace) {
		t.Fatalf("first: got %v, want ErrNoSpace", firstErr)
	}
	if err := w.wait(second); !errors.Is(err, base.ErrNoSpace) {
		t.Errorf("the commit behind: got %v, want ErrNoSpace", err)
	}
	if _, err := w.submitJournal(j, edit{"again": shared}, 0, base1); !errors.Is(err, base.ErrNoSpace) {
		t.Errorf("a journal that relied on it: got %v, want ErrNoSpace", err)
	}
	w.commit(edit{"again": shared})
	w.must(w.verify(w.s, w.promise(), w.rng))
	w.reopen()
	w.must(w.verify(w.s, w.promise(), w.rng))
	w.must(checkClean(w.s))
	w.close()
}

// TestIndexThatCannotBeWritten lets every change of the index fail: writers are told when too much
// is pending, readers go on, and the log has everything for the next open.
func TestIndexThatCannotBeWritten(t *testing.T) {
	w := newWorld(t, 1, storage.Options{FoldRows: 20})
	w.before = func() error { return storage.ErrTestIndex }
	w.open()
	var err error
	for i := 0; err == nil; i++ {
		if _, err = w.tryCommit(nil, small(i), 0); i > 1000 {
			t.Fatal("a thousand commits without a fold")
		}
	}
	if !errors.Is(err, base.ErrReadOnly) || !errors.Is(err, storage.ErrTestIndex) {
		t.Fatalf("got %v, want ErrReadOnly with its cause", err)
	}
	if len(w.promise().acked) == 0 {
		t.Fatal("nothing was acknowledged before")
	}
	w.must(w.verify(w.s, w.promise(), w.rng))
	_ = w.s.Close() // cannot fold
	w.before = nil
	w.open()
	w.must(w.verify(w.s, w.promise(), w.rng))
	w.commit(small(1))
	w.must(checkClean(w.s))
	w.close()
}
