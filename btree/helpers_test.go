package btree_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"

	fb "github.com/ledgerd/ledger/flatbuffers"
)

var testPage = [16]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}

// store is a Source and a Sink in memory. It verifies what it gets, and counts.
type store struct {
	page   [16]byte
	nodes  map[object.Digest]*fb.Node
	pieces map[object.Digest][]byte
	read   map[object.Digest]int // how often a node was asked for
	reads  int
	put    []btree.NewNode // since the last reset
	bytes  int
}

func newStore() *store {
	return &store{
		page:   testPage,
		nodes:  map[object.Digest]*fb.Node{},
		pieces: map[object.Digest][]byte{},
		read:   map[object.Digest]int{},
	}
}

func (s *store) reset() { s.put, s.bytes, s.reads, s.read = nil, 0, 0, map[object.Digest]int{} }

func (s *store) Node(_ context.Context, d object.Digest) (*fb.Node, error) {
	s.reads++
	s.read[d]++
	n, ok := s.nodes[d]
	if !ok {
		return nil, fmt.Errorf("no such node: %w", base.ErrNotFound)
	}
	return n, nil
}

func (s *store) Piece(_ context.Context, d object.Digest) ([]byte, error) {
	p, ok := s.pieces[d]
	if !ok {
		return nil, base.ErrNotFound
	}
	return p, nil
}

func (s *store) PutPiece(_ context.Context, d object.Digest, content []byte) error {
	if err := d.Verify(content); err != nil {
		return err
	}
	s.pieces[d] = bytes.Clone(content)
	return nil
}

func (s *store) PutNode(_ context.Context, n btree.NewNode) error {
	view, err := fb.ParseNode(bytes.Clone(n.Content))
	if err != nil {
		return err
	}
	if err := btree.VerifyNode(s.page, view); err != nil {
		return err
	}
	switch {
	case view.Len() == 0:
		return errors.New("a node without entries")
	case s.nodes[n.Digest] != nil:
		return fmt.Errorf("node %s is there", n.Digest)
	case !bytes.Equal(n.View.Bytes(), n.Content):
		return errors.New("view and content differ")
	case !n.Base.IsZero() && s.nodes[n.Base].Level() != view.Level():
		return errors.New("base of another level")
	}
	for i := range view.NumChildren() {
		if s.nodes[view.Child(i).Digest] == nil {
			return errors.New("parent before child")
		}
	}
	if err := n.Digest.Verify(n.Content); err != nil {
		return err
	}
	s.nodes[n.Digest] = view
	// The builder uses the buffers of a node again when the call is over. Without AVX-512 the next
	// node of the same Apply does so.
	n.View, n.Content = view, view.Bytes()
	s.put = append(s.put, n)
	s.bytes += len(n.Content)
	return nil
}

func (s *store) tree(root object.Digest) btree.Tree {
	return btree.Tree{Page: s.page, Source: s, Root: root}
}

// reachable returns the nodes of a tree.
func (s *store) reachable(t testing.TB, root object.Digest) map[object.Digest]bool {
	t.Helper()
	set := map[object.Digest]bool{}
	err := btree.Verify(t.Context(), s.tree(root), func(_ *fb.Node, d object.Digest, children func() error) error {
		if set[d] {
			t.Fatalf("node %s twice in a tree", d)
		}
		set[d] = true
		return children()
	})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// model is a map from key to entry.
type model map[string]fb.Entry

func (m model) keys() []string { return slices.Sorted(maps.Keys(m)) }

func (m model) entries() iter.Seq2[fb.Entry, error] {
	return func(yield func(fb.Entry, error) bool) {
		// One buffer for all, as entries need be valid only until the next.
		var buf []byte
		for _, k := range m.keys() {
			e := m[k]
			buf = append(append(buf[:0], e.Key...), e.Value...)
			e.Key = buf[:len(e.Key):len(e.Key)]
			if e.Inline {
				e.Value = buf[len(e.Key):]
			}
			if !yield(e, nil) {
				return
			}
			for i := range buf {
				buf[i] = 0xee
			}
		}
	}
}

// edit is a set of changes; nil deletes.
type edit map[string]*fb.Entry

func (ed edit) changes() iter.Seq2[btree.Change, error] {
	return func(yield func(btree.Change, error) bool) {
		for _, k := range slices.Sorted(maps.Keys(ed)) {
			c := btree.Change{Delete: true, Entry: fb.Entry{Key: []byte(k)}}
			if e := ed[k]; e != nil {
				c = btree.Change{Entry: *e}
			}
			if !yield(c, nil) {
				return
			}
		}
	}
}

func (m model) apply(ed edit) model {
	r := maps.Clone(m)
	for k, e := range ed {
		if e == nil {
			delete(r, k)
		} else {
			r[k] = *e
		}
	}
	return r
}

func inline(key, value string) fb.Entry {
	return fb.Entry{Key: []byte(key), Value: []byte(value), Inline: true, Size: uint64(len(value))}
}

func reference(key string, content string, size uint64, p object.Priority) fb.Entry {
	return fb.Entry{Key: []byte(key), Digest: object.Sum(object.Chunk, []byte(content)), Size: size, Priority: p}
}

func build(t testing.TB, s *store, m model) object.Digest {
	t.Helper()
	// The nodes of one build may be there from another.
	other := newStore()
	other.page = s.page
	root, err := btree.Build(t.Context(), s.page, other, m.entries())
	if err != nil {
		t.Fatal(err)
	}
	maps.Copy(s.nodes, other.nodes)
	maps.Copy(s.pieces, other.pieces)
	return root
}

// apply applies an edit and verifies I3.
func apply(t testing.TB, s *store, root object.Digest, ed edit) object.Digest {
	t.Helper()
	old := s.reachable(t, root)
	fresh := newStore()
	fresh.page = s.page
	for d := range old {
		fresh.nodes[d] = s.nodes[d]
	}
	next, err := fresh.tree(root).Apply(t.Context(), fresh, ed.changes())
	if err != nil {
		t.Fatal(err)
	}
	reach := fresh.reachable(t, next)
	for _, n := range fresh.put {
		if !reach[n.Digest] {
			t.Fatalf("node %s was put and is not in the tree", n.Digest)
		}
		if !n.Base.IsZero() && !old[n.Base] {
			t.Fatalf("base %s is not of the old tree", n.Base)
		}
		checkDelta(t, fresh, n)
	}
	maps.Copy(s.nodes, fresh.nodes)
	maps.Copy(s.pieces, fresh.pieces)
	s.put, s.bytes, s.reads, s.read = fresh.put, fresh.bytes, fresh.reads, fresh.read
	return next
}

func checkDelta(t testing.TB, s *store, n btree.NewNode) {
	t.Helper()
	if n.Base.IsZero() {
		return
	}
	delta := btree.AppendDelta(nil, s.nodes[n.Base], n.View)
	got, err := btree.ApplyDelta(s.nodes[n.Base], delta)
	if err != nil || !bytes.Equal(got, n.Content) {
		t.Fatalf("delta gives other bytes, error %v", err)
	}
}

// checkTree verifies that a tree holds exactly what a model does.
func checkTree(t testing.TB, s *store, root object.Digest, m model) {
	t.Helper()
	c := s.tree(root).Cursor()
	for _, k := range m.keys() {
		ok, err := c.Next(t.Context())
		if err != nil || !ok {
			t.Fatalf("next before %q: %t, %v", k, ok, err)
		}
		if e, want := c.Entry(), m[k]; string(e.Key) != k || !btree.EqualValues(&e, &want) {
			t.Fatalf("entry %+v, want %+v", e, want)
		}
	}
	if ok, err := c.Next(t.Context()); ok || err != nil {
		t.Fatalf("next behind the last: %t, %v", ok, err)
	}
}

// key returns a deterministic key whose order is that of n.
func key(n uint64) string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:], n)
	binary.LittleEndian.PutUint64(b[8:], n*0x9e3779b97f4a7c15)
	return string(b[:])
}

func seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 42)) }

func sortedKeys[V any](m map[string]V) []string { return slices.SortedFunc(maps.Keys(m), cmp.Compare) }

// buildNode returns a new node.
func buildNode(level int, entries []fb.Entry, children []fb.Child) (*fb.Node, error) {
	n := new(fb.Node)
	if err := n.Rebuild(level, entries, children); err != nil {
		return nil, err
	}
	return n, nil
}
