package btree_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/object"

	fb "github.com/ledgerd/ledger/flatbuffers"
)

// drawPair draws two models that share a part.
func drawPair(rt *rapid.T) (a, b model) {
	a = model{}.apply(drawEdit(rt, model{}))
	for range rapid.IntRange(0, 2).Draw(rt, "base edits") {
		a = a.apply(drawEdit(rt, a))
	}
	return a, a.apply(drawEdit(rt, a))
}

func sameAt(a, b model, k string) bool {
	x, okX := a[k]
	y, okY := b[k]
	return okX == okY && (!okX || btree.EqualValues(&x, &y))
}

// differing returns the keys not below from at which the models differ from the first one.
func differing(from []byte, first model, others ...model) []string {
	all := map[string]bool{}
	for _, o := range others {
		for k := range o {
			all[k] = !sameAt(first, o, k) || all[k]
		}
		for k := range first {
			all[k] = !sameAt(first, o, k) || all[k]
		}
	}
	maps.DeleteFunc(all, func(k string, differs bool) bool { return !differs || k < string(from) })
	return sortedKeys(all)
}

func checkSide(t testing.TB, m model, k string, e fb.Entry, has bool) {
	t.Helper()
	want, ok := m[k]
	if ok != has || ok && (string(e.Key) != k || !btree.EqualValues(&e, &want)) {
		t.Fatalf("key %q: entry %v, %t; want %v, %t", k, e, has, want, ok)
	}
}

func checkDiff(t testing.TB, s *store, ra, rb object.Digest, a, b model, from []byte) {
	t.Helper()
	var got []string
	for e, err := range btree.Diff(t.Context(), s.tree(ra), s.tree(rb), from) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(e.Key))
		checkSide(t, a, string(e.Key), e.Left, e.HasLeft)
		checkSide(t, b, string(e.Key), e.Right, e.HasRight)
	}
	if want := differing(from, a, b); !slices.Equal(got, want) {
		t.Fatalf("diff from %q has keys %q, want %q", from, got, want)
	}
}

// I4: nodes of both trees are not read. The exceptions are a root, whose level is known only from
// itself, and with a start key one path.
func checkReads(t testing.TB, s *store, from []byte, roots ...object.Digest) {
	t.Helper()
	read := s.read
	s.reset()
	shared := s.reachable(t, roots[0])
	for _, r := range roots[1:] {
		other := s.reachable(t, r)
		maps.DeleteFunc(shared, func(d object.Digest, _ bool) bool { return !other[d] })
	}
	bad := 0
	for d := range read {
		if shared[d] && !slices.Contains(roots, d) {
			bad++
		}
	}
	if bad > 0 && (from == nil || bad > len(roots)*(btree.MaxLevel+1)) {
		t.Fatalf("%d shared nodes were read", bad)
	}
}

func TestDiff(t *testing.T) {
	checks(t, func(rt *rapid.T) {
		a, b := drawPair(rt)
		s := newStore()
		ra, rb := build(t, s, a), build(t, s, b)
		froms := [][]byte{nil}
		for _, k := range rapid.SliceOfN(rapid.SampledFrom(keyPool), 0, 20).Draw(rt, "from") {
			froms = append(froms, []byte(k), []byte(k+"\x00"))
		}
		for _, from := range froms {
			for _, side := range []struct {
				ra, rb object.Digest
				a, b   model
			}{{ra, rb, a, b}, {rb, ra, b, a}} {
				s.reset()
				checkDiff(t, s, side.ra, side.rb, side.a, side.b, from)
				checkReads(t, s, from, side.ra, side.rb)
			}
		}
	})
}

// Every start key of a smaller pair.
func TestDiffFromEveryKey(t *testing.T) {
	r := seeded(1)
	for range 3 {
		a, b := model{}, model{}
		for _, k := range keyPool {
			v := fmt.Sprint(r.IntN(2))
			switch r.IntN(6) {
			case 0:
				a[k] = inline(k, v)
			case 1:
				b[k] = inline(k, v)
			case 2:
			default:
				a[k], b[k] = inline(k, "same"), inline(k, "same")
			}
		}
		s := newStore()
		ra, rb := build(t, s, a), build(t, s, b)
		all := differing(nil, a, b)
		for _, k := range keyPool {
			i, _ := slices.BinarySearch(all, k)
			for _, pair := range [...][2]object.Digest{{ra, rb}, {rb, ra}} {
				var got []string
				for e, err := range btree.Diff(t.Context(), s.tree(pair[0]), s.tree(pair[1]), []byte(k)) {
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, string(e.Key))
				}
				if !slices.Equal(got, all[i:]) {
					t.Fatalf("from %q: %d keys, want %d", k, len(got), len(all)-i)
				}
			}
		}
	}
}

func checkDiff3(t testing.TB, s *store, base, left, right model, from []byte) {
	t.Helper()
	rb, rl, rr := build(t, s, base), build(t, s, left), build(t, s, right)
	s.reset()
	var got []string
	for e, err := range btree.Diff3(t.Context(), s.tree(rb), s.tree(rl), s.tree(rr), from) {
		if err != nil {
			t.Fatal(err)
		}
		k := string(e.Key)
		got = append(got, k)
		checkSide(t, base, k, e.Base, e.HasBase)
		checkSide(t, left, k, e.Left, e.HasLeft)
		checkSide(t, right, k, e.Right, e.HasRight)
	}
	if want := differing(from, base, left, right); !slices.Equal(got, want) {
		t.Fatalf("keys %q, want %q", got, want)
	}
	checkReads(t, s, from, rb, rl, rr)
}

func TestDiff3(t *testing.T) {
	checks(t, func(rt *rapid.T) {
		base, left := drawPair(rt)
		right := base.apply(drawEdit(rt, base))
		s := newStore()
		checkDiff3(t, s, base, left, right, nil)
		checkDiff3(t, s, base, left, right, []byte(rapid.SampledFrom(keyPool).Draw(rt, "from")))
	})
}

// A deletion that is the last, first or only difference of a side must not be lost.
func TestDiff3Deletions(t *testing.T) {
	base := model{}
	for _, k := range keyPool {
		base[k] = inline(k, "x")
	}
	keys := base.keys()
	for _, i := range []int{0, 1, len(keys) / 2, len(keys) - 2, len(keys) - 1} {
		for _, j := range []int{0, len(keys) / 3, len(keys) - 1} {
			left, right := maps.Clone(base), maps.Clone(base)
			delete(left, keys[i])
			right[keys[j]] = inline(keys[j], "y")
			s := newStore()
			checkDiff3(t, s, base, left, right, nil)
			checkDiff3(t, s, base, right, left, nil)
			checkDiff3(t, s, base, left, model{}, nil)
			checkDiff3(t, s, base, left, base, nil)
		}
	}
}
