package btree

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"

	"github.com/dchest/siphash"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/object"

	fb "github.com/ledgerd/ledger/flatbuffers"
)

// Constants of format version 1 of a page. A page never changes its own.
const (
	// FanoutBits is the length of a group of zero bits that raises a key by one level: a node has
	// 16 entries on average.
	FanoutBits = 4
	// InlineLimit is the greatest length of a value inside its entry, in bytes; a longer one is an
	// object of its own.
	InlineLimit = 256
	// MaxLevel is the level of a key whose hash is 0.
	MaxLevel = 64 / FanoutBits
)

// EmptyRoot is the digest of the node at level 0 without entries, the root of an empty tree. The
// node is never stored.
var EmptyRoot = object.Sum(object.Node, fb.EmptyNode())

// levelHash finds the levels of keys in a page, 0 to MaxLevel: the number of leading zero groups of
// FanoutBits bits in the SipHash-2-4 of a key under the page id, of which it has the two halves.
type levelHash struct{ k0, k1 uint64 }

func leveler(page [16]byte) levelHash {
	return levelHash{binary.LittleEndian.Uint64(page[:8]), binary.LittleEndian.Uint64(page[8:])}
}

func (h levelHash) level(key []byte) int {
	return bits.LeadingZeros64(siphash.Hash(h.k0, h.k1, key)) / FanoutBits
}

// VerifyNode verifies what a node of a page must satisfy beyond its encoding: every key is at the
// level of the node, and a value is inline if and only if it is at most InlineLimit bytes long. The
// empty root passes. Errors: *base.CorruptError without the digest, which the caller can add.
func VerifyNode(page [16]byte, n *fb.Node) error {
	h := leveler(page)
	for i := range n.Len() {
		if level := h.level(n.Key(i)); level != n.Level() {
			return &base.CorruptError{
				Where: "tree node",
				Want:  fmt.Sprintf("keys of level %d", n.Level()),
				Got:   fmt.Sprintf("key %d of level %d", i, level),
			}
		}
		if e := n.Entry(i); e.Inline != (e.Size <= InlineLimit) {
			return &base.CorruptError{
				Where: "tree node",
				Want:  fmt.Sprintf("values of up to %d bytes inline, longer ones not", InlineLimit),
				Got:   fmt.Sprintf("entry %d of %d bytes with inline %t", i, e.Size, e.Inline),
			}
		}
	}
	return nil
}

// EqualValues reports whether two entries are equal except for their keys: the same inline value,
// or the same digest and size, and the same priority.
func EqualValues(a, b *fb.Entry) bool {
	if a.Inline != b.Inline || a.Priority != b.Priority {
		return false
	}
	if a.Inline {
		return string(a.Value) == string(b.Value)
	}
	return a.Digest == b.Digest && a.Size == b.Size
}

// checkEntry returns an error for an entry that a tree cannot hold: base.ErrTooLarge for its key,
// base.ErrInvalid for the rest.
func checkEntry(e *fb.Entry) error {
	switch {
	case len(e.Key) > limits.MaxKeyBytes:
		return fmt.Errorf("key of %d bytes, at most %d: %w", len(e.Key), limits.MaxKeyBytes, base.ErrTooLarge)
	case e.Inline && (len(e.Value) > InlineLimit || e.Size != uint64(len(e.Value))):
		return fmt.Errorf("inline value of %d bytes with size %d, at most %d: %w", len(e.Value), e.Size, InlineLimit, base.ErrInvalid)
	case e.Inline && (e.Priority != object.Eager || !e.Digest.IsZero()):
		return fmt.Errorf("inline value with priority %s and digest %s: %w", e.Priority, e.Digest.Short(), base.ErrInvalid)
	case !e.Inline && e.Size <= InlineLimit:
		return fmt.Errorf("value of %d bytes that is not inline: %w", e.Size, base.ErrInvalid)
	case !e.Inline && (e.Size > math.MaxInt64 || e.Priority > object.Lazy):
		return fmt.Errorf("value of %d bytes with %s: %w", e.Size, e.Priority, base.ErrInvalid)
	case !e.Inline && e.Digest.Kind() > object.Index:
		return fmt.Errorf("value named by a %s: %w", e.Digest.Kind(), base.ErrInvalid)
	}
	return nil
}
