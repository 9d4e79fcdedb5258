package btree_test

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/internal/tier"
	"github.com/ledgerd/ledger/object"

	fb "github.com/ledgerd/ledger/flatbuffers"
)

// keyPool is small, so that histories come back to the same keys; it has the empty key and keys of
// all the lower levels, many of them above 0.
var keyPool = func() []string {
	pool := []string{""}
	perLevel := map[int]int{}
	for i := 0; len(pool) < 300 && i < 1<<20; i++ {
		k := fmt.Sprintf("%x", i*7919)
		if l := btree.Level(testPage, []byte(k)); perLevel[l] < 100 {
			perLevel[l]++
			pool = append(pool, k)
		}
	}
	return pool
}()

func drawEntry(rt *rapid.T, key string) fb.Entry {
	switch rapid.IntRange(0, 9).Draw(rt, "kind") {
	case 0:
		return reference(key, "a", 1000, object.Lazy)
	case 1:
		return reference(key, "a", 1000, object.Eager)
	case 2:
		return reference(key, "b", 257, object.Eager)
	case 3:
		return inline(key, strings.Repeat("v", btree.InlineLimit))
	}
	return inline(key, fmt.Sprint(rapid.IntRange(0, 5).Draw(rt, "value")))
}

func drawEdit(rt *rapid.T, m model) edit {
	ed := edit{}
	if rapid.IntRange(0, 14).Draw(rt, "clear") == 0 {
		for k := range m {
			ed[k] = nil
		}
		return ed
	}
	deletes := rapid.IntRange(0, 10).Draw(rt, "deletes")
	for range rapid.OneOf(rapid.IntRange(0, 3), rapid.IntRange(0, 150)).Draw(rt, "size") {
		k := rapid.SampledFrom(keyPool).Draw(rt, "key")
		if rapid.IntRange(0, 9).Draw(rt, "op") < deletes {
			ed[k] = nil
			continue
		}
		e := drawEntry(rt, k)
		ed[k] = &e
	}
	return ed
}

func checks(t *testing.T, f func(*rapid.T)) {
	t.Helper()
	rapid.Check(t, f)
}

// I1, I2, I3.
func TestHistoriesAgree(t *testing.T) {
	checks(t, func(rt *rapid.T) {
		s, m, root := newStore(), model{}, btree.EmptyRoot
		for range rapid.IntRange(1, 12).Draw(rt, "edits") {
			ed := drawEdit(rt, m)
			m = m.apply(ed)
			root = apply(t, s, root, ed)
			checkTree(t, s, root, m)
			if want := build(t, s, m); root != want {
				rt.Fatalf("apply gives %s, build %s", root, want)
			}
		}
		all := edit{}
		for k := range m {
			all[k] = nil
		}
		if root = apply(t, s, root, all); root != btree.EmptyRoot {
			rt.Fatalf("root %s after all is deleted", root)
		}
	})
}

// Longer histories than rapid likes to draw, with larger trees.
func TestLongHistories(t *testing.T) {
	histories := 6
	if tier.Nightly() {
		histories = 200
	}
	for h := range histories {
		r := seeded(uint64(h))
		s, m, root := newStore(), model{}, btree.EmptyRoot
		for range 12 {
			ed, deletes := edit{}, r.IntN(11)
			for range 1 << r.IntN(9) {
				k := keyPool[r.IntN(len(keyPool))]
				if ed[k] = nil; r.IntN(10) >= deletes {
					e := inline(k, fmt.Sprint(r.IntN(3)))
					ed[k] = &e
				}
			}
			before, beforeRoot := m, root
			m = m.apply(ed)
			root = apply(t, s, root, ed)
			checkTree(t, s, root, m)
			if root != build(t, s, m) {
				t.Fatalf("history %d: apply and build differ", h)
			}
			for _, from := range [][]byte{nil, []byte(keyPool[r.IntN(len(keyPool))])} {
				s.reset()
				checkDiff(t, s, beforeRoot, root, before, m, from)
				checkDiff(t, s, root, beforeRoot, m, before, from)
				checkReads(t, s, from, beforeRoot, root)
			}
		}
	}
}

func TestGet(t *testing.T) {
	s := newStore()
	m := model{}
	for i := range uint64(5000) {
		m[key(2*i)] = inline(key(2*i), fmt.Sprint(i))
	}
	tree := s.tree(build(t, s, m))
	for i := range uint64(10001) {
		e, ok, err := tree.Get(t.Context(), []byte(key(i)))
		if err != nil {
			t.Fatal(err)
		}
		want, wantOK := m[key(i)]
		if ok != wantOK || ok && (string(e.Key) != key(i) || !btree.EqualValues(&e, &want)) {
			t.Fatalf("get %d: %v, %t", i, e, ok)
		}
	}
	if _, ok, err := s.tree(btree.EmptyRoot).Get(t.Context(), nil); ok || err != nil {
		t.Fatalf("get from the empty tree: %t, %v", ok, err)
	}
	k, ctx := []byte(key(4444)), t.Context()
	if n := testing.AllocsPerRun(100, func() { tree.Get(ctx, k) }); n > 0 {
		t.Errorf("get allocates %v times", n)
	}
}
