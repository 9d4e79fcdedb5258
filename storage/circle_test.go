package storage_test

import (
	"testing"
	"time"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// A journal may make a node that the page has as a difference to one that the page has as a difference to it. Without a cache it is
// read from where it is stored.
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
