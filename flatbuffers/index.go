package flatbuffers

import (
	"bytes"
	"fmt"
	"math"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/object"
)

// IndexChild is a piece that an index piece lists.
type IndexChild struct {
	Digest object.Digest
	// Size is the number of bytes of content below the piece, 1 to the greatest int64.
	Size uint64
}

// Index is a verified view of an index piece. It borrows the bytes that it was parsed from. The
// zero Index has no children.
type Index struct {
	b     []byte
	n     int
	total uint64
}

// The layout of an index piece:
//
//	offset  bytes  content
//	8       8      vtable
//	16      12     table: distance to the vtable, places of child_sizes, child_ids
//	28      4+8n   child_sizes
//	32+8n   4+33n  child_ids
const (
	indexIdent      = "LIN1"
	indexWhere      = "index piece"
	indexTable      = 16
	indexTableLen   = 12
	indexSizesField = indexTable + 4
	indexIDsField   = indexTable + 8
	indexSizesPos   = indexTable + indexTableLen
	indexFixed      = indexSizesPos + 4 + 4
	indexChildBytes = 8 + object.DigestSize
)

// MaxIndexChildren is the greatest number of children of an index piece, by limits.MaxPieceBytes.
const MaxIndexChildren = (limits.MaxPieceBytes - indexFixed - 3) / indexChildBytes

var indexFields = []uint16{4, 8}

func indexIDsPos(n int) int { return indexSizesPos + 4 + 8*n }

func putIndexHeader(b []byte, n int) {
	putHeader(b, indexIdent, indexTableLen, indexFields)
	putOffset(b, indexSizesField, indexSizesPos)
	putOffset(b, indexIDsField, indexIDsPos(n))
}

// check describes the problem of a child, or returns "" for a valid one. total is the sum of the
// sizes before it.
func (c *IndexChild) check(total uint64) (problem string) {
	switch {
	case c.Size == 0:
		return "size is 0"
	case c.Size > math.MaxInt64-total:
		return "sizes add up to more than 2^63-1"
	}
	return checkValueDigest(c.Digest[0])
}

// EncodeIndex returns the canonical bytes of an index piece with the given children, which it does
// not retain: 2 to MaxIndexChildren pieces of values, with sizes above 0 that add up to an int64.
// Errors: base.ErrInvalid, base.ErrTooLarge for too many children.
func EncodeIndex(children []IndexChild) ([]byte, error) {
	n := len(children)
	if n < 2 {
		return nil, fmt.Errorf("encode index piece of %d children: %w", n, base.ErrInvalid)
	}
	if n > MaxIndexChildren {
		return nil, fmt.Errorf("encode index piece of %d children, at most %d: %w", n, MaxIndexChildren, base.ErrTooLarge)
	}
	idsPos := indexIDsPos(n)
	b := make([]byte, idsPos+4+roundUp(object.DigestSize*n))
	putIndexHeader(b, n)
	le.PutUint32(b[indexSizesPos:], uint32(n))
	le.PutUint32(b[idsPos:], uint32(object.DigestSize*n))
	total := uint64(0)
	for i, c := range children {
		if problem := c.check(total); problem != "" {
			return nil, fmt.Errorf("encode index piece: child %d: %s: %w", i, problem, base.ErrInvalid)
		}
		total += c.Size
		le.PutUint64(b[indexSizesPos+4+8*i:], c.Size)
		copy(b[idsPos+4+object.DigestSize*i:], c.Digest[:])
	}
	return b, nil
}

// ParseIndex verifies an index piece and returns a view of it, which retains b. It does not
// allocate for a valid b. Errors: *base.CorruptError, *base.FormatError.
func ParseIndex(b []byte) (Index, error) {
	if err := checkIdent(indexWhere, b, indexIdent, indexFixed); err != nil {
		return Index{}, err
	}
	if len(b) > limits.MaxPieceBytes {
		return Index{}, corrupt(indexWhere, "%d bytes", len(b))
	}
	n, pos, err := vector(indexWhere, b, indexSizesPos, 8)
	if err != nil {
		return Index{}, err
	}
	if n < 2 || n > MaxIndexChildren {
		return Index{}, corrupt(indexWhere, "%d children", n)
	}
	if pos, err = vectorLen(indexWhere, b, pos, 1, object.DigestSize*n); err != nil {
		return Index{}, err
	}
	if pos != len(b) {
		return Index{}, corrupt(indexWhere, "%d bytes behind its end", len(b)-pos)
	}
	var want [indexSizesPos]byte
	putIndexHeader(want[:], n)
	if !bytes.Equal(want[:], b[:indexSizesPos]) {
		return Index{}, corrupt(indexWhere, "header is not the canonical one")
	}
	x := Index{b: b, n: n}
	for i := range n {
		c := x.Child(i)
		if problem := c.check(x.total); problem != "" {
			return Index{}, corrupt(indexWhere, "child %d: %s", i, problem)
		}
		x.total += c.Size
	}
	return x, nil
}

// Len returns the number of children.
func (x Index) Len() int { return x.n }

// Size returns the sum of the children's sizes.
func (x Index) Size() uint64 { return x.total }

// Child returns the child with number i, 0 <= i < Len(). It panics for any other i, like a slice.
func (x Index) Child(i int) IndexChild {
	if uint(i) >= uint(x.n) {
		panic(fmt.Sprintf("flatbuffers: child %d of an index piece with %d", i, x.n))
	}
	at := indexIDsPos(x.n) + 4 + object.DigestSize*i
	return IndexChild{
		Digest: object.Digest(x.b[at : at+object.DigestSize]),
		Size:   le.Uint64(x.b[indexSizesPos+4+8*i:]),
	}
}
