package storage_test

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// A journal may make a node that the page has as a difference to one that the page has as a
// difference to it. Without a cache it is read from where it is stored.
func TestJournalReadsHeldNodesFromThePage(t *testing.T) {
	o := options(t)
	o.Cache = storage.NewNodeCache(1)
	s := open(t, o)
	ctx := t.Context()
	apply := func(j *storage.Journal, root object.Digest, value byte) object.Digest {
		t.Helper()
		root, err := btree.Tree{Page: testPage, Source: j, Root: root}.Apply(ctx, j, one([]byte("k"), []byte{value}))
		if err != nil {
			t.Fatal(err)
		}
		return root
	}
	j := s.NewJournal()
	defer j.Rollback()
	a := btree.EmptyRoot
	for i := range 8 { // enough for differences to be shorter than nodes
		var err error
		if a, err = (btree.Tree{Page: testPage, Source: j, Root: a}).Apply(ctx, j, one([]byte{byte(i)}, make([]byte, 200))); err != nil {
			t.Fatal(err)
		}
	}
	a = apply(j, a, 'a')
	b := apply(j, a, 'b')
	c, err := commit.New(commit.Params{Now: time.Unix(1, 0), Root: b, Parents: s.Heads()})
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Submit(ctx, j, c)
	if err == nil {
		err = p.Wait()
	}
	if err != nil {
		t.Fatal(err)
	}
	k := s.NewJournal()
	defer k.Rollback()
	if root := apply(k, apply(k, b, 'a'), 'b'); root != b {
		t.Fatalf("root %s, want %s", root, b)
	}
	for _, root := range []object.Digest{a, b} {
		if _, err := k.Node(ctx, root); err != nil {
			t.Error(err)
		}
	}
}

// TestLogHasCircles stores a node as a difference to another, deletes both, and stores the other as
// a difference to the first. An index that was left before all that is brought up to date, and the
// page can be read meanwhile, also when the two stay as bases only.
func TestLogHasCircles(t *testing.T) {
	for _, bury := range []bool{false, true} {
		w := newWorld(t, 1, storage.Options{Cache: storage.NewNodeCache(1)})
		w.open()
		all := edit{}
		for i := range 8 { // enough for differences to be shorter than nodes
			all[fmt.Sprint(i)] = noise(w.rng, 200)
		}
		with := func(value string) edit {
			e := maps.Clone(all)
			e["k"] = []byte(value)
			return e
		}
		none := edit{"k": nil}
		for k := range all {
			none[k] = nil
		}
		b := w.commit(with("b")).Root
		w.must(w.s.Fold(t.Context()))
		rows := w.ix.Clone()
		a := w.commit(edit{"k": []byte("a")}).Root
		w.commit(none)
		gc := w.s.NewCollector(storage.CollectOptions{})
		w.pruneAll()
		cycles(t, gc, 2)
		if w.commit(with("a")).Root != a || w.commit(edit{"k": []byte("b")}).Root != b {
			t.Fatal("other nodes")
		}
		if bury {
			w.commit(edit{"k": []byte("c")})
			w.pruneAll()
			cycles(t, gc, 2)
		}
		head := w.s.NewestHead()
		w.close()
		w.ix, w.o.MemoryIndex = rows, rows
		w.open()
		if err := w.verifyContent(w.s, head); err != nil {
			t.Errorf("bury %t: before the fold: %v", bury, err)
		}
		w.must(w.s.Fold(t.Context()))
		w.must(w.verifyContent(w.s, head))
		w.must(checkClean(w.s))
		if made := w.s.Recovery().IndexRebuilt; made != "" {
			t.Errorf("bury %t: index made anew: %s", bury, made)
		}
		w.close()
	}
}
