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

// chainOf returns n commits, each on the one before, the first of them on parent.
func chainOf(w *world, n int, at int64, parent *commit.Commit) (out []*commit.Commit) {
	for i := range n {
		c, err := commit.New(commit.Params{Now: time.Unix(at+int64(i), 0), Root: btree.EmptyRoot, Parents: []*commit.Commit{parent}})
		w.must(err)
		out, parent = append(out, c), c
	}
	return out
}

// TestReceivedAhead takes history in batches ahead of the head above it: heads stay as they are
// until that has come, then what has children is a head no more.
func TestReceivedAhead(t *testing.T) {
	w := newWorld(t, 1, storage.Options{})
	w.open()
	own := w.commit(small(1))
	onOwn := chainOf(w, 6, 1000, own)
	first := chainOf(w, 4, 2000, commit.First())
	ahead := func(cs ...*commit.Commit) (rs []storage.ReceivedCommit) {
		for _, c := range cs {
			rs = append(rs, storage.ReceivedCommit{Commit: c, Treeless: true, Shallow: true, Ahead: true})
		}
		return rs
	}
	heads := func(want ...*commit.Commit) {
		w.each(func(when string) {
			t.Helper()
			hs := w.s.Heads()
			for i, h := range hs {
				if len(hs) != len(want) || h.ID != want[i].ID {
					t.Fatalf("%s: head %d of %d is %s", when, i, len(hs), h.ID)
				}
			}
		})
	}
	w.sync(nil, storage.SyncBatch{Commits: ahead(onOwn[:2]...)})
	w.sync(nil, storage.SyncBatch{Commits: ahead(append(onOwn[2:5:5], first[:2]...)...)})
	heads(own)
	if unsynced, err := w.s.Unsynced(t.Context()); err != nil || len(unsynced) != 1 {
		t.Errorf("%d commits are unsynced: %v", len(unsynced), err)
	}
	if _, err := w.s.SubmitSync(t.Context(), nil, &storage.SyncBatch{Inner: []commit.ID{own.ID}}); !errors.Is(err, base.ErrInvalid) {
		t.Errorf("a page without heads: %v", err)
	}
	w.sync(nil, storage.SyncBatch{Commits: []storage.ReceivedCommit{{Commit: onOwn[5], Shallow: true}}, Inner: []commit.ID{own.ID}})
	heads(onOwn[5])
	// A merge that came ahead, and is made here, too, is a head until what is built on it has come.
	side, err := commit.New(commit.Params{Now: time.Unix(3000, 0), Root: btree.EmptyRoot, Parents: []*commit.Commit{own}})
	w.must(err)
	w.sync(nil, storage.SyncBatch{Commits: []storage.ReceivedCommit{{Commit: side}}})
	merge, err := commit.NewMerge(btree.EmptyRoot, onOwn[5], side)
	w.must(err)
	w.sync(nil, storage.SyncBatch{Commits: ahead(merge)})
	heads(onOwn[5], side)
	pending, err := w.s.Submit(t.Context(), nil, merge)
	w.must(err)
	w.must(pending.Wait())
	if unsynced, err := w.s.Unsynced(t.Context()); err != nil || len(unsynced) != 1 { // as once it is folded
		t.Errorf("%d commits are unsynced while the merge is pending: %v", len(unsynced), err)
	}
	heads(merge)
	if unsynced, err := w.s.Unsynced(t.Context()); err != nil || len(unsynced) != 1 {
		t.Errorf("%d commits are unsynced: %v", len(unsynced), err)
	}
	onMerge := chainOf(w, 1, 4000, merge)
	w.sync(nil, storage.SyncBatch{Commits: []storage.ReceivedCommit{{Commit: onMerge[0]}}})
	onOwn[5] = onMerge[0]
	heads(onOwn[5])
	n := 0
	for _, err := range commit.Walk(t.Context(), w.s, []commit.ID{onOwn[5].ID}) {
		w.must(err)
		n++
	}
	if n != 11 {
		t.Errorf("%d commits in the history", n)
	}
	// What is left of a history that was given up half way counts when it comes again, parents
	// first, among others that are new.
	w.sync(nil, storage.SyncBatch{Commits: []storage.ReceivedCommit{{Commit: first[0], Anew: true}, {Commit: first[1], Anew: true}, {Commit: first[2]}}})
	heads(first[2], onOwn[5])
	w.sync(nil, storage.SyncBatch{Commits: []storage.ReceivedCommit{{Commit: first[1], Anew: true}, {Commit: onOwn[1], Anew: false}, {Commit: first[3]}}})
	heads(first[3], onOwn[5])
	w.must(w.s.Close())
}

// TestHolesLeaveAhead looks for holes while a commit is here ahead of what is built on it. That its
// tree is whole does not make it one that has come: when it comes again, it is a head.
func TestHolesLeaveAhead(t *testing.T) {
	w := newWorld(t, 1, storage.Options{})
	w.open()
	own := w.commit(small(1))
	on := chainOf(w, 1, 1000, own)[0]
	w.sync(nil, storage.SyncBatch{Commits: []storage.ReceivedCommit{{Commit: on, Treeless: true, Shallow: true, Ahead: true}}})
	if holes, err := w.s.Holes(t.Context()); err != nil || len(holes) > 0 {
		t.Errorf("%d commits have holes: %v", len(holes), err)
	}
	w.sync(nil, storage.SyncBatch{Commits: []storage.ReceivedCommit{{Commit: on, Anew: true}}})
	w.each(func(when string) {
		if hs := w.s.Heads(); len(hs) != 1 || hs[0].ID != on.ID {
			t.Errorf("%s: %d heads, the first is %s", when, len(hs), hs[0].ID)
		}
	})
	w.must(w.s.Close())
}
