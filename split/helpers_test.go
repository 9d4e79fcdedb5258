package split_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/split"
)

// store is a Source in memory that counts what is read.
type store struct {
	mu     sync.Mutex
	pieces map[object.Digest][]byte
	order  []object.Digest
	reads  int
}

func newStore() *store { return &store{pieces: make(map[object.Digest][]byte)} }

func (s *store) Piece(_ context.Context, d object.Digest) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	b, ok := s.pieces[d]
	if !ok {
		return nil, fmt.Errorf("piece %s: %w", d, base.ErrNotFound)
	}
	return b, nil
}

func (s *store) emit(_ context.Context, p split.Piece) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.pieces[p.Digest]; !ok {
		s.pieces[p.Digest] = bytes.Clone(p.Content)
	}
	s.order = append(s.order, p.Digest)
	return nil
}

// put stores content under its true name.
func (s *store) put(kind object.Kind, content []byte) object.Digest {
	d := object.Sum(kind, content)
	s.pieces[d] = bytes.Clone(content)
	return d
}

func random(seed byte, n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(b)
	return b
}

func mustSplit(t testing.TB, s *store, b []byte) object.Digest {
	t.Helper()
	root, err := split.SplitBytes(t.Context(), split.DefaultTable(), b, s.emit)
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// checkObject splits b and checks the invariants of its pieces, and that reading gives b again.
func checkObject(t testing.TB, table *split.Table, b []byte) {
	t.Helper()
	s := newStore()
	root, err := split.SplitBytes(t.Context(), table, b, s.emit)
	if err != nil {
		t.Fatal(err)
	}
	if last := s.order[len(s.order)-1]; last != root {
		t.Fatalf("I3: root %s, last piece %s", root, last)
	}
	checkOrder(t, s)
	left := b
	var walked []object.Digest
	err = split.Walk(t.Context(), s, root, func(d object.Digest, size uint64) error {
		walked = append(walked, d)
		c := s.pieces[d]
		if d.Kind().IsIndex() {
			return nil
		}
		if uint64(len(c)) != size || !bytes.HasPrefix(left, c) {
			t.Fatalf("chunk at %d of %d is not the content", len(b)-len(left), len(b))
		}
		left = left[len(c):]
		if len(c) < split.MinChunkBytes && len(left) > 0 || len(c) > split.MaxChunkBytes {
			t.Fatalf("I2: chunk of %d bytes with %d after it", len(c), len(left))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(left) > 0 || len(walked) != len(s.order) {
		t.Fatalf("%d bytes left; walked %d pieces, emitted %d", len(left), len(walked), len(s.order))
	}
	var got bytes.Buffer
	r := split.NewReader(t.Context(), s, root, uint64(len(b)))
	if _, err := r.WriteTo(&got); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), b) {
		t.Fatal("what was read is not what was split")
	}
}

// checkOrder checks I3, I4, and the length and name of each piece.
func checkOrder(t testing.TB, s *store) {
	t.Helper()
	seen := make(map[object.Digest]bool)
	for _, d := range s.order {
		c := s.pieces[d]
		if err := d.Verify(c); err != nil {
			t.Fatal(err)
		}
		if d.Kind().IsNode() {
			t.Fatalf("piece %s is a node", d)
		}
		if len(c) > limits.MaxPieceBytes {
			t.Fatalf("piece of %d bytes", len(c))
		}
		children, err := split.Children(d, c)
		if err != nil {
			t.Fatal(err)
		}
		if d.Kind().IsIndex() != (len(children) >= 2) {
			t.Fatalf("I4: %s has %d children", d, len(children))
		}
		for _, c := range children {
			if !seen[c] {
				t.Fatalf("I3: %s emitted before its child %s", d, c)
			}
		}
		seen[d] = true
	}
}
