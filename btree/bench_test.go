package btree_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"iter"
	"slices"
	"sync"
	"testing"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/object"

	fb "github.com/ledgerd/ledger/flatbuffers"
)

// Run with: go test ./btree -run '^$' -bench . -cpu 1

const benchKeys = 1_000_000

// mapStore is a Source and a Sink without verification, like a warm cache.
type mapStore struct {
	nodes        map[object.Digest]*fb.Node
	count, bytes int
	delta        int // bytes of the deltas of the nodes that have a base, and of those that have none
	keep         bool
	measure      bool
}

func (s *mapStore) Node(_ context.Context, d object.Digest) (*fb.Node, error) { return s.nodes[d], nil }

func (s *mapStore) PutPiece(context.Context, object.Digest, []byte) error { return nil }

func (s *mapStore) PutNode(_ context.Context, n btree.NewNode) error {
	s.count++
	s.bytes += len(n.Content)
	if s.keep {
		s.nodes[n.Digest] = keep(n)
	}
	if s.measure {
		if n.Base.IsZero() {
			s.delta += len(n.Content)
		} else {
			s.delta += len(btree.AppendDelta(nil, s.nodes[n.Base], n.View))
		}
	}
	return nil
}

// fixture is a tree of a million keys of 16 bytes with values of 100 bytes.
type fixture struct {
	store *mapStore
	tree  btree.Tree
	keys  [][]byte
}

var million = sync.OnceValue(func() *fixture {
	r := seeded(7)
	flat := make([]byte, 16*benchKeys)
	f := &fixture{store: &mapStore{nodes: map[object.Digest]*fb.Node{}, keep: true}}
	for i := range benchKeys {
		k := flat[16*i : 16*i+16 : 16*i+16]
		binary.BigEndian.PutUint64(k, r.Uint64())
		binary.BigEndian.PutUint64(k[8:], r.Uint64())
		f.keys = append(f.keys, k)
	}
	slices.SortFunc(f.keys, bytes.Compare)
	sorted := make([]byte, 0, len(flat)) // so that a build reads them one behind the other
	for i, k := range f.keys {
		sorted = append(sorted, k...)
		f.keys[i] = sorted[16*i : 16*i+16 : 16*i+16]
	}
	root, err := btree.Build(context.Background(), testPage, f.store, f.entries())
	if err != nil {
		panic(err)
	}
	f.store.keep = false
	f.tree = btree.Tree{Page: testPage, Source: f.store, Root: root}
	return f
})

func (f *fixture) entries() iter.Seq2[fb.Entry, error] {
	return func(yield func(fb.Entry, error) bool) {
		var value [100]byte
		for _, k := range f.keys {
			copy(value[:], k)
			if !yield(fb.Entry{Key: k, Value: value[:], Inline: true, Size: uint64(len(value))}, nil) {
				return
			}
		}
	}
}

// edits returns n changes of random keys, sorted.
func (f *fixture) edits(n int, seed uint64) []btree.Change {
	r := seeded(seed)
	var out []btree.Change
	for range n {
		v := make([]byte, 100)
		binary.BigEndian.PutUint64(v, r.Uint64())
		out = append(out, btree.Change{Entry: fb.Entry{Key: f.keys[r.IntN(len(f.keys))], Value: v, Inline: true, Size: 100}})
	}
	slices.SortFunc(out, func(a, b btree.Change) int { return bytes.Compare(a.Entry.Key, b.Entry.Key) })
	return slices.CompactFunc(out, func(a, b btree.Change) bool { return bytes.Equal(a.Entry.Key, b.Entry.Key) })
}

func yieldChanges(cs []btree.Change) iter.Seq2[btree.Change, error] {
	return func(yield func(btree.Change, error) bool) {
		for _, c := range cs {
			if !yield(c, nil) {
				return
			}
		}
	}
}

func BenchmarkGet(b *testing.B) {
	f, ctx, r := million(), b.Context(), seeded(3)
	b.ReportAllocs()
	for b.Loop() {
		if _, ok, err := f.tree.Get(ctx, f.keys[r.IntN(len(f.keys))]); !ok || err != nil {
			b.Fatal(ok, err)
		}
	}
}

// BenchmarkScan copies each entry, BenchmarkScanKeyValue borrows keys and values only.
func BenchmarkScan(b *testing.B) {
	benchmarkScan(b, func(c *btree.Cursor) int {
		e := c.Entry()
		return len(e.Key) + len(e.Value)
	})
}

func BenchmarkScanKeyValue(b *testing.B) {
	benchmarkScan(b, func(c *btree.Cursor) int {
		v, _ := c.Value()
		return len(c.Key()) + len(v)
	})
}

func benchmarkScan(b *testing.B, size func(*btree.Cursor) int) {
	f, ctx := million(), b.Context()
	b.ReportAllocs()
	total := 0
	for b.Loop() {
		c, n := f.tree.Cursor(), 0
		for {
			ok, err := c.Next(ctx)
			if err != nil {
				b.Fatal(err)
			}
			if !ok {
				break
			}
			n += size(c)
			total++
		}
		if n != benchKeys*116 {
			b.Fatal(n)
		}
	}
	b.ReportMetric(float64(total)/b.Elapsed().Seconds()/1e6, "Mentries/s")
}

func benchmarkApply(b *testing.B, n int) {
	f, ctx := million(), b.Context()
	sets := make([][]btree.Change, 16)
	for i := range sets {
		sets[i] = f.edits(n, uint64(i))
	}
	f.store.count, f.store.bytes, f.store.delta, f.store.measure = 0, 0, 0, false
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if _, err := f.tree.Apply(ctx, f.store, yieldChanges(sets[i%len(sets)])); err != nil {
			b.Fatal(err)
		}
		i++
	}
	b.ReportMetric(float64(f.store.count)/float64(i), "nodes/op")
	b.ReportMetric(float64(f.store.bytes)/float64(i), "node-B/op")
}

func BenchmarkApply1(b *testing.B)     { benchmarkApply(b, 1) }
func BenchmarkApply100(b *testing.B)   { benchmarkApply(b, 100) }
func BenchmarkApply10000(b *testing.B) { benchmarkApply(b, 10000) }

// BenchmarkEditBytes measures what one-key edits write: whole nodes, and deltas.
func BenchmarkEditBytes(b *testing.B) {
	f, ctx, seed := million(), b.Context(), uint64(0)
	f.store.count, f.store.bytes, f.store.delta, f.store.measure = 0, 0, 0, true
	defer func() { f.store.measure = false }()
	for b.Loop() {
		seed++
		if _, err := f.tree.Apply(ctx, f.store, yieldChanges(f.edits(1, seed))); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(f.store.count)/float64(seed), "nodes/op")
	b.ReportMetric(float64(f.store.bytes)/float64(seed), "node-B/op")
	b.ReportMetric(float64(f.store.delta)/float64(seed), "delta-B/op")
}

func BenchmarkBuild(b *testing.B) {
	f, ctx := million(), b.Context()
	b.ReportAllocs()
	s := &mapStore{}
	for b.Loop() {
		*s = mapStore{}
		if _, err := btree.Build(ctx, testPage, s, f.entries()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(s.count), "nodes")
	b.ReportMetric(float64(s.bytes)/1e6, "MB")
}

func BenchmarkDiff1000(b *testing.B) {
	f, ctx := million(), b.Context()
	s := &mapStore{nodes: map[object.Digest]*fb.Node{}, keep: true}
	root, err := f.tree.Apply(ctx, both{f.store, s}, yieldChanges(f.edits(1000, 99)))
	if err != nil {
		b.Fatal(err)
	}
	other := btree.Tree{Page: testPage, Source: both{s, f.store}, Root: root}
	b.ReportAllocs()
	for b.Loop() {
		n := 0
		for _, err := range btree.Diff(ctx, f.tree, other, nil) {
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
		if n < 990 {
			b.Fatal(n)
		}
	}
}

// both reads from the first store that has a node, and writes to the second.
type both struct{ a, b *mapStore }

func (s both) Node(_ context.Context, d object.Digest) (*fb.Node, error) {
	if n := s.a.nodes[d]; n != nil {
		return n, nil
	}
	return s.b.nodes[d], nil
}

func (s both) PutPiece(context.Context, object.Digest, []byte) error { return nil }

func (s both) PutNode(ctx context.Context, n btree.NewNode) error { return s.b.PutNode(ctx, n) }
