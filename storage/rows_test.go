package storage_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/split"
	"github.com/ledgerd/ledger/storage"
)

// rowKeys returns the keys of a family, sorted.
func rowKeys(t testing.TB, s *storage.Store, family string) []string {
	t.Helper()
	var keys []string
	for r, err := range s.Rows(t.Context(), family) {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, r.Key)
	}
	slices.Sort(keys)
	return keys
}

func wantRows(t testing.TB, s *storage.Store, family string, want map[string]bool) {
	t.Helper()
	keys := make([]string, 0, len(want))
	for k := range want {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	if d := cmp.Diff(keys, rowKeys(t, s, family), cmp.Transformer("lines", func(s []string) string { return strings.Join(s, "\n") })); d != "" {
		t.Errorf("rows of %s (-want +got):\n%s", family, d)
	}
}

func identifier(d object.Digest) string { return object.Identifier{Digest: d}.String() }

// valuePieces returns the pieces of a value.
func valuePieces(t testing.TB, src split.Source, root object.Digest) []object.Digest {
	t.Helper()
	var all []object.Digest
	err := split.Walk(t.Context(), src, root, func(d object.Digest, _ uint64) error {
		all = append(all, d)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// references computes the rows of refcounts and local/objects for commits by reading all that they
// reach.
func references(t testing.TB, s *storage.Store, commits []*commit.Commit) (refs, local map[string]bool) {
	t.Helper()
	refs, local = map[string]bool{}, map[string]bool{}
	ref := func(dest object.Digest, typ string, source object.Digest) {
		refs[fmt.Sprintf("refcounts/%s/object/%s/%s", dest, typ, source)] = true
	}
	pieces := func(root object.Digest) {
		for _, d := range valuePieces(t, s, root) {
			if !d.Kind().IsNode() {
				local["local/objects/"+identifier(d)] = true
			}
			content, err := s.Piece(t.Context(), d)
			if err != nil {
				t.Fatal(err)
			}
			children, err := split.Children(d, content)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range children {
				ref(c, "eager", d)
			}
		}
	}
	tree := func(root object.Digest, id commit.ID) {
		refs[fmt.Sprintf("refcounts/%s/commit/%s", root, id)] = true
		err := btree.Verify(t.Context(), btree.Tree{Page: testPage, Source: s, Root: root}, func(n *fb.Node, d object.Digest, children func() error) error {
			if d.Kind().IsIndex() {
				pieces(d)
			}
			for i := range n.NumChildren() {
				ref(n.Child(i).Digest, "eager", d)
			}
			for i := range n.Len() {
				e := n.Entry(i)
				if e.Inline {
					continue
				}
				typ := "eager"
				if e.Priority == object.Lazy {
					typ = "lazy"
				}
				ref(e.Digest, typ, d)
				pieces(e.Digest)
			}
			return children()
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range commits {
		tree(c.Root, c.ID)
		root, ok, err := s.Explanation(t.Context(), c.ID)
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			tree(root, c.ID)
		}
	}
	return refs, local
}

// TestRowsOfHistory compares the rows of a random history, folded in many parts, with what the
// commits say.
func TestRowsOfHistory(t *testing.T) {
	for _, rows := range []int{0, 7} {
		w := newWorld(t, 3, storage.Options{FoldRows: rows})
		w.tidy = true
		w.open()
		w.commit(largeNode(w.rng))
		randomScript(w, 60)
		w.commitFlushed(edit{"large": noise(w.rng, 900<<10)}, 5)
		acked := w.promise().acked
		refs, local := references(t, w.s, acked)
		wantRows(t, w.s, "refcounts", refs)
		wantRows(t, w.s, "local/objects", local)
		want := map[string]map[string]bool{"commits": {}, "unsynced/commits": {}, "merges": {}, "conflicts": {}, "heads": {}}
		for _, c := range acked {
			want["commits"]["commits/"+c.ID.String()] = true
			want["unsynced/commits"]["unsynced/commits/"+c.ID.String()] = true
			if len(c.Parents) == 2 {
				a, b := c.Parents[0], c.Parents[1]
				if a.Compare(b) > 0 {
					a, b = b, a
				}
				want["merges"][fmt.Sprintf("merges/%s/%s/%s", a, b, c.ID)] = true
				if roots := w.promise().explained[c.ID]; !roots[0].IsZero() {
					want["conflicts"]["conflicts/"+c.ID.String()] = true
				}
			}
		}
		for _, h := range w.s.Heads() {
			want["heads"]["heads/"+h.ID.String()] = true
		}
		if len(want["merges"]) == 0 || len(want["conflicts"]) == 0 || len(want["conflicts"]) == len(want["merges"]) {
			t.Errorf("a history with %d merges, %d of them with explanations", len(want["merges"]), len(want["conflicts"]))
		}
		for family, keys := range want {
			wantRows(t, w.s, family, keys)
		}
		wantRows(t, w.s, "synced/objects", nil)
		w.close()
	}
}

// TestStatuses follows a piece through its life: transient while a journal holds it, local when
// that commits, transient until it is collected when it is rolled back.
func TestStatuses(t *testing.T) {
	ctx := context.Background()
	w := newWorld(t, 4, storage.Options{})
	w.open()
	a, b, c := noise(w.rng, 3000), noise(w.rng, 3000), noise(w.rng, 3000)
	name := func(family string, v []byte) string { return family + "/" + identifier(object.Sum(0, v)) }
	j1, j2 := w.s.NewJournal(), w.s.NewJournal()
	put := func(j *storage.Journal, v []byte) {
		t.Helper()
		_, err := putValue(ctx, j, "x", v, 1)
		w.must(err)
	}
	put(j1, a)
	put(j1, b)
	put(j2, b)
	put(j2, c)
	set := func(keys ...string) map[string]bool {
		m := map[string]bool{}
		for _, k := range keys {
			m[k] = true
		}
		return m
	}
	tr, lo := "transient/objects", "local/objects"
	count := func(want int) {
		t.Helper()
		if got := len(rowKeys(t, w.s, tr)); got != want {
			t.Errorf("%d transient rows, want %d", got, want)
		}
	}
	count(3)
	wantRows(t, w.s, lo, nil)
	tx, err := w.submitJournal(j1, edit{"a": a, "b": b}, 0, w.s.NewestHead())
	w.must(err)
	w.must(w.wait(tx))
	wantRows(t, w.s, lo, set(name(lo, a), name(lo, b)))
	count(1)
	j2.Rollback()
	count(1)
	w.reopen()
	count(1)
	wantRows(t, w.s, lo, set(name(lo, a), name(lo, b)))
	w.commit(edit{"c": c}) // what a journal that was rolled back has left is used
	wantRows(t, w.s, lo, set(name(lo, a), name(lo, b), name(lo, c)))
	if got, err := w.s.Piece(ctx, object.Sum(0, c)); err != nil || !bytes.Equal(got, c) {
		t.Errorf("piece: %v", err)
	}
	w.must(checkClean(w.s))
	w.close()
}

// TestLazyReferences tells the references of lazy values from those of eager ones.
func TestLazyReferences(t *testing.T) {
	w := newWorld(t, 5, storage.Options{})
	w.open()
	rng := rand.New(rand.NewPCG(1, 2))
	j := w.s.NewJournal()
	var changes []btree.Change
	for i, p := range []object.Priority{object.Eager, object.Lazy} {
		ch, err := putValue(t.Context(), j, fmt.Sprint("key ", i), noise(rng, 1000), 0)
		w.must(err)
		ch.Entry.Priority = p
		changes = append(changes, ch)
	}
	root, err := btree.Tree{Page: testPage, Source: j, Root: btree.EmptyRoot}.Apply(t.Context(), j, func(yield func(btree.Change, error) bool) {
		for _, ch := range changes {
			if !yield(ch, nil) {
				return
			}
		}
	})
	w.must(err)
	c := commitRoot(t, w.s, j, root)
	refs, local := references(t, w.s, []*commit.Commit{c})
	wantRows(t, w.s, "refcounts", refs)
	wantRows(t, w.s, "local/objects", local)
	if !slices.ContainsFunc(rowKeys(t, w.s, "refcounts"), func(k string) bool { return strings.Contains(k, "/lazy/") }) {
		t.Error("no lazy reference")
	}
	w.close()
}
