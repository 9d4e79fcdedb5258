package index

import "bytes"

// mover is a position in sorted rows. next is called only when the last call returned a row and
// nothing was changed since; it may lose the position when it returns nil.
type mover interface {
	next() (k, v []byte)
	seek(k []byte) (key, v []byte)
}

// cursor applies the same rules to every mover (I5): it keeps its key, and seeks it again when the
// rows have changed or the mover has passed an end.
type cursor struct {
	m       mover
	changes *uint64 // counts the changes of the bucket in an Update; nil in a View
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

func (c *cursor) First() (k, v []byte) { return c.set(c.m.seek(nil)) }

func (c *cursor) Seek(k []byte) (key, v []byte) {
	key, v = c.set(c.m.seek(k))
	if key == nil {
		c.at = append(make([]byte, 0, len(k)+1), k...)
	}
	return key, v
}

func (c *cursor) Next() (k, v []byte) {
	if c.at == nil {
		return nil, nil
	}
	if c.placed && (c.changes == nil || c.seen == *c.changes) {
		return c.set(c.m.next())
	}
	if k, v = c.m.seek(c.at); k != nil && bytes.Equal(k, c.at) {
		k, v = c.m.next()
	}
	return c.set(k, v)
}
