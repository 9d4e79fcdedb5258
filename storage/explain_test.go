package storage_test

import (
	"errors"
	"testing"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// decisions is a tree of explanation: n keys with values as long as a decision.
func decisions(w *world, j *storage.Journal, n int) object.Digest {
	w.t.Helper()
	root, _, err := putDecisions(j, w.rng, n)
	w.must(err)
	return root
}

// explained submits a merge of two commits with an explanation.
func (w *world) explainedMerge(e edit, a, b *commit.Commit) tx {
	w.t.Helper()
	j := w.s.NewJournal()
	t, err := w.make(j, e, 0, a, b)
	w.must(err)
	w.must(w.explain(j, &t, w.rng, 5))
	txs, err := w.submitAll(j, t)
	w.must(err)
	return txs[0]
}

// wantExplanation compares the explanation of a merge; a zero root: none.
func wantExplanation(t testing.TB, s *storage.Store, when string, merge commit.ID, want object.Digest) {
	t.Helper()
	got, ok, err := s.Explanation(t.Context(), merge)
	if err != nil || got != want || ok == want.IsZero() {
		t.Errorf("%s: explanation %s, %v, %v, want %s", when, got, ok, err, want)
	}
}

// TestExplanation follows an explanation from its submission to the rows and through reopening (I2,
// I3).
func TestExplanation(t *testing.T) {
	w := newWorld(t, 1, storage.Options{})
	w.open()
	a, b := siblings(w)
	wantExplanation(t, w.s, "of a commit that is no merge", a.ID, object.Digest{})
	wantExplanation(t, w.s, "of no commit", commit.ID{1}, object.Digest{})
	m := w.explainedMerge(edit{"m": []byte("1")}, a, b)
	root := m.explain
	plain, err := w.submitJournal(w.s.NewJournal(), edit{"m": []byte("2")}, 0, a, b)
	w.must(err)
	look := func(when string) {
		t.Helper()
		wantExplanation(t, w.s, when, m.c.ID, root)
		wantExplanation(t, w.s, when, plain.c.ID, object.Digest{})
	}
	look("submitted")
	w.must(w.wait(m))
	w.must(w.wait(plain))
	look("durable")
	w.must(w.s.Fold(t.Context()))
	look("folded")
	wantRows(t, w.s, "conflicts", map[string]bool{"conflicts/" + m.c.ID.String(): true})
	for r, err := range w.s.Rows(t.Context(), "conflicts") {
		if err != nil || r.Value != root.String() {
			t.Errorf("row %v, %v, want the root", r, err)
		}
	}
	w.reopen()
	look("opened again")
	r := wantClean(t, w.s)
	if r.Explanations != 1 {
		t.Errorf("check saw %d explanations, want 1", r.Explanations)
	}
	w.close()
	if _, _, err := w.s.Explanation(t.Context(), m.c.ID); !errors.Is(err, base.ErrClosed) {
		t.Errorf("closed: got %v, want ErrClosed", err)
	}
}

// TestFirstExplanationCounts submits a merge again with another explanation: in the same group,
// when it is durable and when it is folded; and twice in one journal.
func TestFirstExplanationCounts(t *testing.T) {
	w := newWorld(t, 1, storage.Options{})
	w.open()
	a, b := siblings(w)
	j := w.s.NewJournal()
	m, err := w.make(j, edit{"m": []byte("1")}, 0, a, b)
	w.must(err)
	w.must(w.explain(j, &m, w.rng, 3))
	root := m.explain
	j.Explain(m.c.ID, decisions(w, j, 2))
	txs, err := w.submitAll(j, m)
	w.must(err)
	m = txs[0]
	again := func(when string) {
		t.Helper()
		j := w.s.NewJournal()
		j.Explain(m.c.ID, decisions(w, j, 7))
		p, err := w.s.Submit(t.Context(), j, m.c)
		w.must(err)
		wantExplanation(t, w.s, when, m.c.ID, root)
		w.must(p.Wait())
		wantExplanation(t, w.s, when, m.c.ID, root)
	}
	again("submitted")
	w.must(w.wait(m))
	again("durable")
	w.must(w.s.Fold(t.Context()))
	again("folded")
	w.must(checkClean(w.s))
	w.reopen()
	wantExplanation(t, w.s, "opened again", m.c.ID, root)
	plain, err := w.submitJournal(w.s.NewJournal(), edit{"m": []byte("2")}, 0, a, b)
	w.must(err)
	w.must(w.wait(plain))
	j = w.s.NewJournal()
	j.Explain(plain.c.ID, decisions(w, j, 7))
	p, err := w.s.Submit(t.Context(), j, plain.c)
	w.must(err)
	w.must(p.Wait())
	wantExplanation(t, w.s, "of a merge that had none", plain.c.ID, object.Digest{})
	w.must(checkClean(w.s))
	w.close()
}

// TestBadExplanations are refused and leave nothing.
func TestBadExplanations(t *testing.T) {
	w := newWorld(t, 1, storage.Options{})
	w.open()
	a, b := siblings(w)
	m, err := commit.NewMerge(a.Root, a, b)
	w.must(err)
	plain, err := commit.New(commit.Params{Root: a.Root, Parents: []*commit.Commit{b}})
	w.must(err)
	for name, c := range map[string]struct {
		merge commit.ID
		root  object.Digest
	}{
		"empty tree":    {m.ID, btree.EmptyRoot},
		"no node":       {m.ID, object.Sum(0, []byte("x"))},
		"zero":          {m.ID, object.Digest{}},
		"no merge":      {plain.ID, a.Root},
		"not submitted": {commit.ID{1}, a.Root},
	} {
		j := w.s.NewJournal()
		j.Explain(c.merge, c.root)
		if _, err := w.s.Submit(t.Context(), j, m, plain); !errors.Is(err, base.ErrInvalid) {
			t.Errorf("%s: got %v, want ErrInvalid", name, err)
		}
		j.Rollback()
		wantExplanation(t, w.s, name, c.merge, object.Digest{})
		if h := w.s.ChainedHeads(); len(h) != 2 {
			t.Errorf("%s: chained heads %v", name, ids(h...))
		}
	}
	w.must(checkClean(w.s))
	w.close()
}

// TestLostExplanation fails the group of a merge: its explanation is gone with it, and another may
// come (I5).
func TestLostExplanation(t *testing.T) {
	f := newFullDisk(t)
	w := f.world
	w.open()
	a, b := siblings(w)
	e := edit{"m": []byte("1")}
	lost := w.explainedMerge(e, a, b)
	wantExplanation(t, w.s, "submitted", lost.c.ID, lost.explain)
	restore := f.failWrites()
	if err := w.wait(lost); !errors.Is(err, base.ErrNoSpace) {
		t.Fatalf("got %v, want ErrNoSpace", err)
	}
	restore()
	wantExplanation(t, w.s, "failed", lost.c.ID, object.Digest{})
	if got, err := w.s.Merges(t.Context(), a.ID, b.ID); err != nil || len(got) > 0 {
		t.Errorf("merges after a failure: %v, %v", got, err)
	}
	m := w.explainedMerge(e, a, b)
	if m.c.ID != lost.c.ID || m.explain == lost.explain {
		t.Fatal("not the same merge with another explanation")
	}
	w.must(w.wait(m))
	wantExplanation(t, w.s, "again", m.c.ID, m.explain)
	w.reopen()
	wantExplanation(t, w.s, "opened again", m.c.ID, m.explain)
	w.must(checkClean(w.s))
	w.close()
}
