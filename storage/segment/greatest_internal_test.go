package segment

import (
	"errors"
	"math"
	"testing"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/vfs"
	"github.com/ledgerd/ledger/internal/vfs/vfstest"
)

// TestGreatestNumbers has a batch with the greatest number, behind which others still have numbers,
// and refuses one above it though its checksums are right.
func TestGreatestNumbers(t *testing.T) {
	o := Options{Dir: "page", Page: fuzzPage}
	for _, c := range []struct {
		number uint64
		valid  bool
	}{{1 << 40, true}, {maxBatchNumber, true}, {maxBatchNumber + 1, false}, {math.MaxUint64 - 1, false}, {math.MaxUint64, false}} {
		m := vfstest.NewMem()
		if err := m.MkdirAll("page"); err != nil {
			t.Fatal(err)
		}
		b := append(encodeHeader(fuzzPage, 1), fuzzBatch(c.number, headerBytes, nil, "payload")...)
		if err := vfs.WriteFile(m, "page/"+FileName(1), b); err != nil {
			t.Fatal(err)
		}
		o.FS = m
		l, rec, err := Open(t.Context(), o, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if torn := len(rec.Torn) > 0; torn == c.valid {
			t.Errorf("batch %d: torn %v", c.number, torn)
		}
		next := NewBatch()
		next.Add(1, []byte("more"))
		a, err := l.Main().Append(next)
		if err != nil || c.valid && a.Number != c.number+1 {
			t.Errorf("behind batch %d comes %d, %v", c.number, a.Number, err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	p := Position{Number: maxBatchNumber + 1, Segment: 1, Start: headerBytes, Ends: []End{{1, 100}}}
	if _, err := DecodePosition(p.Encode()); !errors.Is(err, base.ErrCorrupt) {
		t.Errorf("position of batch %d: %v", p.Number, err)
	}
	p = Position{Ends: []End{{noSegment, 100}}}
	if _, err := DecodePosition(p.Encode()); !errors.Is(err, base.ErrCorrupt) {
		t.Errorf("position with the end of a segment that cannot be: %v", err)
	}
}

// TestNoSegmentIsLeft has a file with the name of the last segment that can be. What would need
// another is refused: under the id that is never used, or under 0, no segment would be found again.
func TestNoSegmentIsLeft(t *testing.T) {
	m := vfstest.NewMem()
	if err := m.MkdirAll("page"); err != nil {
		t.Fatal(err)
	}
	if err := vfs.WriteFile(m, "page/"+FileName(noSegment-1), nil); err != nil {
		t.Fatal(err)
	}
	l, _, err := Open(t.Context(), Options{FS: m, Dir: "page", Page: fuzzPage, SegmentBytes: 100}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := NewBatch()
	b.Add(1, make([]byte, 100))
	if a, err := l.Main().Append(b); err != nil || a.Segment != noSegment-1 {
		t.Fatalf("segment %x, %v", a.Segment, err)
	}
	for range 3 {
		if a, err := l.Main().Append(b); !errors.Is(err, base.ErrTooLarge) {
			t.Fatalf("segment %x, %v", a.Segment, err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
