package flatbuffers_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/object"
)

// benchEntries returns n entries of keys of 16 bytes and inline values of 100, either random or
// with a common prefix of 8.
func benchEntries(n int, prefixed bool) []fb.Entry {
	rng := rand.New(rand.NewPCG(1, 2))
	entries := make([]fb.Entry, n)
	for i := range entries {
		k := make([]byte, 16)
		binary.BigEndian.PutUint64(k, rng.Uint64())
		binary.BigEndian.PutUint64(k[8:], rng.Uint64())
		if prefixed {
			copy(k, "users/00")
		}
		v := make([]byte, 100)
		for j := range v {
			v[j] = byte(rng.Uint32())
		}
		entries[i] = fb.Entry{Key: k, Value: v, Inline: true, Size: 100}
	}
	slices.SortFunc(entries, func(a, b fb.Entry) int { return bytes.Compare(a.Key, b.Key) })
	return entries
}

func benchChildren(n int) []fb.Child {
	children := make([]fb.Child, 0, n+1)
	for i := range n + 1 {
		if i%16 != 7 {
			children = append(children, fb.Child{Gap: i, Digest: object.Sum(object.Node, []byte{byte(i)})})
		}
	}
	return children
}

// go test -run xxx -bench Node -benchmem ./flatbuffers
func BenchmarkEncodeNode(b *testing.B) {
	entries, children := benchEntries(16, false), benchChildren(16)
	b.Run("leaf", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = fb.EncodeNode(0, entries, nil)
		}
	})
	b.Run("inner", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = fb.EncodeNode(1, entries, children)
		}
	})
	b.Run("rebuild", func(b *testing.B) {
		b.ReportAllocs()
		var n fb.Node
		for b.Loop() {
			_ = n.Rebuild(1, entries, children)
		}
	})
}

func BenchmarkParseNode(b *testing.B) {
	buf, err := fb.EncodeNode(1, benchEntries(16, false), benchChildren(16))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.SetBytes(int64(len(buf)))
	for b.Loop() {
		if _, err := fb.ParseNode(buf); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSearchNode(b *testing.B) {
	for _, prefixed := range []bool{false, true} {
		for _, n := range []int{16, 32, 256} {
			entries := benchEntries(n, prefixed)
			node, err := buildNode(0, entries, nil)
			if err != nil {
				b.Fatal(err)
			}
			rng := rand.New(rand.NewPCG(3, 4))
			probes := make([][]byte, 1024)
			for i := range probes {
				probes[i] = slices.Clone(entries[rng.IntN(n)].Key)
				if i%2 == 0 {
					probes[i][8] ^= 0x55
				}
			}
			b.Run(fmt.Sprintf("%d entries/prefix %v", n, prefixed), func(b *testing.B) {
				b.ReportAllocs()
				i, sum := 0, 0
				for b.Loop() {
					at, _ := node.Search(probes[i%len(probes)])
					sum += at
					i++
				}
				_ = sum
			})
		}
	}
}

func BenchmarkNodeAccess(b *testing.B) {
	node, err := buildNode(1, benchEntries(16, false), benchChildren(16))
	if err != nil {
		b.Fatal(err)
	}
	b.Run("ChildAt", func(b *testing.B) {
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			_, _ = node.ChildAt(i & 15)
			i++
		}
	})
	b.Run("Entry", func(b *testing.B) {
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			_ = node.Entry(i & 15)
			i++
		}
	})
}
