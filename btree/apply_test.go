package btree_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/bits"
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/object"

	fb "github.com/ledgerd/ledger/flatbuffers"
)

func numbered(n uint64) model {
	m := model{}
	for i := range n {
		m[key(i)] = inline(key(i), fmt.Sprint("value ", i))
	}
	return m
}

// I1: one change at a time, in any order, in groups of any size.
func TestGroupingDoesNotMatter(t *testing.T) {
	m := numbered(600)
	s := newStore()
	want := build(t, s, m)
	for _, group := range []int{1, 2, 7, 100, 600} {
		r := seeded(uint64(group))
		keys := m.keys()
		r.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
		root := btree.EmptyRoot
		for part := range slices.Chunk(keys, group) {
			ed := edit{}
			for _, k := range part {
				e := m[k]
				ed[k] = &e
			}
			var err error
			if root, err = s.tree(root).Apply(t.Context(), quiet{s}, ed.changes()); err != nil {
				t.Fatal(err)
			}
		}
		if root != want {
			t.Errorf("groups of %d give another root", group)
		}
		for part := range slices.Chunk(keys, group) {
			ed := edit{}
			for _, k := range part {
				ed[k] = nil
			}
			var err error
			if root, err = s.tree(root).Apply(t.Context(), quiet{s}, ed.changes()); err != nil {
				t.Fatal(err)
			}
		}
		if root != btree.EmptyRoot {
			t.Errorf("groups of %d: a root is left when all is deleted", group)
		}
	}
}

// quiet is a sink that takes nodes that are there.
type quiet struct{ *store }

func (q quiet) PutNode(_ context.Context, n btree.NewNode) error {
	q.nodes[n.Digest] = keep(n)
	return nil
}

// keep returns a view of a copy of a new node.
func keep(n btree.NewNode) *fb.Node {
	kept := new(fb.Node)
	n.View.KeepIn(kept, bytes.Clone(n.Content), nil)
	return kept
}

func TestChangesWithoutEffect(t *testing.T) {
	s, m := newStore(), numbered(2000)
	root := build(t, s, m)
	ed := edit{"": nil, "absent": nil, "\xff\xff": nil}
	for _, k := range []string{key(0), key(77), key(1999)} {
		e := m[k]
		ed[k] = &e
	}
	if got := apply(t, s, root, ed); got != root || len(s.put) != 0 {
		t.Errorf("%d nodes put, root changed: %t", len(s.put), got != root)
	}
	if got := apply(t, s, root, edit{}); got != root {
		t.Error("no changes change the root")
	}
	if got := apply(t, s, btree.EmptyRoot, edit{"a": nil}); got != btree.EmptyRoot {
		t.Error("a deletion in the empty tree changes the root")
	}
}

// I6, and the cost of a few changes and of their differences in a large tree.
func TestReadsFollowChanges(t *testing.T) {
	s, m := newStore(), numbered(20000)
	root := build(t, s, m)
	depth := bits.Len(20000)/btree.FanoutBits + 2
	for _, n := range []int{1, 5, 40} {
		r := seeded(uint64(n))
		ed := edit{}
		for range n {
			k := key(uint64(r.IntN(20000)))
			if ed[k] = nil; r.IntN(2) == 0 {
				e := inline(k, "changed")
				ed[k] = &e
			}
			e := inline(k+"!", "new")
			ed[k+"!"] = &e
		}
		s.reset()
		next, err := s.tree(root).Apply(t.Context(), quiet{s}, ed.changes())
		if err != nil {
			t.Fatal(err)
		}
		if most := 4 * len(ed) * depth; s.reads > most {
			t.Errorf("%d changes read %d nodes, at most %d", len(ed), s.reads, most)
		}
		after := m.apply(ed)
		checkTree(t, s, next, after)
		s.reset()
		checkDiff(t, s, root, next, m, after, nil)
		if most := 8 * len(ed) * depth; s.reads > most {
			t.Errorf("differences of %d changes read %d nodes, at most %d", len(ed), s.reads, most)
		}
	}
}

// highKeys returns keys of at least a level.
func highKeys(n, level int) []string {
	var out []string
	for i := 0; len(out) < n; i++ {
		if k := fmt.Sprintf("k%d", i); btree.Level(testPage, []byte(k)) >= level {
			out = append(out, k)
		}
	}
	return out
}

func TestExtremeKeys(t *testing.T) {
	long := func(i int) string { return fmt.Sprintf("%06d", i) + strings.Repeat("k", limits.MaxKeyBytes-6) }
	sets := map[string][]string{
		"empty key": {""},
		"high":      highKeys(60, 2),
		"long":      {},
	}
	for i := range 120 {
		sets["long"] = append(sets["long"], long(i))
	}
	for name, keys := range sets {
		t.Run(name, func(t *testing.T) {
			s, m, root := newStore(), model{}, btree.EmptyRoot
			for _, k := range keys {
				e := inline(k, "v")
				m[k] = e
				root = apply(t, s, root, edit{k: &e})
			}
			if want := build(t, s, m); root != want {
				t.Error("apply and build differ")
			}
			checkTree(t, s, root, m)
			for _, k := range keys {
				root = apply(t, s, root, edit{k: nil})
			}
			if root != btree.EmptyRoot {
				t.Error("something is left")
			}
		})
	}
}

// lowKeys returns n keys of level 0 and of a length.
func lowKeys(n, length int) []string {
	var out []string
	for i := 0; len(out) < n; i++ {
		k := fmt.Sprintf("%08d", i) + strings.Repeat("x", length-8)
		if btree.Level(testPage, []byte(k)) == 0 {
			out = append(out, k)
		}
	}
	return out
}

// A node may be longer than a piece of a value.
func TestLargeNodes(t *testing.T) {
	s, m := newStore(), model{}
	for _, k := range lowKeys(100, limits.MaxKeyBytes) {
		m[k] = inline(k, "v")
	}
	root := build(t, s, m)
	if n := s.nodes[root]; n.Len() != 100 || len(n.Bytes()) < 100*limits.MaxKeyBytes {
		t.Errorf("a root of %d entries and %d bytes", n.Len(), len(n.Bytes()))
	}
	checkTree(t, s, root, m)
	k := m.keys()[50]
	s.put = nil
	root = apply(t, s, root, edit{k: nil})
	delete(m, k)
	if len(s.put) != 1 || s.put[0].Base.IsZero() {
		t.Errorf("put %d nodes", len(s.put))
	}
	if want := build(t, s, m); root != want {
		t.Error("apply and build differ")
	}
	keep := m.keys()[:3]
	ed := edit{}
	for _, k := range m.keys()[3:] {
		ed[k] = nil
	}
	checkTree(t, s, apply(t, s, root, ed), model{keep[0]: m[keep[0]], keep[1]: m[keep[1]], keep[2]: m[keep[2]]})
}

func TestTooLargeNode(t *testing.T) {
	n := limits.MaxNodeBytes/limits.MaxKeyBytes + 1
	keys := func(yield func(fb.Entry, error) bool) {
		k := bytes.Repeat([]byte{'x'}, limits.MaxKeyBytes)
		for i := 0; n > 0; i++ {
			copy(k, fmt.Sprintf("%08d", i))
			if btree.Level(testPage, k) != 0 {
				continue
			}
			if n--; !yield(fb.Entry{Key: k, Inline: true}, nil) {
				return
			}
		}
	}
	_, err := btree.Build(t.Context(), testPage, newStore(), keys)
	if !errors.Is(err, base.ErrTooLarge) {
		t.Errorf("error %v", err)
	}
}

func TestApplyRefuses(t *testing.T) {
	s := newStore()
	root := build(t, s, numbered(100))
	put := func(es ...fb.Entry) iter.Seq2[btree.Change, error] {
		return func(yield func(btree.Change, error) bool) {
			for _, e := range es {
				if !yield(btree.Change{Entry: e}, nil) {
					return
				}
			}
		}
	}
	own := errors.New("own")
	ref := reference("k", "v", 1000, object.Eager)
	node, small, priority, huge := ref, ref, ref, ref
	node.Digest[0] = byte(object.Node)
	small.Size = btree.InlineLimit
	priority.Priority = 2
	huge.Size = 1 << 63
	lazy := inline("k", "v")
	lazy.Priority = object.Lazy
	size := inline("k", "v")
	size.Size = 2
	for name, c := range map[string]struct {
		changes iter.Seq2[btree.Change, error]
		want    error
	}{
		"equal keys":    {put(inline("b", ""), inline("b", "")), base.ErrInvalid},
		"falling keys":  {put(inline("b", ""), inline("a", "")), base.ErrInvalid},
		"empty twice":   {put(inline("", ""), inline("", "")), base.ErrInvalid},
		"long key":      {put(inline(strings.Repeat("k", limits.MaxKeyBytes+1), "")), base.ErrTooLarge},
		"long inline":   {put(inline("k", strings.Repeat("v", btree.InlineLimit+1))), base.ErrInvalid},
		"short object":  {put(small), base.ErrInvalid},
		"node as value": {put(node), base.ErrInvalid},
		"priority":      {put(priority), base.ErrInvalid},
		"huge":          {put(huge), base.ErrInvalid},
		"lazy inline":   {put(lazy), base.ErrInvalid},
		"wrong size":    {put(size), base.ErrInvalid},
		"own error":     {func(yield func(btree.Change, error) bool) { yield(btree.Change{}, own) }, own},
	} {
		for _, r := range []object.Digest{root, btree.EmptyRoot} {
			if _, err := s.tree(r).Apply(t.Context(), quiet{s}, c.changes); !errors.Is(err, c.want) {
				t.Errorf("%s: error %v, want %v", name, err, c.want)
			}
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.tree(root).Apply(ctx, quiet{s}, put(inline("k", ""))); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v for a cancelled context", err)
	}
}

type brokenSink struct{ err error }

func (b brokenSink) PutNode(context.Context, btree.NewNode) error { return b.err }

func (b brokenSink) PutPiece(context.Context, object.Digest, []byte) error { return b.err }

func TestErrorsOfTheSink(t *testing.T) {
	s, own := newStore(), errors.New("own")
	m := numbered(100)
	large := model{}
	for _, k := range lowKeys(20, limits.MaxKeyBytes) {
		large[k] = inline(k, "")
	}
	for _, m := range []model{m, large} {
		if _, err := btree.Build(t.Context(), testPage, brokenSink{own}, m.entries()); !errors.Is(err, own) {
			t.Errorf("error %v", err)
		}
	}
	e := inline("k", "")
	if _, err := s.tree(build(t, s, m)).Apply(t.Context(), brokenSink{own}, edit{"k": &e}.changes()); !errors.Is(err, own) {
		t.Errorf("error %v", err)
	}
}

// Who knows a page id can choose keys that all lie at one level, or at ever higher ones. Then nodes
// are large or paths long, and commits slow; but a tree of n chosen keys never costs more than n
// entries and MaxLevel+1 nodes a change.
func TestChosenKeysAreBounded(t *testing.T) {
	for name, keys := range map[string][]string{"one node": lowKeys(2000, 12), "high": highKeys(200, 2)} {
		s, m := newStore(), model{}
		for _, k := range keys {
			m[k] = inline(k, "v")
		}
		root := build(t, s, m)
		size := 0
		for d := range s.reachable(t, root) {
			size += len(s.nodes[d].Bytes())
		}
		k := keys[len(keys)/2]
		e := inline(k, "w")
		apply(t, s, root, edit{k: &e})
		if s.bytes > size || len(s.put) > btree.MaxLevel+1 {
			t.Errorf("%s: one change writes %d nodes of %d bytes, the tree has %d", name, len(s.put), s.bytes, size)
		}
		after := maps.Clone(m)
		delete(after, k)
		s.reset()
		checkDiff(t, s, root, build(t, s, after), m, after, nil)
		if most := 4 * (btree.MaxLevel + 1); s.reads > most {
			t.Errorf("%s: the difference of one change reads %d nodes", name, s.reads)
		}
	}
}
