package storage_test

import (
	"errors"
	"slices"
	"syscall"
	"testing"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/vfs/vfstest"
	"github.com/ledgerd/ledger/storage"
)

// ids returns the ids of commits.
func ids(cs ...*commit.Commit) []commit.ID {
	out := make([]commit.ID, len(cs))
	for i, c := range cs {
		out[i] = c.ID
	}
	return out
}

// isTold reports whether a channel is closed.
func isTold(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// siblings makes two commits on one.
func siblings(w *world) (a, b *commit.Commit) {
	w.t.Helper()
	root := w.commit(many(0, 20))
	var err error
	a, err = w.tryCommit(root, edit{"a": []byte("left")}, 0)
	w.must(err)
	b, err = w.tryCommit(root, edit{"b": noise(w.rng, 20<<10)}, 0)
	w.must(err)
	return a, b
}

// failWrites makes every write from now on fail, and returns what lets them succeed again.
func (f *faulty) failWrites() (restore func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.at, f.kind.sticky, f.space = f.ops, true, false
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.space = true
	}
}

// newFullDisk is a page whose writes fail when failWrites says so.
func newFullDisk(t *testing.T) *faulty {
	return newFaulty(t, faultKind{"", syscall.ENOSPC, func(k vfstest.OpKind) bool { return k == vfstest.OpWrite }, false}, 1<<30)
}

// TestChainedHeads follows the heads through submission, durability and failure (I2, I5).
func TestChainedHeads(t *testing.T) {
	f := newFullDisk(t)
	w := f.world
	w.open()
	a, b := siblings(w)
	want := ids(a, b)
	heads := func(when string, durable, chained []commit.ID) {
		t.Helper()
		if got := ids(w.s.Heads()...); !slices.Equal(got, durable) {
			t.Errorf("%s: heads %v, want %v", when, got, durable)
		}
		if got := ids(w.s.ChainedHeads()...); !slices.Equal(got, chained) {
			t.Errorf("%s: chained heads %v, want %v", when, got, chained)
		}
	}
	heads("two siblings", want, want)
	w.s.ChainedHeads()[0] = nil // the caller's
	next, err := w.submit(a, edit{"a": []byte("later")}, 0)
	w.must(err)
	heads("submitted", want, ids(b, next.c))
	w.must(w.wait(next))
	heads("durable", ids(b, next.c), ids(b, next.c))
	lost, err := w.submit(b, edit{"b": nil}, 0)
	w.must(err)
	heads("submitted in vain", ids(b, next.c), ids(next.c, lost.c))
	restore := f.failWrites()
	if err := w.wait(lost); !errors.Is(err, base.ErrNoSpace) {
		t.Fatalf("got %v, want ErrNoSpace", err)
	}
	restore()
	heads("failed", ids(b, next.c), ids(b, next.c))
	w.close()
}

// TestHeadsChanged wakes who waits when the durable heads change and when the page closes, and not
// before.
func TestHeadsChanged(t *testing.T) {
	f := newFullDisk(t)
	w := f.world
	w.open()
	first := w.commit(small(1))
	c, other := w.s.HeadsChanged(), w.s.HeadsChanged()
	w.must(w.setTag("x", first))
	w.must(w.s.Fold(t.Context()))
	tx, err := w.submit(nil, small(2), 0)
	w.must(err)
	if isTold(c) {
		t.Fatal("told before the heads have changed")
	}
	w.must(w.wait(tx))
	if !isTold(c) || !isTold(other) {
		t.Fatal("not told that the heads have changed")
	}
	if h := w.s.Heads(); len(h) != 1 || h[0].ID != tx.c.ID {
		t.Fatalf("heads %v after being told", h)
	}
	c = w.s.HeadsChanged()
	lost, err := w.submit(nil, small(3), 0)
	w.must(err)
	restore := f.failWrites()
	if err := w.wait(lost); err == nil {
		t.Fatal("a write that failed was acknowledged")
	}
	restore()
	if isTold(c) {
		t.Fatal("told after a failure, by which durable heads do not change")
	}
	w.close()
	if !isTold(c) || !isTold(w.s.HeadsChanged()) {
		t.Fatal("not told that the page is closed")
	}
}

// TestHeadsChangedByClose closes a page whose last group is written by Close.
func TestHeadsChangedByClose(t *testing.T) {
	w := newWorld(t, 1, storage.Options{})
	w.open()
	c := w.s.HeadsChanged()
	tx, err := w.submit(nil, small(1), 0)
	w.must(err)
	w.close()
	w.must(w.wait(tx))
	if !isTold(c) || !isTold(w.s.HeadsChanged()) {
		t.Fatal("not told that the page is closed")
	}
}

// TestMerges finds the merges of two commits while they are submitted, durable and in the rows, and
// no others.
func TestMerges(t *testing.T) {
	w := newWorld(t, 1, storage.Options{})
	w.open()
	a, b := siblings(w)
	var want []commit.ID
	find := func(when string) {
		t.Helper()
		for _, p := range [][2]*commit.Commit{{a, b}, {b, a}} {
			got, err := w.s.Merges(t.Context(), p[0].ID, p[1].ID)
			w.must(err)
			if !slices.Equal(got, want) {
				t.Errorf("%s: got %v, want %v", when, got, want)
			}
		}
		for _, p := range [][2]commit.ID{{a.ID, a.ID}, {a.ID, a.Parents[0]}, {{}, b.ID}, {a.ID, {0: 0xff}}} {
			if got, err := w.s.Merges(t.Context(), p[0], p[1]); err != nil || len(got) > 0 {
				t.Errorf("%s: merges of %v: %v, %v", when, p, got, err)
			}
		}
	}
	find("before")
	for i := range 4 {
		m, err := w.submitJournal(w.s.NewJournal(), edit{"merged": {byte(i)}}, 0, a, b)
		w.must(err)
		want = append(want, m.c.ID)
		slices.SortFunc(want, commit.ID.Compare)
		find("submitted")
		w.must(w.wait(m))
		find("durable")
		if i%2 == 0 {
			w.must(w.s.Fold(t.Context()))
			find("folded")
		}
	}
	w.reopen()
	find("opened again")
	w.close()
	if _, err := w.s.Merges(t.Context(), a.ID, b.ID); !errors.Is(err, base.ErrClosed) {
		t.Errorf("closed: got %v, want ErrClosed", err)
	}
}
