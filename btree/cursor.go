package btree

import (
	"context"
	"math"

	fb "github.com/ledgerd/ledger/flatbuffers"
)

// Cursor is a position at an entry of a tree, or at none: before the first, after the last, or not
// placed yet. Moving it does not allocate. It pins the nodes of one path in memory. A Cursor
// belongs to one caller at a time.
//
// The moving methods report whether the cursor is then at an entry. They block only in the Source.
// After an error the Cursor has no position. Errors: those of the Source, *base.CorruptError.
type Cursor struct {
	t     Tree
	node  *fb.Node // nil when the cursor is at no entry
	i     int      // the entry of node
	first int      // Prev may go down to it within node
	last  int      // Next may go up to it within node
	side  side     // when it is at no entry
	depth int
	path  [MaxLevel + 1]step // the last one is of node

	touched byte // of fb.Node.Touch
}

// step is a node on the path of a cursor, and the gap where the path continues. Each look-up of a
// first key makes a path, so a step is kept as small as possible.
type step struct {
	node *fb.Node
	gap  int
}

type side int8

const (
	nowhere side = iota
	beforeFirst
	behindLast
)

// Cursor returns a cursor without a position: Next moves it to the first entry, Prev to the last.
func (t Tree) Cursor() *Cursor {
	c := &Cursor{t: t}
	c.leave(nowhere)
	return c
}

// Entry returns the entry at the cursor, the zero Entry when there is none. Key and Value are
// borrowed from the node and must not be changed; they stay valid when the cursor moves.
func (c *Cursor) Entry() fb.Entry {
	if c.node == nil {
		return fb.Entry{}
	}
	return c.node.Entry(c.i)
}

// Key returns the key of the entry at the cursor, borrowed as in Entry; nil when there is none.
func (c *Cursor) Key() []byte {
	if c.node == nil {
		return nil
	}
	return c.node.Key(c.i)
}

// Value returns the value of the entry at the cursor, borrowed as in Entry, and whether it is
// inline; nil and false when it is not inline or there is no entry. Key and Value are faster than
// Entry, which copies the whole entry.
func (c *Cursor) Value() (value []byte, inline bool) {
	if c.node == nil {
		return nil, false
	}
	return c.node.Value(c.i)
}

// Run returns the node of the cursor and its entries, from first to last, that Prev and Next reach
// from entry i without reading another node; i is the cursor's entry. A caller that iterates over
// these entries itself then moves the cursor with Jump. The node is nil when the cursor is at no
// entry.
func (c *Cursor) Run() (n *fb.Node, first, i, last int) {
	if c.node == nil {
		return nil, 0, 0, -1
	}
	return c.node, min(c.first, c.i), c.i, max(c.last, c.i)
}

// Jump moves to entry i of the cursor's node, which must be in the range of Run.
func (c *Cursor) Jump(i int) {
	if _, first, _, last := c.Run(); i >= first && i <= last {
		c.i = i
	}
}

// Valid reports whether the cursor is at an entry.
func (c *Cursor) Valid() bool { return c.node != nil }

// Next moves to the next entry. After the last one it does not move.
func (c *Cursor) Next(ctx context.Context) (bool, error) {
	if c.i < c.last {
		c.i++
		return true, nil
	}
	return c.move(ctx, false)
}

// Prev moves to the previous entry. Before the first one it does not move.
func (c *Cursor) Prev(ctx context.Context) (bool, error) {
	if c.i > c.first {
		c.i--
		return true, nil
	}
	return c.move(ctx, true)
}

// First moves to the first entry.
func (c *Cursor) First(ctx context.Context) (bool, error) { return c.end(ctx, false) }

// Last moves to the last entry.
func (c *Cursor) Last(ctx context.Context) (bool, error) { return c.end(ctx, true) }

// Seek moves to the first entry whose key is not below key; past the last one if there is none.
func (c *Cursor) Seek(ctx context.Context, key []byte) (bool, error) { return c.seek(ctx, key, false) }

// SeekBefore moves to the last entry whose key is below key; before the first one if there is none.
func (c *Cursor) SeekBefore(ctx context.Context, key []byte) (bool, error) {
	return c.seek(ctx, key, true)
}

// end moves to the first entry, or, with back, to the last one.
func (c *Cursor) end(ctx context.Context, back bool) (bool, error) {
	n, err := c.root(ctx, edge(back))
	if n == nil {
		return false, err
	}
	return c.descend(ctx, n, back)
}

// seek moves to the first entry whose key is not below key, or, with back, to the one before.
func (c *Cursor) seek(ctx context.Context, key []byte, back bool) (bool, error) {
	n, err := c.root(ctx, edge(back))
	for n != nil {
		i, found := n.Search(key)
		p := c.push(n, i)
		if found && !back {
			return c.stand(i), nil
		}
		if n, err = c.child(ctx, p); found && n != nil {
			return c.descend(ctx, n, true)
		}
	}
	if err != nil {
		return false, err
	}
	return c.ascend(ctx, back)
}

// edge returns the side of the tree at which an unsuccessful move ends.
func edge(back bool) side {
	if back {
		return beforeFirst
	}
	return behindLast
}

// leave moves the cursor to no entry.
func (c *Cursor) leave(s side) {
	c.node, c.depth, c.side = nil, 0, s
	c.i, c.first, c.last = 0, math.MaxInt, math.MinInt
}

// root leaves and returns the root, nil when the tree is empty. The cursor is then at the given
// side.
func (c *Cursor) root(ctx context.Context, empty side) (*fb.Node, error) {
	c.leave(empty)
	if c.t.Root == EmptyRoot {
		return nil, ctx.Err()
	}
	s := subtree{digest: c.t.Root, level: anyLevel}
	n, err := s.load(ctx, c.t.Source)
	if err != nil {
		c.leave(nowhere)
	}
	return n, err
}

// push appends a node to the path.
func (c *Cursor) push(n *fb.Node, gap int) *step {
	p := &c.path[c.depth]
	p.node, p.gap = n, gap
	c.depth++
	return p
}

// child returns the node in the gap of the last step of the path, nil if there is none.
func (c *Cursor) child(ctx context.Context, p *step) (*fb.Node, error) {
	if p.node.NumChildren() == 0 {
		return nil, nil
	}
	n, err := c.t.below(ctx, p.node, p.gap, c.lo(), c.hi())
	if err != nil {
		c.leave(nowhere)
	} else if n != nil && c.node != nil { // the cursor moves on from an entry: the whole node will be read
		c.touched |= n.Touch(p.node.Linked(p.gap + 1))
	}
	return n, err
}

// lo returns the lower bound at the end of the path.
func (c *Cursor) lo() bound {
	for d := c.depth - 1; d >= 0; d-- {
		if p := &c.path[d]; p.gap > 0 {
			return bound{p.node, p.gap - 1}
		}
	}
	return bound{}
}

// hi returns the upper bound at the end of the path.
func (c *Cursor) hi() bound {
	for d := c.depth - 1; d >= 0; d-- {
		if p := &c.path[d]; p.gap < p.node.Len() {
			return bound{p.node, p.gap}
		}
	}
	return bound{}
}

// stand moves the cursor to entry i of the last node of the path.
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
func (c *Cursor) descend(ctx context.Context, n *fb.Node, last bool) (bool, error) {
	for {
		gap := 0
		if last {
			gap = n.Len()
		}
		child, err := c.child(ctx, c.push(n, gap))
		switch {
		case err != nil:
			return false, err
		case child != nil:
			n = child
		case last:
			return c.stand(gap - 1), nil
		default:
			return c.stand(0), nil
		}
	}
}

// move moves to the next or previous entry, across the edge of a node.
func (c *Cursor) move(ctx context.Context, back bool) (bool, error) {
	if c.node == nil {
		if c.side == edge(back) {
			return false, nil
		}
		return c.end(ctx, back)
	}
	p := &c.path[c.depth-1]
	if p.gap = c.i; !back {
		p.gap++
	}
	n, err := c.child(ctx, p)
	if err != nil {
		return false, err
	}
	if n != nil {
		return c.descend(ctx, n, back)
	}
	return c.ascend(ctx, back)
}

// ascend goes up to the first entry after the gaps of the path, or to the last one before them.
func (c *Cursor) ascend(ctx context.Context, back bool) (bool, error) {
	for ; c.depth > 0; c.depth-- {
		switch p := &c.path[c.depth-1]; {
		case back && p.gap > 0:
			return c.stand(p.gap - 1), nil
		case !back && p.gap < p.node.Len():
			return c.stand(p.gap), nil
		}
	}
	c.leave(edge(back))
	return false, ctx.Err()
}
