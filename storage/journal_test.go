package storage_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// all is an edit that sets n keys to what a chain of edits of the first key has led to.
func all(n, version int) edit {
	e := edit{}
	for i := range n {
		e[fmt.Sprintf("key %04d", i)] = fmt.Appendf(nil, "a value of some length, so that a difference is shorter than a node: %d", i)
	}
	e["key 0000"] = fmt.Appendf(nil, "version %d", version)
	return e
}

// TestDifferencesOfForgottenNodes builds stored nodes anew, whole, in journals that are given up or
// that go on: what is made on them still has at most as many differences below it as can be read.
func TestDifferencesOfForgottenNodes(t *testing.T) {
	const keys = 60
	for _, goOn := range []bool{false, true} {
		t.Run(fmt.Sprintf("goOn=%v", goOn), func(t *testing.T) {
			o := options(t)
			s := open(t, o)
			update(t, s, all(keys, 0))
			for i := 1; i < 60; i++ {
				ctx := t.Context()
				j := s.NewJournal()
				head := s.NewestHead()
				fresh := all(keys, i-1)
				root, err := btree.Tree{Page: testPage, Source: j, Root: btree.EmptyRoot}.Apply(ctx, j, fresh.changes(ctx, j))
				if err != nil {
					t.Fatal(err)
				}
				if root != head.Root {
					t.Fatalf("version %d: another root for equal content", i)
				}
				if !goOn {
					j.Rollback()
					update(t, s, edit{"key 0000": fmt.Appendf(nil, "version %d", i)})
					continue
				}
				next := edit{"key 0000": fmt.Appendf(nil, "version %d", i)}
				if root, err = (btree.Tree{Page: testPage, Source: j, Root: root}).Apply(ctx, j, next.changes(ctx, j)); err != nil {
					t.Fatal(err)
				}
				commitRoot(t, s, j, root)
			}
			head := s.NewestHead()
			wantContent(t, s, head, all(keys, 59))
			wantClean(t, s)
			closeStore(t, s)
			s = open(t, o)
			wantContent(t, s, head, all(keys, 59))
		})
	}
}

// commitRoot commits a journal on the newest head.
func commitRoot(t testing.TB, s *storage.Store, j *storage.Journal, root [33]byte) *commit.Commit {
	t.Helper()
	c, err := commit.New(commit.Params{Root: root, Parents: []*commit.Commit{s.NewestHead()}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := s.Submit(context.Background(), j, c)
	if err == nil {
		err = p.Wait()
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestNodesOfAJournalStayWhatTheyAre reads a node out of the memory of a journal, which uses that
// again after it has written it.
func TestNodesOfAJournalStayWhatTheyAre(t *testing.T) {
	o := options(t)
	o.Cache = storage.NewNodeCache(1) // so that the journal is asked
	s := open(t, o)
	j := s.NewJournal()
	rng := rand.New(rand.NewPCG(1, 2))
	put := func(pieces int) {
		for range pieces {
			content := noise(rng, 60<<10)
			if err := j.PutPiece(t.Context(), object.Sum(0, content), content); err != nil {
				t.Fatal(err)
			}
		}
	}
	put(40) // from then on its memory stays where it is
	root, err := btree.Build(t.Context(), o.Page, j, func(yield func(fb.Entry, error) bool) {
		for i := range 2000 {
			if !yield(fb.Entry{Key: fmt.Appendf(nil, "key %06d", i), Inline: true, Value: noise(rng, 100), Size: 100}, nil) {
				return
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	read := map[object.Digest]*fb.Node{}
	var walk func(d object.Digest)
	walk = func(d object.Digest) {
		n, err := j.Node(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		read[d] = n
		for i := range n.NumChildren() {
			walk(n.Child(i).Digest)
		}
	}
	walk(root)
	put(300)
	for d, n := range read {
		if err := d.Verify(n.Bytes()); err != nil {
			t.Fatalf("a node that was read before: %v", err)
		}
	}
	j.Rollback()
	closeStore(t, s)
}

// TestLongestNode: a page keeps a node of almost limits.MaxNodeBytes as any other. Keys for a
// longer one are refused, and leave nothing.
func TestLongestNode(t *testing.T) {
	w := newWorld(t, 1, storage.Options{SegmentBytes: 64 << 10})
	w.must(storage.Create(t.Context(), w.o))
	w.open()
	keys := lowKeys(limits.MaxNodeBytes / btree.InlineLimit)
	e := edit{}
	for _, k := range keys[:len(keys)*9/10] {
		e[k] = noise(w.rng, btree.InlineLimit)
	}
	w.commit(e)
	for i := range 10 { // differences to it, and one that is too deep for that
		w.commit(edit{keys[i]: []byte("other")})
	}
	more := edit{}
	for _, k := range keys {
		more[k] = noise(w.rng, btree.InlineLimit)
	}
	if _, err := w.tryCommit(nil, more, 0); !errors.Is(err, base.ErrTooLarge) {
		t.Errorf("error %v for a longer node", err)
	}
	w.reopen()
	w.giveUp()
	cycles(t, w.s.NewCollector(storage.CollectOptions{}), 2)
	_, err := w.s.Compact(t.Context(), storage.CompactOptions{Purge: true})
	w.must(err)
	w.must(checkClean(w.s))
	w.must(w.verify(w.s, w.promise(), w.rng))
	w.close()
}
