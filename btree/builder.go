package btree

import (
	"context"
	"fmt"
	"math/bits"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/object"

	fb "github.com/ledgerd/ledger/flatbuffers"
)

// builder makes a tree from its items in key order: entries, and unchanged subtrees of an old tree.
//
// The right edge of the growing tree is open: at most one node for each level. An entry of level L
// closes everything open below L, and the result becomes the child before the entry; since later
// items follow in key order, a closed node is final. A subtree waits in pending until the next item
// is known. An entry at or below the subtree's level, or another subtree of at least its level,
// must merge with it, and opens it along its right edge. A subtree that meets lower open content is
// opened along its left edge. So the builder reads only the seams.
type builder struct {
	src  Source // for seams; nil when there are no subtrees
	sink Sink
	hash levelHash

	nodes [MaxLevel + 1]*openNode // nil: never used
	used  uint32                  // bit l: nodes[l] has entries
	// pending follows everything else, in the last gap of the lowest open node, whose level is
	// higher.
	pending    subtree
	hasPending bool
}

// openNode is a node to which entries are still being added.
type openNode struct {
	entries  []fb.Entry
	children []fb.Child
	arena    []byte // keys and values of the entries that come from changes
	size     int    // bytes of all keys and inline values
	// Entries are copied from old nodes in runs. best is the node with the longest run so far.
	run, best origin
	node      fb.Node // its view when it is closed
}

// origin counts the entries copied from an old node.
type origin struct {
	node   *fb.Node
	digest object.Digest
	count  int
}

// Larger buffers are not kept for the next node: the arena in bytes, the entries in number.
const (
	maxArena   = 1 << 20
	maxEntries = 4096
)

// addChange adds the entry of a change. from is the old node that held an entry of that key, or
// nil. The entry is copied.
func (b *builder) addChange(ctx context.Context, level int, e *fb.Entry, from *span) error {
	if err := b.closeBelow(ctx, level); err != nil {
		return err
	}
	n := b.node(level)
	at := len(n.arena)
	n.arena = append(n.arena, e.Key...)
	mid := len(n.arena)
	n.entries = append(n.entries, fb.Entry{
		Key: n.arena[at:mid:mid], Inline: e.Inline, Digest: e.Digest, Size: e.Size, Priority: e.Priority,
	})
	if e.Inline {
		n.arena = append(n.arena, e.Value...)
		n.entries[len(n.entries)-1].Value = n.arena[mid:len(n.arena):len(n.arena)]
	}
	n.size += len(n.arena) - at
	if from != nil {
		n.count(from, 1)
	}
	return n.checkSize()
}

// addItems adds the items from up to to, exclusive, of an old node: item 2g is the child in gap g,
// item 2i+1 is entry i.
func (b *builder) addItems(ctx context.Context, s *span, from, to int) error {
	if from >= to {
		return nil
	}
	if from&1 == 0 {
		if c, ok := s.child(from / 2); ok {
			if err := b.addSubtree(ctx, c); err != nil {
				return err
			}
		}
		if from++; from == to {
			return nil
		}
	}
	level := s.node.Level()
	if err := b.closeBelow(ctx, level); err != nil {
		return err
	}
	n := b.node(level)
	first, last := from/2, to/2 // entries first to last-1
	shift := len(n.entries) - first
	for i := first; i < last; i++ {
		n.entries = append(n.entries, s.node.Entry(i))
		e := &n.entries[len(n.entries)-1]
		n.size += len(e.Key) + len(e.Value)
	}
	n.count(s, last-first)
	b.used |= 1 << level
	for g := first + 1; g < last; g++ {
		if c, ok := s.node.ChildAt(g); ok {
			c.Gap += shift
			n.children = append(n.children, c)
		}
	}
	if err := n.checkSize(); err != nil {
		return err
	}
	if to&1 == 0 {
		return nil
	}
	// to is 2*last+1: the child after the last entry belongs to the items.
	if c, ok := s.child(last); ok {
		return b.addSubtree(ctx, c)
	}
	return nil
}

func (n *openNode) count(s *span, entries int) {
	if n.run.node != s.node {
		n.run = origin{node: s.node, digest: s.digest}
	}
	n.run.count += entries
	if n.run.count > n.best.count {
		n.best = n.run
	}
}

func (n *openNode) checkSize() error {
	if n.size > limits.MaxNodeBytes {
		return fmt.Errorf("build tree node of more than %d bytes: %w", limits.MaxNodeBytes, base.ErrTooLarge)
	}
	return nil
}

// addSubtree adds a subtree of the old tree.
func (b *builder) addSubtree(ctx context.Context, s subtree) error {
	for b.hasPending && b.pending.level >= s.level {
		if err := b.openPending(ctx); err != nil {
			return err
		}
	}
	if !b.hasPending && b.used&lowBits(s.level+1) == 0 {
		b.pending, b.hasPending = s, true
		return nil
	}
	return b.addOpened(ctx, &s)
}

// openPending makes the pending subtree's root an open node, and its last child pending.
func (b *builder) openPending(ctx context.Context) error {
	b.hasPending = false
	return b.addOpened(ctx, &b.pending)
}

// addOpened adds the items of a subtree of the old tree.
func (b *builder) addOpened(ctx context.Context, s *subtree) error {
	old, err := s.open(ctx, b.src)
	if err != nil {
		return err
	}
	return b.addItems(ctx, &old, 0, 2*old.node.Len()+1)
}

// closeBelow prepares nodes[level] for its next entry: everything open or pending below is closed,
// and becomes the child in its last gap.
func (b *builder) closeBelow(ctx context.Context, level int) error {
	if b.hasPending || b.used&lowBits(level) != 0 {
		for b.hasPending && b.pending.level >= level {
			if err := b.openPending(ctx); err != nil {
				return err
			}
		}
		c, ok, err := b.collapse(ctx, level)
		if err != nil {
			return err
		}
		if ok {
			b.node(level).add(c)
		}
	}
	b.used |= 1 << level
	return nil
}

// node returns the open node of a level.
func (b *builder) node(level int) *openNode {
	if b.nodes[level] == nil {
		b.nodes[level] = new(openNode)
	}
	return b.nodes[level]
}

// add adds a child in the last gap.
func (n *openNode) add(c fb.Child) {
	c.Gap = len(n.entries)
	n.children = append(n.children, c)
}

// collapse closes everything open or pending below level and returns the resulting subtree, if any.
func (b *builder) collapse(ctx context.Context, level int) (c fb.Child, ok bool, err error) {
	if b.hasPending {
		c, ok = fb.Child{Level: b.pending.level, Digest: b.pending.digest}, true
		b.hasPending = false
	}
	for low := b.used & lowBits(level); low != 0; low &= low - 1 {
		l := bits.TrailingZeros32(low)
		n := b.nodes[l]
		if ok {
			n.add(c)
		}
		c = fb.Child{Level: l}
		if c.Digest, err = b.put(ctx, l, n); err != nil {
			return c, false, err
		}
		n.reset()
		b.used &^= 1 << l
		ok = true
	}
	return c, ok, nil
}

// put encodes a node, and passes it to the sink unless the old tree has it.
func (b *builder) put(ctx context.Context, level int, n *openNode) (d object.Digest, err error) {
	if err := n.node.Rebuild(level, n.entries, n.children); err != nil {
		return d, orCorrupt(n.best.digest, err)
	}
	content := n.node.Bytes()
	if o := &n.best; o.count == len(n.entries) && string(o.node.Bytes()) == string(content) {
		return o.digest, nil
	}
	nn := NewNode{Digest: object.Sum(object.Node, content), Content: content, View: &n.node, Base: n.best.digest}
	if err := b.sink.PutNode(ctx, nn); err != nil {
		return d, fmt.Errorf("put tree node %s: %w", nn.Digest, err)
	}
	return nn.Digest, nil
}

// reset forgets everything but the buffers.
func (n *openNode) reset() {
	clear(n.entries) // they pin old nodes
	n.entries, n.children, n.arena = n.entries[:0], n.children[:0], n.arena[:0]
	if cap(n.arena) > maxArena || cap(n.entries) > maxEntries {
		n.entries, n.children, n.arena, n.node = nil, nil, nil, fb.Node{}
	}
	n.size, n.run, n.best = 0, origin{}, origin{}
}

// release forgets everything but the buffers.
func (b *builder) release() {
	b.src, b.sink, b.hash = nil, nil, levelHash{}
	b.used, b.pending, b.hasPending = 0, subtree{}, false
	for _, n := range b.nodes {
		if n != nil {
			n.reset()
		}
	}
}

// finish closes everything and returns the root.
func (b *builder) finish(ctx context.Context) (object.Digest, error) {
	c, ok, err := b.collapse(ctx, MaxLevel+1)
	if err != nil {
		return object.Digest{}, err
	}
	if !ok {
		return EmptyRoot, nil
	}
	return c.Digest, nil
}

func lowBits(n int) uint32 { return 1<<n - 1 }
