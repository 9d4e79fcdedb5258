package storage

import (
	"errors"
	"testing"
	"time"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/vfs/vfstest"
	"github.com/ledgerd/ledger/storage/index"
)

// openMemory opens a page in memory.
func openMemory(t *testing.T, o Options) *Store {
	t.Helper()
	o.FS, o.Dir, o.MemoryIndex = vfstest.NewMem(), "page", index.NewMemory()
	if err := Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestPendingIsBounded lets commits come in ahead of many others: what is pending never goes far
// beyond where writers wait, by the weights of what is held.
func TestPendingIsBounded(t *testing.T) {
	for origin, rows := range map[byte]int{originLocal: 1, originBucket: 6, originTreeless: 48, originAhead: 48} {
		o := op{kind: recCommit, origin: origin}
		if o.weight() != rows {
			t.Errorf("a commit of origin %d counts as %d rows, want %d", origin, o.weight(), rows)
		}
	}
	s := openMemory(t, Options{FoldRows: 960})
	parent, most := commit.First(), 0
	for range 60 {
		var b SyncBatch
		for range 10 {
			c, err := commit.New(commit.Params{Now: time.Unix(1000, 0), Root: btree.EmptyRoot, Parents: []*commit.Commit{parent}})
			if err != nil {
				t.Fatal(err)
			}
			b.Commits, parent = append(b.Commits, ReceivedCommit{Commit: c, Treeless: true, Shallow: true, Ahead: true}), c
		}
		p, err := s.SubmitSync(t.Context(), nil, &b)
		if err == nil {
			err = p.Wait()
		}
		if err != nil {
			t.Fatal(err)
		}
		s.over.mu.RLock()
		most = max(most, s.over.commits.Len())
		s.over.mu.RUnlock()
	}
	if most > 2*960/48+10 {
		t.Errorf("%d commits were pending", most)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestFoldHoldsOneTransaction writes many steps, of which no more than one transaction are held at
// a time, and all run in order.
func TestFoldHoldsOneTransaction(t *testing.T) {
	db := index.NewMemory()
	s := state{next: 1}
	err := db.Update(func(tx index.Tx) error {
		return tx.Bucket(bucketState).Put(stateKey, s.encode())
	})
	if err != nil {
		t.Fatal(err)
	}
	w := &planWriter{ctx: t.Context(), db: db, most: 100, next: 77}
	ran := 0
	for i := range 5000 {
		w.addWeight(1+i%7, func(index.Tx) error {
			if ran != i {
				t.Errorf("step %d runs as number %d", i, ran)
			}
			ran++
			return nil
		})
		if w.weight > 100 || len(w.steps) > 100 {
			t.Fatalf("%d steps of weight %d are held", len(w.steps), w.weight)
		}
	}
	if err := w.finish(func(index.Tx) error { return nil }); err != nil || w.err != nil || ran != 5000 {
		t.Errorf("%d steps ran: %v, %v", ran, w.err, err)
	}
	err = db.View(func(tx index.Tx) error {
		st, err := parseState(tx.Bucket(bucketState).Get(stateKey))
		if st.next != 77 {
			t.Errorf("numbers up to %d are reserved", st.next)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestMissingParentIsDamage loses the row of a commit whose child is pending. The child was made
// here, so that the commit was not given up: it comes back from the log.
func TestMissingParentIsDamage(t *testing.T) {
	s := openMemory(t, Options{})
	add := func(parent *commit.Commit) *commit.Commit {
		parents := []*commit.Commit{parent}
		c, err := commit.New(commit.Params{Now: time.Unix(1000, 0), Root: btree.EmptyRoot, Parents: parents})
		if err != nil {
			t.Fatal(err)
		}
		p, err := s.Submit(t.Context(), nil, c)
		if err == nil {
			err = p.Wait()
		}
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	parent := add(commit.First())
	if err := s.Fold(t.Context()); err != nil {
		t.Fatal(err)
	}
	add(parent)
	err := s.index.Update(func(tx index.Tx) error { return tx.Bucket(bucketCommits).Delete(parent.ID[:]) })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Commit(t.Context(), parent.ID); !errors.Is(err, base.ErrNotFound) {
		t.Errorf("a commit without a row: %v", err)
	}
	if _, err := s.Known(t.Context(), parent.ID); err != nil || s.Recovery().IndexRebuilt == "" {
		t.Errorf("a commit that was looked for twice: %v, index made anew: %q", err, s.Recovery().IndexRebuilt)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
