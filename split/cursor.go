package split

import (
	"context"

	"github.com/ledgerd/ledger/flatbuffers"
)

// cursor holds one chunk of an object and the index pieces on the path to it, so that sequential
// reading loads one piece for each chunk. The zero cursor holds nothing. It is for one goroutine at
// a time.
type cursor struct {
	path  []step
	chunk []byte
	start uint64 // of chunk in the object
}

// step is an index piece on the path, and the child where the path continues.
type step struct {
	index  flatbuffers.Index
	span   span
	start  uint64 // of the piece in the object
	child  int
	offset uint64 // of the child in the object
}

// at returns the bytes of the object root from offset to the end of its chunk. offset is less than
// the size of root, or both are 0.
func (c *cursor) at(ctx context.Context, src Source, root span, offset uint64) ([]byte, error) {
	if c.holds(offset) {
		return c.chunk[offset-c.start:], nil
	}
	c.chunk = nil
	next, start := root, uint64(0)
	for len(c.path) > 0 {
		s := &c.path[len(c.path)-1]
		if s.start <= offset && offset-s.start < s.span.size {
			next, start = s.find(offset)
			break
		}
		c.path = c.path[:len(c.path)-1]
	}
	for {
		content, x, err := load(ctx, src, next)
		if err != nil {
			return nil, err
		}
		if !next.digest.Kind().IsIndex() {
			c.chunk, c.start = content, start
			return content[offset-start:], nil
		}
		if len(c.path) == maxDepth {
			return nil, tooDeep(next.digest)
		}
		c.path = append(c.path, step{index: x, span: next, start: start, offset: start})
		next, start = c.path[len(c.path)-1].find(offset)
	}
}

// holds reports whether the current chunk holds offset.
func (c *cursor) holds(offset uint64) bool {
	return c.start <= offset && offset-c.start < uint64(len(c.chunk))
}

// find moves s to the child that holds offset, which lies in the piece, and returns it with its
// offset in the object.
func (s *step) find(offset uint64) (span, uint64) {
	if offset < s.offset {
		s.child, s.offset = 0, s.start
	}
	for {
		size := s.index.Child(s.child).Size
		if offset-s.offset < size {
			return childSpan(s.index, s.child, s.span.last), s.offset
		}
		s.child++
		s.offset += size
	}
}
