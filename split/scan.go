package split

import (
	"math/bits"

	"github.com/ledgerd/ledger/internal/limits"
)

// The shape of chunks and index pieces. A change of any of these changes the name of every large
// object.
const (
	// MinChunkBytes is the least length of a chunk that is not the last of its object.
	MinChunkBytes = 4 << 10
	// TargetChunkBytes is the length from which on a chunk is cut at sixteen times as many places.
	TargetChunkBytes = 16 << 10
	// MaxChunkBytes is the greatest length of a chunk.
	MaxChunkBytes = limits.MaxPieceBytes

	window = 48

	hardMask uint64 = 0xffff << 48
	easyMask uint64 = 0xfff << 52

	levelBits = 5
	maxLevel  = 8
)

// level returns the level of a cut with hash h. It reads other bits than those that decide about
// the cut.
func level(h uint64) int {
	return min(bits.TrailingZeros64(h)/levelBits, maxLevel)
}

// cut returns the length of the first chunk of b and the hash of the window that ends it. b begins
// with a chunk and holds MaxChunkBytes, or the rest of the object. When only the end of b ended the
// chunk and it is shorter than MinChunkBytes, the hash is 0; nothing depends on the hash of an
// object's last chunk.
func (t *Table) cut(b []byte) (n int, h uint64) {
	if len(b) < MinChunkBytes {
		return len(b), 0
	}
	b = b[:min(len(b), MaxChunkBytes)]
	for _, c := range b[MinChunkBytes-1-window : MinChunkBytes-1] {
		h = bits.RotateLeft64(h, 1) ^ t.in[c]
	}
	n, h, ok := t.scan(b[:min(len(b), TargetChunkBytes)], MinChunkBytes-1, h, hardMask)
	if !ok && n < len(b) {
		n, h, _ = t.scan(b, n, h, easyMask)
	}
	return n, h
}

// scan rolls the bytes of b from index i on into h, the hash of the window that ends before i,
// until h has no bit of mask. It returns the index after the last byte rolled, the hash there, and
// whether it matched. i is not less than the window.
func (t *Table) scan(b []byte, i int, h, mask uint64) (end int, hash uint64, ok bool) {
	ta, tb := &t.in, &t.out
	for ; i+4 <= len(b); i += 4 {
		in := b[i : i+4 : i+4]
		out := b[i-window : i-window+4 : i-window+4]
		if h = bits.RotateLeft64(h, 1) ^ (ta[in[0]] ^ tb[out[0]]); h&mask == 0 {
			return i + 1, h, true
		}
		if h = bits.RotateLeft64(h, 1) ^ (ta[in[1]] ^ tb[out[1]]); h&mask == 0 {
			return i + 2, h, true
		}
		if h = bits.RotateLeft64(h, 1) ^ (ta[in[2]] ^ tb[out[2]]); h&mask == 0 {
			return i + 3, h, true
		}
		if h = bits.RotateLeft64(h, 1) ^ (ta[in[3]] ^ tb[out[3]]); h&mask == 0 {
			return i + 4, h, true
		}
	}
	for ; i < len(b); i++ {
		if h = bits.RotateLeft64(h, 1) ^ (ta[b[i]] ^ tb[b[i-window]]); h&mask == 0 {
			return i + 1, h, true
		}
	}
	return i, h, false
}
