package btree

import (
	"bytes"
	"context"

	"github.com/ledgerd/ledger/object"

	fb "github.com/ledgerd/ledger/flatbuffers"
)

// walker iterates over the items of a tree in key order: entries, and subtrees that it opens only
// on request.
type walker struct {
	src   Source
	from  []byte // lower entries are left out
	root  subtree
	atTop bool                // the root is the head
	path  [MaxLevel + 1]place // levels decrease strictly along it
	depth int
}

// place is an opened node of which the items before next have been handled.
type place struct {
	span
	next int
}

// headKind is the kind of a walker's next item.
type headKind uint8

const (
	headEnd headKind = iota
	headEntry
	headSubtree
)

// head is the next item of a walker.
type head struct {
	kind headKind
	sub  subtree
	key  []byte
}

// start reads the root to find its level, and makes it the head.
func (w *walker) start(ctx context.Context, t Tree, from []byte) error {
	w.src, w.from, w.depth = t.Source, from, 0
	if w.atTop = t.Root != EmptyRoot; !w.atTop {
		return nil
	}
	w.root = subtree{digest: t.Root, level: anyLevel}
	n, err := w.root.load(ctx, t.Source)
	if err != nil {
		return err
	}
	w.root.level = n.Level()
	return nil
}

// copyTo makes c a walker at the same position.
func (w *walker) copyTo(c *walker) {
	c.src, c.from, c.root, c.atTop, c.depth = w.src, w.from, w.root, w.atTop, w.depth
	copy(c.path[:w.depth], w.path[:w.depth])
}

// head returns the next item.
func (w *walker) head() head {
	if w.atTop {
		return head{kind: headSubtree, sub: w.root}
	}
	for w.depth > 0 {
		p := &w.path[w.depth-1]
		if p.next&1 == 0 {
			if s, ok := p.child(p.next / 2); ok {
				return head{kind: headSubtree, sub: s}
			}
			p.next++
		}
		if i := p.next / 2; i < p.node.Len() {
			return head{kind: headEntry, key: p.node.Key(i)}
		}
		w.depth--
	}
	return head{kind: headEnd}
}

// entry returns the entry that is the head.
func (w *walker) entry() fb.Entry {
	p := &w.path[w.depth-1]
	return p.node.Entry(p.next / 2)
}

// skip moves past the head.
func (w *walker) skip() {
	if w.atTop {
		w.atTop = false
		return
	}
	w.path[w.depth-1].next++
}

// open replaces the subtree s, which is the head, by its items.
func (w *walker) open(ctx context.Context, s *subtree) error {
	opened, err := s.open(ctx, w.src)
	if err != nil {
		return err
	}
	w.skip()
	p := &w.path[w.depth]
	*p = place{span: opened}
	if w.from != nil && (s.lo == nil || bytes.Compare(s.lo, w.from) < 0) {
		i, found := opened.node.Search(w.from)
		p.next = 2 * i
		if found {
			p.next++
		}
	}
	w.depth++
	return nil
}

// above reports whether bound a is above bound b; nil is the end of the keys.
func above(a, b []byte) bool {
	if a == nil || b == nil {
		return a == nil && b != nil
	}
	return bytes.Compare(a, b) > 0
}

// verdict caches whether the other tree has a subtree.
type verdict struct {
	digest object.Digest
	shared bool
}
