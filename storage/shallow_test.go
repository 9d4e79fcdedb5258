package storage_test

import (
	"errors"
	"testing"
	"time"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/storage"
)

// TestReceivedWithoutParents takes commits whose parents were given up before they came here, and
// one whose parent was pruned here.
func TestReceivedWithoutParents(t *testing.T) {
	w := newWorld(t, 1, storage.Options{})
	w.open()
	own := w.commit(small(1))
	head := w.commit(small(2))
	child := func(at int64, parents ...*commit.Commit) *commit.Commit {
		c, err := commit.New(commit.Params{Now: time.Unix(at, 0), Root: btree.EmptyRoot, Parents: parents})
		w.must(err)
		return c
	}
	never := child(100, commit.First())
	c := child(200, never)
	onOwn := child(300, own)
	d := child(400, c)
	island := child(350, never)
	if _, err := w.s.Prune(t.Context(), []commit.ID{own.ID}); err != nil {
		t.Fatal(err)
	}
	for name, r := range map[string][]storage.ReceivedCommit{"as it is": {{Commit: c}}, "behind a shallow one": {{Commit: never, Shallow: true}, {Commit: child(500, child(450, commit.First()))}}} {
		if _, err := w.s.SubmitSync(t.Context(), nil, &storage.SyncBatch{Commits: r}); !errors.Is(err, base.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	w.sync(nil, storage.SyncBatch{Commits: []storage.ReceivedCommit{{Commit: c, Shallow: true}, {Commit: d}, {Commit: onOwn}, {Commit: island, Shallow: true, Inner: true}}})
	w.each(func(when string) {
		t.Helper()
		for _, id := range []commit.ID{never.ID, own.ID} {
			if _, err := w.s.Commit(t.Context(), id); !errors.Is(err, base.ErrGone) {
				t.Errorf("%s: a commit that was given up: %v", when, err)
			}
		}
		if h := w.s.Heads(); len(h) != 3 || h[0].ID != head.ID || h[1].ID != onOwn.ID || h[2].ID != d.ID {
			t.Errorf("%s: %d heads", when, len(h))
		}
		if ids, err := w.s.FindCommits(t.Context(), own.ID[:], false, 2); err != nil || len(ids) != 0 {
			t.Errorf("%s: the pruned commit is listed: %v, %v", when, ids, err)
		}
		n := 0
		for _, err := range commit.Walk(t.Context(), w.s, []commit.ID{d.ID}) {
			w.must(err)
			n++
		}
		if n != 2 {
			t.Errorf("%s: %d commits in the history", when, n)
		}
	})
	w.must(w.s.Close())
}

// TestPrunedComesAgain takes a commit that was pruned here while a child of it stayed: it is here
// again, and no head.
func TestPrunedComesAgain(t *testing.T) {
	w := newWorld(t, 1, storage.Options{})
	w.open()
	a, b := w.commit(small(1)), w.commit(small(2))
	if _, err := w.s.Prune(t.Context(), []commit.ID{a.ID}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.s.Commit(t.Context(), a.ID); !errors.Is(err, base.ErrGone) {
		t.Fatal(err)
	}
	w.sync(nil, storage.SyncBatch{Commits: []storage.ReceivedCommit{{Commit: a, Treeless: true, Inner: true}}})
	w.each(func(when string) {
		t.Helper()
		if _, err := w.s.Commit(t.Context(), a.ID); err != nil {
			t.Errorf("%s: %v", when, err)
		}
		if h := w.s.Heads(); len(h) != 1 || h[0].ID != b.ID {
			t.Errorf("%s: %d heads", when, len(h))
		}
		for r, err := range w.s.Rows(t.Context(), "shallow/commits") {
			t.Errorf("%s: row %v, %v", when, r, err)
		}
	})
	w.must(w.s.Close())
}
