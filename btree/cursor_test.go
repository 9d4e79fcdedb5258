package btree_test

import (
	"sort"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/btree"
)

// A cursor moves as an index into the sorted keys does; -1 is before the first, len(keys) behind
// the last.
func TestCursor(t *testing.T) {
	checks(t, func(rt *rapid.T) {
		m := model{}.apply(drawEdit(rt, model{}))
		s := newStore()
		tree := s.tree(build(t, s, m))
		c := tree.Cursor()
		keys := m.keys()
		at, nowhere := 0, true
		for range rapid.IntRange(1, 60).Draw(rt, "moves") {
			var ok bool
			var err error
			k := rapid.SampledFrom(keyPool).Draw(rt, "key")
			switch rapid.IntRange(0, 9).Draw(rt, "move") {
			case 0:
				ok, err = c.First(t.Context())
				at = 0
			case 1:
				ok, err = c.Last(t.Context())
				at = len(keys) - 1
			case 2:
				ok, err = c.Seek(t.Context(), []byte(k))
				at = sort.SearchStrings(keys, k)
				if found, err := tree.Seek(t.Context(), []byte(k)); err != nil || string(found) != string(c.Key()) || (found == nil) == ok {
					rt.Fatalf("the tree seeks %q, %v, and the cursor %q", found, err, c.Key())
				}
			case 3:
				ok, err = c.SeekBefore(t.Context(), []byte(k))
				at = sort.SearchStrings(keys, k) - 1
			case 4, 5, 6:
				ok, err = c.Next(t.Context())
				if at = min(at+1, len(keys)); nowhere {
					at = 0
				}
			default:
				ok, err = c.Prev(t.Context())
				if at = max(at-1, -1); nowhere {
					at = len(keys) - 1
				}
			}
			nowhere = false
			if err != nil {
				rt.Fatal(err)
			}
			if want := at >= 0 && at < len(keys); ok != want || c.Valid() != want {
				rt.Fatalf("ok %t, valid %t at %d of %d", ok, c.Valid(), at, len(keys))
			}
			if !ok {
				if c.Key() != nil || c.Entry().Key != nil {
					rt.Fatal("an entry where there is none")
				}
				continue
			}
			want, got := m[keys[at]], c.Entry()
			if string(got.Key) != keys[at] || string(c.Key()) != keys[at] || !btree.EqualValues(&got, &want) {
				rt.Fatalf("entry %v at %d, want %v", got, at, want)
			}
			if v, inline := c.Value(); inline != want.Inline || inline && string(v) != string(want.Value) {
				rt.Fatalf("value %q, inline %t, want %v", v, inline, want)
			}
		}
	})
}

func TestCursorDoesNotAllocate(t *testing.T) {
	s, m := newStore(), model{}
	for i := range uint64(3000) {
		m[key(i)] = inline(key(i), "v")
	}
	c := s.tree(build(t, s, m)).Cursor()
	ctx := t.Context()
	n := testing.AllocsPerRun(2, func() {
		for ok, err := c.First(ctx); ok; ok, err = c.Next(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			_ = c.Entry()
		}
		for ok, err := c.Last(ctx); ok; ok, err = c.Prev(ctx) {
			if err != nil {
				t.Fatal(err)
			}
		}
	})
	// The source of the test counts reads in a map, which may grow.
	if n > 100 {
		t.Errorf("%v allocations for 6000 moves", n)
	}
}
