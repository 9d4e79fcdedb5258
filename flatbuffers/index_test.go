package flatbuffers_test

import (
	"errors"
	"math"
	"testing"

	runtime "github.com/google/flatbuffers/go"
	"pgregory.net/rapid"

	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/flatbuffers/gen"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/object"
)

func indexChildren(n int, kind object.Kind) []fb.IndexChild {
	children := make([]fb.IndexChild, n)
	for i := range children {
		children[i] = fb.IndexChild{Digest: digest(kind, i), Size: uint64(1 + 1000*i)}
	}
	return children
}

func indexCases() map[string][]fb.IndexChild {
	mixed := indexChildren(5, object.Chunk)
	mixed[2].Digest = digest(object.Index, 2)
	mixed[2].Size = math.MaxInt64 - 8004
	return map[string][]fb.IndexChild{
		"two":   indexChildren(2, object.Chunk),
		"mixed": mixed,
		"many":  indexChildren(60, object.Chunk),
	}
}

func mustIndex(t testing.TB, children []fb.IndexChild) []byte {
	t.Helper()
	b, err := fb.EncodeIndex(children)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func checkIndex(t interface{ Fatalf(string, ...any) }, children []fb.IndexChild, b []byte) {
	x, err := fb.ParseIndex(b)
	if err != nil {
		t.Fatalf("parse: %v", err)
	}
	if x.Len() != len(children) {
		t.Fatalf("%d children, want %d", x.Len(), len(children))
	}
	g := gen.GetRootAsIndex(b, 0)
	if g.ChildSizesLength() != len(children) || g.ChildIdsLength() != object.DigestSize*len(children) {
		t.Fatalf("generated reader sees other counts")
	}
	total := uint64(0)
	for i, want := range children {
		if got := x.Child(i); got != want {
			t.Fatalf("child %d: %v, want %v", i, got, want)
		}
		total += want.Size
		if d := object.Digest(g.ChildIdsBytes()[object.DigestSize*i:][:object.DigestSize]); g.ChildSizes(i) != want.Size || d != want.Digest {
			t.Fatalf("generated reader sees another child %d", i)
		}
	}
	if x.Size() != total {
		t.Fatalf("size %d, want %d", x.Size(), total)
	}
}

func TestIndexProperties(t *testing.T) {
	for _, children := range indexCases() {
		checkIndex(t, children, mustIndex(t, children))
	}
	rapid.Check(t, func(t *rapid.T) {
		children := make([]fb.IndexChild, rapid.IntRange(2, 50).Draw(t, "count"))
		for i := range children {
			kind := object.Kind(rapid.IntRange(0, 1).Draw(t, "index"))
			children[i] = fb.IndexChild{Digest: digest(kind, i), Size: rapid.Uint64Range(1, math.MaxInt64/50).Draw(t, "size")}
		}
		b, err := fb.EncodeIndex(children)
		if err != nil {
			t.Fatal(err)
		}
		checkIndex(t, children, b)
	})
}

func TestIndexLimits(t *testing.T) {
	largest := indexChildren(fb.MaxIndexChildren, object.Chunk)
	b := mustIndex(t, largest)
	if len(b) > limits.MaxPieceBytes || len(b) <= limits.MaxPieceBytes-41 {
		t.Errorf("the largest index piece has %d bytes", len(b))
	}
	checkIndex(t, largest, b)
	if _, err := fb.EncodeIndex(indexChildren(fb.MaxIndexChildren+1, object.Chunk)); !errors.Is(err, base.ErrTooLarge) {
		t.Errorf("one child more: %v", err)
	}
}

func TestEncodeIndexRefuses(t *testing.T) {
	for name, change := range map[string]func(c []fb.IndexChild) []fb.IndexChild{
		"none":         func(c []fb.IndexChild) []fb.IndexChild { return nil },
		"one":          func(c []fb.IndexChild) []fb.IndexChild { return c[:1] },
		"size 0":       func(c []fb.IndexChild) []fb.IndexChild { c[1].Size = 0; return c },
		"overflow":     func(c []fb.IndexChild) []fb.IndexChild { c[1].Size = math.MaxInt64 - c[0].Size; return c },
		"overflow 64":  func(c []fb.IndexChild) []fb.IndexChild { c[1].Size = math.MaxUint64; return c },
		"reserved bit": func(c []fb.IndexChild) []fb.IndexChild { c[2].Digest[0] = 4; return c },
		"mixed kinds":  func(c []fb.IndexChild) []fb.IndexChild { c[2].Digest[0] = 2; return c },
	} {
		if _, err := fb.EncodeIndex(change(indexChildren(3, object.Chunk))); !errors.Is(err, base.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestIndexOtherLayout: the generated builder orders the vectors otherwise; the same values have
// one name only.
func TestIndexOtherLayout(t *testing.T) {
	children := indexChildren(2, object.Chunk)
	b := runtime.NewBuilder(0)
	gen.IndexStartChildSizesVector(b, 2)
	b.PrependUint64(children[1].Size)
	b.PrependUint64(children[0].Size)
	sizes := b.EndVector(2)
	ids := b.CreateByteVector(append(children[0].Digest[:], children[1].Digest[:]...))
	gen.IndexStart(b)
	gen.IndexAddChildSizes(b, sizes)
	gen.IndexAddChildIds(b, ids)
	b.FinishWithFileIdentifier(gen.IndexEnd(b), []byte("LIN1"))
	if _, err := fb.ParseIndex(b.FinishedBytes()); !errors.Is(err, base.ErrCorrupt) {
		t.Errorf("another layout of the same values: %v", err)
	}
}
