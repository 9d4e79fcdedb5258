package flatbuffers

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/object"
)

// EmptyNode returns the encoding of the node without entries, the root of an empty tree. The caller
// owns it.
func EmptyNode() []byte {
	p := nodeShape{}.places()
	b := make([]byte, p.end)
	putNodeHeader(b, 0, &p)
	return b
}

// EncodeNode returns the canonical bytes of a node at a level 0 to MaxLevel. Keys must ascend
// strictly and be at most limits.MaxKeyBytes long, gaps must ascend strictly from 0 to
// len(entries), children must be below level. A node without entries has level 0 and no children.
// An inline entry must be Eager with Size len(Value) and a zero Digest, another one must have no
// Value and name a piece of a value; children must name nodes. Nothing is retained. Errors:
// base.ErrInvalid; base.ErrTooLarge for a key beyond its limit or a node beyond
// limits.MaxNodeBytes.
func EncodeNode(level int, entries []Entry, children []Child) ([]byte, error) {
	s, err := measureNode(level, entries, children)
	if err != nil {
		return nil, err
	}
	return writeNode(nil, level, entries, children, s), nil
}

// Rebuild sets nd to the view of the bytes that EncodeNode returns, without verifying them, in the
// memory of its former node, if any. The former node must be unused, and entries and children must
// not lie in it. No cache may keep nd. On an error nd is unchanged. Errors: those of EncodeNode.
func (nd *Node) Rebuild(level int, entries []Entry, children []Child) error {
	s, err := measureNode(level, entries, children)
	if err != nil {
		return err
	}
	b := writeNode(nd.buf, level, entries, children, s)
	nd.places, nd.prefix, nd.common = viewPlaces(b, level, s), 0, [3]uint64{}
	nd.setPrefix()
	return nil
}

func uvarintLen(v uint64) int { return (bits.Len64(v|1) + 6) / 7 }

func invalidNode(format string, args ...any) error {
	return fmt.Errorf("encode tree node: %s: %w", fmt.Sprintf(format, args...), base.ErrInvalid)
}

func tooLargeNode(format string, args ...any) error {
	return fmt.Errorf("encode tree node: %s: %w", fmt.Sprintf(format, args...), base.ErrTooLarge)
}

// measureNode verifies the content of a node, and finds its shape.
func measureNode(level int, entries []Entry, children []Child) (nodeShape, error) {
	s := nodeShape{n: len(entries), children: len(children)}
	switch {
	case level < 0 || level > MaxLevel:
		return s, invalidNode("level %d", level)
	case s.n == 0 && (level != 0 || s.children != 0):
		return s, invalidNode("level %d with %d children and no entries", level, s.children)
	case s.n > limits.MaxNodeBytes/9:
		return s, tooLargeNode("%d entries", s.n)
	case s.children > s.n+1:
		return s, invalidNode("%d children with %d entries", s.children, s.n)
	}
	for i := range entries {
		e := &entries[i]
		if i > 0 && bytes.Compare(entries[i-1].Key, e.Key) >= 0 {
			return s, invalidNode("key %d is not above the one before", i)
		}
		if len(e.Key) > limits.MaxKeyBytes {
			return s, tooLargeNode("key %d of %d bytes", i, len(e.Key))
		}
		s.keyBytes += len(e.Key)
		if e.Inline {
			if e.Priority != object.Eager || e.Size != uint64(len(e.Value)) || !e.Digest.IsZero() {
				return s, invalidNode("inline entry %d with size %d, priority %s and digest %s", i, e.Size, e.Priority, e.Digest.Short())
			}
			s.valueByte += len(e.Value)
		} else {
			if problem := e.checkReference(); problem != "" {
				return s, invalidNode("entry %d: %s", i, problem)
			}
			s.valueByte += object.DigestSize + uvarintLen(e.Size)
		}
		if s.keyBytes+s.valueByte > limits.MaxNodeBytes {
			return s, tooLargeNode("more than %d bytes", limits.MaxNodeBytes)
		}
	}
	last := -1
	for i := range children {
		c := &children[i]
		if c.Gap <= last || c.Gap > s.n {
			return s, invalidNode("gap %d of child %d with %d entries", c.Gap, i, s.n)
		}
		last = c.Gap
		if c.Level < 0 || c.Level >= level {
			return s, invalidNode("child %d at level %d of a node at level %d", i, c.Level, level)
		}
		if problem := checkNodeDigest(c.Digest[0]); problem != "" {
			return s, invalidNode("child %d: %s", i, problem)
		}
	}
	if p := s.places(); p.end > limits.MaxNodeBytes {
		return s, tooLargeNode("%d bytes", p.end)
	}
	return s, nil
}

func (e *Entry) checkReference() string {
	switch {
	case len(e.Value) != 0:
		return "reference with an inline value"
	case e.Priority != object.Eager && e.Priority != object.Lazy:
		return e.Priority.String()
	case e.Size > math.MaxInt64:
		return "size above 2^63-1"
	}
	return checkValueDigest(e.Digest[0])
}

// writeNode returns the encoding of a measured node, in b if it is long enough.
func writeNode(b []byte, level int, entries []Entry, children []Child, s nodeShape) []byte {
	p := s.places()
	if cap(b) < p.end {
		b = make([]byte, p.end)
	}
	b = b[:p.end]
	clear(b[:nodeHeaderLen])
	putNodeHeader(b, level, &p)
	n, c := uint32(s.n), uint32(s.children)
	le.PutUint32(b[p.keyEnds:], n)
	le.PutUint32(b[p.valEnds:], n)
	le.PutUint32(b[p.gaps:], c)
	putCount(b, p.flags, p.levels, n)
	putCount(b, p.levels, p.ids, c)
	putCount(b, p.ids, p.keys, object.DigestSize*c)
	putCount(b, p.keys, p.values, uint32(s.keyBytes))
	putCount(b, p.values, p.end, uint32(s.valueByte))

	keyEnds := b[p.keyEnds+4:][:4*s.n]
	valEnds := b[p.valEnds+4:][:4*s.n]
	flags := b[p.flags+4:][:s.n]
	keys := b[p.keys+4:][:s.keyBytes]
	vals := b[p.values+4:][:s.valueByte]
	k, v := 0, 0
	for i := range entries {
		e := &entries[i]
		k += copy(keys[k:], e.Key)
		le.PutUint32(keyEnds[4*i:], uint32(k))
		if e.Inline {
			v += copy(vals[v:], e.Value)
			flags[i] = 0
		} else {
			v += copy(vals[v:], e.Digest[:])
			v += binary.PutUvarint(vals[v:], e.Size)
			flags[i] = flagReference | byte(e.Priority)
		}
		le.PutUint32(valEnds[4*i:], uint32(v))
	}
	for i := range children {
		ch := &children[i]
		le.PutUint32(b[p.gaps+4+4*i:], uint32(ch.Gap))
		b[p.levels+4+i] = byte(ch.Level)
		copy(b[p.ids+4+object.DigestSize*i:], ch.Digest[:])
	}
	return b
}

// putCount writes the element count of a vector of bytes at pos, and the zeros before the next one.
func putCount(b []byte, pos, next int, count uint32) {
	le.PutUint32(b[next-4:], 0) // the padding, or overwritten by the content
	le.PutUint32(b[pos:], count)
}
