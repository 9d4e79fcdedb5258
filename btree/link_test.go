package btree_test

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"

	fb "github.com/ledgerd/ledger/flatbuffers"
)

// keeper is a Source that keeps nodes, so that they are linked, and gives some of them up.
type keeper struct {
	btree.Source
	mu   sync.Mutex
	kept map[object.Digest]*fb.Node
}

func (k *keeper) Node(ctx context.Context, d object.Digest) (*fb.Node, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if n := k.kept[d]; n != nil {
		return n, nil
	}
	n, err := k.Source.Node(ctx, d)
	if err != nil {
		return nil, err
	}
	kept := &fb.Node{}
	n.KeepIn(kept, n.Bytes(), make([]uint64, 0, n.Len()))
	k.kept[d] = kept
	return kept, nil
}

// release gives up each node with probability p.
func (k *keeper) release(rng *rand.Rand, p float64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, d := range sortedDigests(k.kept) {
		if rng.Float64() < p {
			k.kept[d].Release()
			delete(k.kept, d)
		}
	}
}

// A look-up over links gives what one without gives, whatever the Source returns, while nodes come
// and go.
func TestGetOverLinks(t *testing.T) {
	checks(t, func(rt *rapid.T) {
		a, b := drawPair(rt)
		s := newStore()
		roots := []object.Digest{build(t, s, a), build(t, s, b)}
		l := &liar{store: s, lies: map[object.Digest]*fb.Node{}, left: 1 << 20}
		var all []object.Digest
		for _, root := range roots {
			if root != btree.EmptyRoot {
				all = append(all, sortedDigests(s.reachable(t, root))...)
			}
		}
		if len(all) > 0 {
			for range rapid.IntRange(0, 2).Draw(rt, "lies") {
				d := rapid.SampledFrom(all).Draw(rt, "asked")
				l.lies[d] = s.nodes[rapid.SampledFrom(all).Draw(rt, "returned")]
			}
		}
		k := &keeper{Source: l, kept: map[object.Digest]*fb.Node{}}
		rng := seeded(rapid.Uint64().Draw(rt, "seed"))
		for range 3 {
			for _, root := range roots {
				plain, linked := s.tree(root), s.tree(root)
				plain.Source, linked.Source = l, k
				for i := rng.IntN(5); i < len(keyPool); i += 5 {
					key := []byte(keyPool[i])
					want, has, wantErr := plain.Get(t.Context(), key)
					got, ok, err := linked.Get(t.Context(), key)
					if ok != has || (err == nil) != (wantErr == nil) || !bytes.Equal(got.Key, want.Key) || !bytes.Equal(got.Value, want.Value) || got.Digest != want.Digest {
						rt.Fatalf("key %q: %v, %v, %v, want %v, %v, %v", key, got, ok, err, want, has, wantErr)
					}
				}
			}
			k.release(rng, 0.3)
		}
	})
}

// Links are made, moved and taken back by many at once.
func TestConcurrentLinks(t *testing.T) {
	s, m := newStore(), model{}
	for i := range uint64(3000) {
		m[key(i)] = inline(key(i), "v")
	}
	root := build(t, s, m)
	k := &keeper{Source: s, kept: map[object.Digest]*fb.Node{}}
	tree := s.tree(root)
	tree.Source = k
	var readers sync.WaitGroup
	done := make(chan struct{})
	for r := range uint64(3) {
		readers.Go(func() {
			rng := seeded(r)
			for range 4000 {
				want := key(rng.Uint64N(3000))
				if e, ok, err := tree.Get(t.Context(), []byte(want)); err != nil || !ok || string(e.Key) != want {
					t.Errorf("get %q: %v, %v", want, ok, err)
				}
			}
		})
	}
	var releaser sync.WaitGroup
	releaser.Go(func() {
		for rng := seeded(9); ; {
			select {
			case <-done:
				return
			default:
				k.release(rng, 0.2)
			}
		}
	})
	readers.Wait()
	close(done)
	releaser.Wait()

	// What was given up is reached by no link.
	for _, d := range sortedDigests(k.kept) {
		n := k.kept[d]
		for i := range n.NumChildren() {
			c := n.Child(i)
			if linked := n.Linked(c.Gap); linked != nil && linked != k.kept[c.Digest] {
				t.Fatalf("node %s links to a child that was given up", d)
			}
		}
	}
}

// A node whose parent was linked at one place is verified again at another: the bounds of an outer
// gap come from further up.
func TestOuterGapElsewhere(t *testing.T) {
	s, m := newStore(), model{}
	for i := range uint64(3000) {
		m[key(i)] = inline(key(i), "v")
	}
	root := build(t, s, m)
	k := &keeper{Source: s, kept: map[object.Digest]*fb.Node{}}
	top := s.nodes[root]
	for i := range top.NumChildren() {
		c := top.Child(i)
		child := s.nodes[c.Digest]
		outer, ok := child.ChildAt(0)
		if !ok || c.Gap == top.Len() || s.nodes[outer.Digest].Len() < 2 {
			continue
		}
		grandchild := s.nodes[outer.Digest]
		first, second := grandchild.Key(0), grandchild.Key(1)
		tree := s.tree(root)
		tree.Source = k
		for range 2 {
			if _, ok, err := tree.Get(t.Context(), second); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}
		// Another root, with an entry above the first key of the grandchild.
		lie, err := buildNode(top.Level(), []fb.Entry{inline(string(first)+"\x00", "v")}, []fb.Child{{Gap: 1, Level: c.Level, Digest: c.Digest}})
		if err != nil {
			t.Fatal(err)
		}
		tree.Root = object.Sum(object.Node, lie.Bytes())
		s.nodes[tree.Root] = lie
		if e, ok, err := tree.Get(t.Context(), second); !errors.Is(err, base.ErrCorrupt) {
			t.Fatalf("key %q below the gap's bounds: %v, %v, %v", second, e, ok, err)
		}
		return
	}
	t.Fatal("no node with a child in its first gap")
}
