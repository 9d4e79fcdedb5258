package btree

import (
	"context"
	"math"

	fb "github.com/ledgerd/ledger/flatbuffers"
)

// Cursor stands on an entry of a tree, or on none: before the first, behind the last, or nowhere yet. Moving it
// does not allocate. It pins the nodes of one path in memory. A Cursor belongs to one caller at a time.
//
// The methods that move it report whether it then stands on an entry. They wait for the Source only. After an
// error the Cursor stands nowhere. Errors: those of the Source, *base.CorruptError.
type Cursor struct {
	t     Tree
	node  *fb.Node // nil when the cursor stands on no entry
	i     int      // the entry of node
	first int      // Prev may go down to it without leaving node
	last  int      // Next may go up to it without leaving node
	side  side     // when it stands on no entry
	depth int
	path  [MaxLevel + 1]step // the last one is of node

	touched byte // of fb.Node.Touch
}

// step is a node on the path of a cursor, and the gap where the path goes on.
type step struct {
	span
	gap int
}

type side int8

const (
	nowhere side = iota
	beforeFirst
	behindLast
)

// Cursor returns a cursor that stands nowhere: Next moves it to the first entry, Prev to the last.
func (t Tree) Cursor() *Cursor {
	c := &Cursor{t: t}
	c.leave(nowhere)
	return c
}

// Entry returns the entry on which the cursor stands, the zero Entry when it stands on none. Key and Value are
// borrowed from the node and must not be changed; they stay valid when the cursor moves.
func (c *Cursor) Entry() fb.Entry {
	if c.node == nil {
		return fb.Entry{}
	}
	return c.node.Entry(c.i)
}

// Key returns the key of the entry on which the cursor stands, borrowed as in Entry; nil when it stands on none.
func (c *Cursor) Key() []byte {
	if c.node == nil {
		return nil
	}
	return c.node.Key(c.i)
}

// Value returns the value of the entry on which the cursor stands, borrowed as in Entry, and whether it is inline; nil and
// false when it is not, or when the cursor stands on none. Key and Value are faster than Entry, which copies the
// whole entry.
func (c *Cursor) Value() (value []byte, inline bool) {
	if c.node == nil || !c.node.Inline(c.i) {
		return nil, false
	}
	return c.node.Value(c.i), true
}

// Run returns the node in which the cursor stands and the entries of it, from first to last, that Prev and Next reach from
// entry i without reading another node; i is where it stands. Who walks over them himself moves the cursor after them with Jump.
// The node is nil when the cursor stands on no entry.
func (c *Cursor) Run() (n *fb.Node, first, i, last int) {
	if c.node == nil {
		return nil, 0, 0, -1
	}
	return c.node, min(c.first, c.i), c.i, max(c.last, c.i)
}

// Jump moves to entry i of the node in which the cursor stands, which must be one that Run gives.
func (c *Cursor) Jump(i int) {
	if _, first, _, last := c.Run(); i >= first && i <= last {
		c.i = i
	}
}

// Valid reports whether the cursor stands on an entry.
func (c *Cursor) Valid() bool { return c.node != nil }

// Next moves to the entry behind. Behind the last one it stays where it is.
func (c *Cursor) Next(ctx context.Context) (bool, error) {
	if c.i < c.last {
		c.i++
		return true, nil
	}
	return c.next(ctx)
}

// Prev moves to the entry before. Before the first one it stays where it is.
func (c *Cursor) Prev(ctx context.Context) (bool, error) {
	if c.i > c.first {
		c.i--
		return true, nil
	}
	return c.prev(ctx)
}

// First moves to the first entry.
func (c *Cursor) First(ctx context.Context) (bool, error) {
	root, ok := c.reset(behindLast)
	if !ok {
		return false, ctx.Err()
	}
	return c.descend(ctx, root, false)
}

// Last moves to the last entry.
func (c *Cursor) Last(ctx context.Context) (bool, error) {
	root, ok := c.reset(beforeFirst)
	if !ok {
		return false, ctx.Err()
	}
	return c.descend(ctx, root, true)
}

// Seek moves to the first entry whose key is not below key; behind the last one if there is none.
func (c *Cursor) Seek(ctx context.Context, key []byte) (bool, error) {
	s, ok := c.reset(behindLast)
	for ok {
		p, err := c.push(ctx, &s)
		if err != nil {
			return false, err
		}
		i, found := p.node.Search(key)
		if found {
			return c.stand(i), nil
		}
		p.gap = i
		s, ok = p.child(i)
	}
	return c.ascend(ctx)
}

// SeekBefore moves to the last entry whose key is below key; before the first one if there is none.
func (c *Cursor) SeekBefore(ctx context.Context, key []byte) (bool, error) {
	s, ok := c.reset(beforeFirst)
	for ok {
		p, err := c.push(ctx, &s)
		if err != nil {
			return false, err
		}
		i, found := p.node.Search(key)
		p.gap = i
		s, ok = p.child(i)
		if found && ok {
			return c.descend(ctx, s, true)
		}
	}
	return c.ascendBefore(ctx)
}

// leave makes the cursor stand on no entry.
func (c *Cursor) leave(s side) {
	c.node, c.depth, c.side = nil, 0, s
	c.i, c.first, c.last = 0, math.MaxInt, math.MinInt
}

// reset leaves and returns the root. For an empty tree the cursor is then at the given side.
func (c *Cursor) reset(empty side) (subtree, bool) {
	c.leave(empty)
	return subtree{digest: c.t.Root, level: anyLevel}, c.t.Root != EmptyRoot
}

// push reads a node, the root or the child in the gap of the last one of the path, and makes it the last one.
func (c *Cursor) push(ctx context.Context, s *subtree) (*step, error) {
	n, err := c.linked(), error(nil)
	if n != nil {
		n.Use()
	} else {
		n, err = s.read(ctx, c.t.Source)
	}
	if err == nil {
		if c.node != nil { // the cursor moves on from an entry: all of the node will be read
			c.touched |= n.Touch()
		}
		err = s.verify(n)
	}
	if err != nil {
		c.leave(nowhere)
		return nil, err
	}
	if c.depth > 0 {
		up := &c.path[c.depth-1]
		if up.node.Linked(up.gap) != n {
			up.node.Link(up.gap, n)
		}
	}
	p := &c.path[c.depth]
	p.node, p.digest, p.lo, p.hi = n, s.digest, s.lo, s.hi
	c.depth++
	return p, nil
}

// linked returns the node to which the last one of the path is linked where it goes on, nil if there is none.
func (c *Cursor) linked() *fb.Node {
	if c.depth == 0 {
		return nil
	}
	p := &c.path[c.depth-1]
	return p.node.Linked(p.gap)
}

// stand makes the cursor stand on entry i of the last node of the path.
func (c *Cursor) stand(i int) bool {
	p := &c.path[c.depth-1]
	c.node, c.i = p.node, i
	c.first, c.last = math.MaxInt, math.MinInt
	if p.node.NumChildren() == 0 {
		c.first, c.last = 0, p.node.Len()-1
	}
	return true
}

// descend goes to the first entry of a subtree, or to its last one.
func (c *Cursor) descend(ctx context.Context, s subtree, last bool) (bool, error) {
	for {
		p, err := c.push(ctx, &s)
		if err != nil {
			return false, err
		}
		p.gap = 0
		if last {
			p.gap = p.node.Len()
		}
		var ok bool
		if s, ok = p.child(p.gap); ok {
			continue
		}
		if last {
			return c.stand(p.gap - 1), nil
		}
		return c.stand(0), nil
	}
}

func (c *Cursor) next(ctx context.Context) (bool, error) {
	if c.node == nil {
		if c.side == behindLast {
			return false, nil
		}
		return c.First(ctx)
	}
	p := &c.path[c.depth-1]
	p.gap = c.i + 1
	if s, ok := p.child(p.gap); ok {
		return c.descend(ctx, s, false)
	}
	return c.ascend(ctx)
}

func (c *Cursor) prev(ctx context.Context) (bool, error) {
	if c.node == nil {
		if c.side == beforeFirst {
			return false, nil
		}
		return c.Last(ctx)
	}
	p := &c.path[c.depth-1]
	p.gap = c.i
	if s, ok := p.child(p.gap); ok {
		return c.descend(ctx, s, true)
	}
	return c.ascendBefore(ctx)
}

// ascend goes up to the first entry behind the gaps of the path.
func (c *Cursor) ascend(ctx context.Context) (bool, error) {
	for ; c.depth > 0; c.depth-- {
		if p := &c.path[c.depth-1]; p.gap < p.node.Len() {
			return c.stand(p.gap), nil
		}
	}
	c.leave(behindLast)
	return false, ctx.Err()
}

// ascendBefore goes up to the last entry before the gaps of the path.
func (c *Cursor) ascendBefore(ctx context.Context) (bool, error) {
	for ; c.depth > 0; c.depth-- {
		if p := &c.path[c.depth-1]; p.gap > 0 {
			return c.stand(p.gap - 1), nil
		}
	}
	c.leave(beforeFirst)
	return false, ctx.Err()
}
