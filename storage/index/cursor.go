package index

import "bytes"

// mover is a position in sorted rows. move is called only when the last call returned a row and
// nothing was changed since; it may lose the position when it returns nil.
type mover interface {
	last() (k, v []byte)
	move(back bool) (k, v []byte)
	seek(k []byte) (key, v []byte)
}

// cursor applies the same rules to every mover (I5): it keeps its key, and seeks it again when the
// rows have changed or the mover has passed an end.
type cursor struct {
	m       mover
	changes *uint64 // counts the changes of the bucket; nil when there are none
	seen    uint64  // value of changes when m was last moved
	placed  bool    // m is at the key at
	at      []byte  // nil: no position
}

func (c *cursor) set(k, v []byte) ([]byte, []byte) {
	c.placed = k != nil
	if k != nil {
		c.at = k
		if c.changes != nil {
			c.seen = *c.changes
		}
	}
	return k, v
}

func (c *cursor) fresh() bool {
	return c.placed && (c.changes == nil || c.seen == *c.changes)
}

func (c *cursor) First() (k, v []byte) { return c.set(c.m.seek(nil)) }

func (c *cursor) Last() (k, v []byte) { return c.set(c.m.last()) }

func (c *cursor) Seek(k []byte) (key, v []byte) {
	key, v = c.set(c.m.seek(k))
	if key == nil {
		c.at = append(make([]byte, 0, len(k)+1), k...)
	}
	return key, v
}

func (c *cursor) Next() (k, v []byte) { return c.move(false) }

func (c *cursor) Prev() (k, v []byte) { return c.move(true) }

func (c *cursor) move(back bool) (k, v []byte) {
	if c.at == nil {
		return nil, nil
	}
	if c.fresh() {
		return c.set(c.m.move(back))
	}
	switch k, v = c.m.seek(c.at); {
	case back && k == nil:
		k, v = c.m.last()
	case back || k != nil && bytes.Equal(k, c.at):
		k, v = c.m.move(back)
	}
	return c.set(k, v)
}
