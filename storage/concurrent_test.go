package storage_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/tier"
	"github.com/ledgerd/ledger/internal/vfs/vfstest"
	"github.com/ledgerd/ledger/storage"
)

// TestConcurrentWriters lets many commit on the newest head at once: they make one chain.
func TestConcurrentWriters(t *testing.T) {
	s := open(t, options(t))
	const writers, each = 64, 8
	before := s.Stats()
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			for n := range each {
				_, p, err := submit(t.Context(), s, edit{fmt.Sprintf("writer %d key %d", i, n): []byte("x")})
				if err == nil {
					err = p.Wait()
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	after := s.Stats()
	commits, syncs := after.Commits-before.Commits, after.Syncs-before.Syncs
	t.Logf("%d commits with %d syncs", commits, syncs)
	if commits != writers*each {
		t.Errorf("%d commits, want %d", commits, writers*each)
	}
	if syncs > commits { // how many come together is for the disk and the machine to say; see TestSyncsAreShared
		t.Errorf("%d syncs for %d commits", syncs, commits)
	}
	h := s.Heads()
	if len(h) != 1 || h[0].Generation != writers*each {
		t.Fatalf("heads %v", h)
	}
	m, err := content(t.Context(), s, h[0])
	if err != nil || len(m) != writers*each {
		t.Fatalf("%d keys, %v", len(m), err)
	}
	wantClean(t, s)
}

// TestCheckWhileWriting checks a page that is written: what the check has not seen at its beginning
// is no damage.
func TestCheckWhileWriting(t *testing.T) {
	s := open(t, options(t))
	write := func(i int) error {
		_, p, err := submit(t.Context(), s, edit{fmt.Sprintf("key %d", i%300): fmt.Appendf(nil, "value %d", i)})
		if err == nil {
			err = p.Wait()
		}
		return err
	}
	for i := range 100 {
		if err := write(i); err != nil {
			t.Fatal(err)
		}
	}
	var stop atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; i < 400 && !stop.Load(); i++ {
			if err := write(i); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 4 {
		wantClean(t, s)
	}
	stop.Store(true)
	wg.Wait()
}

// slowSync is a sync that takes as long as it is told to.
type slowSync struct{ reached, release chan struct{} }

// TestSyncsAreShared has many commit while a sync takes its time: the next one is for all of them.
func TestSyncsAreShared(t *testing.T) {
	const writers, rounds = 64, 3
	var next atomic.Pointer[slowSync]
	w := newWorld(t, 1, storage.Options{})
	w.o.FS = vfstest.NewFaulty(w.mem, func(op vfstest.Op) error {
		if op.Kind != vfstest.OpSync {
			return nil
		}
		if s := next.Swap(nil); s != nil {
			close(s.reached)
			<-s.release
		}
		return nil
	})
	w.open()
	w.commit(small(0)) // the first one syncs a new segment
	for round := range rounds {
		before := w.s.Stats()
		var wg sync.WaitGroup
		submit := func(n int) {
			c, err := w.submit(nil, small(1+round*writers+n), 0)
			w.must(err)
			wg.Go(func() {
				if err := w.wait(c); err != nil {
					t.Error(err)
				}
			})
		}
		s := &slowSync{make(chan struct{}), make(chan struct{})}
		next.Store(s)
		submit(0)
		<-s.reached
		for n := 1; n < writers; n++ {
			submit(n)
		}
		close(s.release)
		wg.Wait()
		after := w.s.Stats()
		if commits, syncs := after.Commits-before.Commits, after.Syncs-before.Syncs; commits != writers || syncs != 2 {
			t.Errorf("%d commits with %d syncs, want %d with 2", commits, syncs, writers)
		}
	}
	w.must(w.verify(w.s, w.promise(), w.rng))
	w.close()
}

// TestConcurrentUse commits chains and siblings, rolls back, streams, tags, folds, reads and closes
// at once; what was acknowledged is there afterwards.
func TestConcurrentUse(t *testing.T) {
	for round := range 3 * tier.Factor() {
		w := newWorld(t, uint64(round), storage.Options{FoldRows: 50, SegmentBytes: 32 << 10})
		w.open()
		w.commit(many(0, 20))
		var wg sync.WaitGroup
		var done atomic.Bool
		var acks atomic.Int64
		for i := range 16 {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(round), uint64(i)))
				for !done.Load() {
					if err := concurrentStep(w, rng); err == nil {
						acks.Add(1)
					} else if !errors.Is(err, base.ErrClosed) {
						t.Errorf("writer: %v", err)
						return
					} else {
						return
					}
				}
			})
		}
		for i := range 4 {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(round), uint64(100+i)))
				for !done.Load() {
					if err := w.verify(w.s, w.promise(), rng); err != nil && !errors.Is(err, base.ErrClosed) && !w.moving(err) {
						t.Errorf("reader: %v", err)
						return
					}
				}
			})
		}
		for acks.Load() < 200 && !t.Failed() {
			if err := w.s.Fold(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		closed := make(chan struct{})
		go func() { // two at once
			defer close(closed)
			_ = w.s.Close()
		}()
		w.must(w.s.Close())
		<-closed
		done.Store(true)
		wg.Wait()
		w.open()
		w.must(w.verify(w.s, w.promise(), w.rng))
		w.must(checkClean(w.s))
		w.close()
	}
}

// errMoving is what verify may say of a page that is being written: its heads are compared with
// commits that it listed before.
func (w *world) moving(err error) bool {
	return errors.Is(err, errHeads)
}

func concurrentStep(w *world, rng *rand.Rand) error {
	switch rng.IntN(12) {
	case 0:
		acked := w.promise().acked
		if len(w.s.Heads()) > 8 {
			return nil
		}
		_, err := w.tryCommit(acked[rng.IntN(len(acked))], small(rng.IntN(1000)), 0)
		return err
	case 1:
		_, err := w.tryCommit(nil, edit{fmt.Sprint("v", rng.IntN(20)): noise(rng, 20<<10)}, rng.IntN(3))
		return err
	case 2:
		j := w.s.NewJournal()
		defer j.Rollback()
		_, err := putValue(w.t.Context(), j, "never", noise(rng, 30<<10), 1)
		return err
	case 4:
		if h := w.s.Heads(); len(h) > 1 {
			return w.mergeHeads(rng, h)
		}
		return nil
	case 3:
		acked := w.promise().acked
		c := acked[rng.IntN(len(acked))]
		return w.s.SetTag(w.t.Context(), "free/"+fmt.Sprint(rng.IntN(3)), c.ID)
	default:
		_, err := w.tryCommit(nil, small(rng.IntN(1000)), 0)
		return err
	}
}

// TestStoringTwiceTakesNoSpace stores a value a second time: the log grows by less than 1 % of it.
func TestStoringTwiceTakesNoSpace(t *testing.T) {
	o := options(t)
	s := open(t, o)
	v := noise(rand.New(rand.NewPCG(1, 1)), 10<<20)
	update(t, s, edit{"a": v})
	for _, key := range []string{"b", "c"} {
		before := s.Stats().SegmentBytes
		update(t, s, edit{key: v})
		grown := s.Stats().SegmentBytes - before
		t.Logf("grown by %d bytes", grown)
		if grown > int64(len(v))/100 {
			t.Errorf("the log has grown by %d bytes for a value of %d bytes that it held", grown, len(v))
		}
		closeStore(t, s)
		s = open(t, o)
	}
	wantContent(t, s, s.Heads()[0], map[string][]byte{"a": v, "b": v, "c": v})
	wantClean(t, s)
}

// TestCloseWhileCompacting closes a page while a compaction writes copies: each waits for the other
// where it must, and both return.
func TestCloseWhileCompacting(t *testing.T) {
	w := newWorld(t, 1, storage.Options{})
	var armed atomic.Bool
	writing, closing := make(chan struct{}), make(chan struct{})
	w.o.FS = vfstest.NewHooked(w.mem, func(op vfstest.Op) {
		if op.Kind == vfstest.OpWrite && armed.CompareAndSwap(true, false) {
			close(writing)
			<-closing
		}
	})
	w.open()
	for i := range 5 {
		w.commit(many(i, 50))
	}
	w.must(w.s.Fold(t.Context()))
	kept := w.s.Heads()[0]
	w.pruneAll()
	cycles(t, w.s.NewCollector(storage.CollectOptions{}), 3)
	armed.Store(true)
	s, ended := w.s, make(chan error, 2)
	go func() {
		_, err := s.Compact(t.Context(), storage.CompactOptions{MinDeadShare: 1e-9})
		if errors.Is(err, base.ErrClosed) {
			err = nil
		}
		ended <- err
	}()
	<-writing
	go func() { ended <- s.Close() }()
	for unlock, err := s.Lock(t.Context()); !errors.Is(err, base.ErrClosed); unlock, err = s.Lock(t.Context()) {
		unlock()
	}
	for range 1000 { // until Close waits for the disk or the compaction
		runtime.Gosched()
	}
	close(closing)
	for range 2 {
		select {
		case err := <-ended:
			w.must(err)
		case <-time.After(time.Minute):
			t.Fatal("the two wait for each other")
		}
	}
	w.open()
	w.must(w.verifyContent(w.s, kept))
	w.must(checkClean(w.s))
	w.close()
}
