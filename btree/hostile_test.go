package btree_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"

	fb "github.com/ledgerd/ledger/flatbuffers"
)

// liar is a Source that returns other nodes than those asked for, and gives up after so many reads.
type liar struct {
	*store
	lies map[object.Digest]*fb.Node
	left int
}

var errEndless = errors.New("too many reads")

func (l *liar) Node(ctx context.Context, d object.Digest) (*fb.Node, error) {
	if l.left--; l.left < 0 {
		return nil, errEndless
	}
	if n, ok := l.lies[d]; ok {
		return n, nil
	}
	return l.store.Node(ctx, d)
}

// everything runs every operation on a tree, those on a key for every so many keys of the pool, and
// returns their errors.
func everything(ctx context.Context, stride int, t, other btree.Tree) map[string]error {
	errs := map[string]error{}
	drain := func(name string, move func(context.Context) (bool, error)) {
		ok, err := true, error(nil)
		for ok && err == nil {
			ok, err = move(ctx)
		}
		errs[name] = err
	}
	drain("next", t.Cursor().Next)
	drain("prev", t.Cursor().Prev)
	for i := 0; i < len(keyPool); i += stride {
		k := keyPool[i]
		if _, _, err := t.Get(ctx, []byte(k)); err != nil {
			errs["get"] = err
		}
		if _, err := t.Cursor().Seek(ctx, []byte(k)); err != nil {
			errs["seek"] = err
		}
		if _, err := t.Cursor().SeekBefore(ctx, []byte(k)); err != nil {
			errs["seek before"] = err
		}
		for _, del := range []bool{true, false} {
			e := inline(k, "hostile")
			ed := edit{k: &e}
			if del {
				ed[k] = nil
			}
			if _, err := t.Apply(ctx, quiet{newStore()}, ed.changes()); err != nil {
				errs["apply"] = err
			}
		}
	}
	for _, err := range btree.Diff(ctx, t, other, nil) {
		errs["diff"] = err
	}
	for _, err := range btree.Diff(ctx, other, t, []byte("5")) {
		errs["diff from"] = err
	}
	for _, err := range btree.Diff3(ctx, other, t, other, nil) {
		errs["diff3"] = err
	}
	errs["verify"] = btree.Verify(ctx, t, nil)
	return errs
}

// I5.
func TestHostileSource(t *testing.T) {
	checks(t, func(rt *rapid.T) {
		a, b := drawPair(rt)
		s := newStore()
		ra, rb := build(t, s, a), build(t, s, b)
		var all []object.Digest
		for _, root := range []object.Digest{ra, rb} {
			if root != btree.EmptyRoot {
				all = append(all, sortedDigests(s.reachable(t, root))...)
			}
		}
		if len(all) == 0 {
			return
		}
		l := &liar{store: s, lies: map[object.Digest]*fb.Node{}, left: 1 << 20}
		for range rapid.IntRange(1, 4).Draw(rt, "lies") {
			d := rapid.SampledFrom(all).Draw(rt, "asked")
			l.lies[d] = s.nodes[rapid.SampledFrom(all).Draw(rt, "returned")]
		}
		tree, other := s.tree(ra), s.tree(rb)
		tree.Source, other.Source = l, l
		for name, err := range everything(t.Context(), 9, tree, other) {
			if err != nil && !errors.Is(err, base.ErrCorrupt) {
				rt.Fatalf("%s: error %v", name, err)
			}
		}
	})
}

func sortedDigests[V any](m map[object.Digest]V) []object.Digest {
	byName := map[string]object.Digest{}
	for d := range m {
		byName[d.String()] = d
	}
	var out []object.Digest
	for _, k := range sortedKeys(byName) {
		out = append(out, byName[k])
	}
	return out
}

func TestBadNodes(t *testing.T) {
	s := newStore()
	m := model{}
	for _, k := range keyPool {
		m[k] = inline(k, "v")
	}
	root := build(t, s, m)
	top, child := innerChild(t, s, root)
	node := s.nodes[child.Digest]
	entries := func(n *fb.Node) (es []fb.Entry) {
		for i := range n.Len() {
			es = append(es, n.Entry(i))
		}
		return es
	}
	encode := func(level int, es []fb.Entry, cs ...fb.Child) *fb.Node {
		n, err := buildNode(level, es, cs)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	below, over := entries(node), entries(node)
	below[0].Key = top.Key(child.Gap - 1)
	over[len(over)-1].Key = top.Key(child.Gap)
	for name, lie := range map[string]*fb.Node{
		"level":   encode(node.Level()+1, entries(node)),
		"cycle":   top,
		"no keys": encode(0, nil),
		"below":   encode(node.Level(), below),
		"over":    encode(node.Level(), over),
	} {
		l := &liar{store: s, lies: map[object.Digest]*fb.Node{child.Digest: lie}, left: 1 << 20}
		tree := s.tree(root)
		tree.Source = l
		for op, err := range everything(t.Context(), 1, tree, s.tree(btree.EmptyRoot)) {
			var corrupt *base.CorruptError
			if !errors.As(err, &corrupt) || corrupt.Key != child.Digest.String() {
				t.Errorf("%s: %s: error %v", name, op, err)
			}
		}
	}
	delete(s.nodes, child.Digest)
	for op, err := range everything(t.Context(), 1, s.tree(root), s.tree(btree.EmptyRoot)) {
		if !errors.Is(err, base.ErrNotFound) {
			t.Errorf("missing: %s: error %v", op, err)
		}
	}
	high := encode(btree.MaxLevel+1, []fb.Entry{inline("a", "")})
	l := &liar{store: s, lies: map[object.Digest]*fb.Node{root: high}, left: 100000}
	tree := s.tree(root)
	tree.Source = l
	for op, err := range everything(t.Context(), 1, tree, s.tree(btree.EmptyRoot)) {
		if !errors.Is(err, base.ErrCorrupt) {
			t.Errorf("high root: %s: error %v", op, err)
		}
	}
}

// innerChild returns a node of a tree and a child of it that has an entry on either side.
func innerChild(t *testing.T, s *store, root object.Digest) (n *fb.Node, c fb.Child) {
	t.Helper()
	for _, d := range sortedDigests(s.reachable(t, root)) {
		n := s.nodes[d]
		for i := range n.NumChildren() {
			if c := n.Child(i); c.Gap > 0 && c.Gap < n.Len() {
				return n, c
			}
		}
	}
	t.Fatal("no such child")
	return nil, fb.Child{}
}

func TestVerifyNode(t *testing.T) {
	k := lowKeys(1, 12)[0]
	short := reference(k, "v", 1000, object.Eager)
	short.Size = btree.InlineLimit
	for name, c := range map[string]struct {
		level int
		e     fb.Entry
		ok    bool
	}{
		"right":        {0, inline(k, "v"), true},
		"level":        {1, inline(k, "v"), false},
		"long inline":  {0, inline(k, string(make([]byte, btree.InlineLimit+1))), false},
		"short object": {0, short, false},
	} {
		n, err := buildNode(c.level, []fb.Entry{c.e}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := btree.VerifyNode(testPage, n); (err == nil) != c.ok || err != nil && !errors.Is(err, base.ErrCorrupt) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestVerifyVisits(t *testing.T) {
	s := newStore()
	root := build(t, s, numbered(500))
	all := s.reachable(t, root)
	n := 0
	err := btree.Verify(t.Context(), s.tree(root), func(_ *fb.Node, d object.Digest, children func() error) error {
		if n++; d == root {
			return nil
		}
		return children()
	})
	if err != nil || n != 1 || len(all) < 10 {
		t.Errorf("%d nodes visited of %d, error %v", n, len(all), err)
	}
	own := fmt.Errorf("own")
	if err := btree.Verify(t.Context(), s.tree(root), func(*fb.Node, object.Digest, func() error) error { return own }); err != own {
		t.Errorf("error %v", err)
	}
	if err := btree.Verify(t.Context(), s.tree(btree.EmptyRoot), nil); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := btree.Verify(ctx, s.tree(root), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}
