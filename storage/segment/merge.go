package segment

import (
	"cmp"
	"context"
	"fmt"
	"slices"
)

// extent is a part of a segment that consists of whole batches.
type extent struct {
	segment  uint32
	from, to uint64
}

// cursor is the position before a batch of an extent.
type cursor struct {
	extent
	next frame
}

// merger reads the batches of several extents in the order of their numbers. It holds one batch and
// one frame for each extent in memory.
type merger struct {
	files *handles
	page  [16]byte
	next  []*cursor // by the numbers of their next batches
	buf   []byte
	batch batch
}

// eachBatch calls fn for every batch of some extents, in the order of their numbers. The argument
// is valid during the call.
func eachBatch(ctx context.Context, files *handles, page [16]byte, extents []extent, fn func(*batch) error) error {
	m := &merger{files: files, page: page}
	for _, e := range extents {
		if e.from >= e.to {
			continue
		}
		c := &cursor{extent: e}
		b, err := readSegment(files, nil, e.segment, e.from, frameBytes)
		if err != nil {
			return err
		}
		if err := m.setNext(c, b, 0); err != nil {
			return err
		}
		m.next = append(m.next, c)
	}
	slices.SortFunc(m.next, compareCursors)
	for len(m.next) > 0 {
		if err := ctx.Err(); err != nil {
			return err
		}
		c := m.next[0]
		number := c.next.number
		segment, start := c.segment, c.from
		whole, err := m.load(c)
		if err != nil {
			return err
		}
		if err := m.batch.decode(whole, m.page, segment, start); err != nil {
			return err
		}
		m.advance()
		if len(m.next) > 0 && m.next[0].next.number == number {
			return corrupt(m.next[0].segment, m.next[0].from, fmt.Sprintf("a batch %d, which is in segment %s, too", number, FileName(segment)))
		}
		if err := fn(&m.batch); err != nil {
			return err
		}
	}
	return nil
}

// load reads the batch at c, and moves c to the next. The result is valid until the next load.
func (m *merger) load(c *cursor) ([]byte, error) {
	size := c.next.size()
	if size > c.to-c.from {
		return nil, corrupt(c.segment, c.from, fmt.Sprintf("batch %d across offset %d", c.next.number, c.to))
	}
	withNext := min(size+frameBytes, c.to-c.from)
	b, err := readSegment(m.files, m.buf[:0], c.segment, c.from, int(withNext))
	if err != nil {
		return nil, err
	}
	m.buf = b
	last := c.next.number
	c.from += size
	if c.from < c.to {
		if err := m.setNext(c, b[size:], last); err != nil {
			return nil, err
		}
	}
	return b[:size], nil
}

// setNext sets the frame at c.
func (m *merger) setNext(c *cursor, b []byte, last uint64) error {
	f, ok := parseFrame(b, seed(m.page, c.segment, c.from))
	if !ok {
		return corrupt(c.segment, c.from, "no frame of a batch")
	}
	if f.number <= last {
		return corruptOrder(c.segment, c.from, f.number, last)
	}
	c.next = f
	return nil
}

// advance restores the order of the cursors after a load. A batch is mostly followed by the next
// one in its segment.
func (m *merger) advance() {
	c, others := m.next[0], m.next[1:]
	if c.from >= c.to {
		m.next = others
		return
	}
	i, _ := slices.BinarySearchFunc(others, c, compareCursors)
	copy(m.next, others[:i])
	m.next[i] = c
}

func compareCursors(a, b *cursor) int {
	return cmp.Or(cmp.Compare(a.next.number, b.next.number), cmp.Compare(a.segment, b.segment))
}
