package split

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
)

// hashOf returns a hash of the given level.
func hashOf(level int) uint64 { return 1 << (levelBits * level) }

// buildTree builds the tree over one small chunk for each level, the last one with hash last. It
// returns the root, the pieces and the content.
func buildTree(t rapid.TB, levels []int, last uint64) (object.Digest, pieceMap, []byte) {
	m := make(pieceMap)
	var u builder
	u.reset(m.emit)
	content := make([]byte, 0, MinChunkBytes*len(levels))
	var bytes [MinChunkBytes]byte
	for i, l := range levels {
		binary.BigEndian.PutUint32(bytes[:], uint32(i))
		h := hashOf(l)
		if i == len(levels)-1 {
			h = last
		}
		if err := u.chunk(context.Background(), &chunk{content: bytes[:], hash: h, digest: object.Sum(object.Chunk, bytes[:])}); err != nil {
			t.Fatal(err)
		}
		content = append(content, bytes[:]...)
	}
	root, err := u.finish(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if root.Size != uint64(len(content)) {
		t.Fatalf("root of %d bytes, want %d", root.Size, len(content))
	}
	return root.Digest, m, content
}

// depthOf returns the levels of index pieces below d and checks I4.
func depthOf(t rapid.TB, m pieceMap, d object.Digest) int {
	if !d.Kind().IsIndex() {
		return 0
	}
	ds, err := Children(d, m[d])
	if err != nil || len(ds) < 2 {
		t.Fatalf("I4: index piece with %d children, %v", len(ds), err)
	}
	depth := 0
	for _, c := range ds {
		depth = max(depth, depthOf(t, m, c))
	}
	return depth + 1
}

// TestTreeLevels builds trees over cuts of any level. The content comes back, and the hash of the
// last chunk does not matter.
func TestTreeLevels(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		levels := rapid.SliceOfN(rapid.OneOf(rapid.Just(0), rapid.IntRange(0, maxLevel)), 1, 60).Draw(t, "levels")
		root, m, content := buildTree(t, levels, 0)
		other, _, _ := buildTree(t, levels, hashOf(rapid.IntRange(0, maxLevel).Draw(t, "last")))
		if root != other {
			t.Fatalf("the hash of the last chunk changes root %s to %s", root, other)
		}
		if d := depthOf(t, m, root); d > maxLevel+1 {
			t.Fatalf("%d levels", d)
		}
		var got bytes.Buffer
		if _, err := NewReader(context.Background(), m, root, uint64(len(content))).WriteTo(&got); err != nil || !bytes.Equal(got.Bytes(), content) {
			t.Fatalf("read %d bytes, %v", got.Len(), err)
		}
	})
}

// TestTreeFull fills index pieces, where cuts have no level and where all of them have the greatest
// one.
func TestTreeFull(t *testing.T) {
	const most = flatbuffers.MaxIndexChildren
	for _, l := range []int{0, 1, maxLevel} {
		for _, n := range []int{1, 2, most - 1, most, most + 1, 2*most + 1} {
			levels := make([]int, n)
			for i := range levels {
				levels[i] = l
			}
			root, m, content := buildTree(t, levels, 0)
			want := 1
			if n == 1 {
				want = 0
			} else if n > most {
				want = 2
			}
			if d := depthOf(t, m, root); d != want {
				t.Errorf("%d cuts of level %d: %d levels, want %d", n, l, d, want)
			}
			if n, err := NewReader(t.Context(), m, root, uint64(len(content))).WriteTo(io.Discard); err != nil || n != int64(len(content)) {
				t.Errorf("%d cuts of level %d: read %d bytes: %v", n, l, n, err)
			}
		}
	}
}

// TestTreeTooDeep checks that the builder gives up where readers would.
func TestTreeTooDeep(t *testing.T) {
	var u builder
	u.reset(make(pieceMap).emit)
	if err := u.add(t.Context(), maxDepth, flatbuffers.IndexChild{}); !errors.Is(err, base.ErrTooLarge) {
		t.Errorf("level %d: %v", maxDepth, err)
	}
}
