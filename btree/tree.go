package btree

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"

	fb "github.com/ledgerd/ledger/flatbuffers"
)

// Source reads the nodes of trees. It must be safe for all concurrent callers of these trees.
type Source interface {
	// Node returns the verified view of a node: its bytes have the digest, and fb.ParseNode and
	// VerifyNode have accepted them. The view is shared and immutable. Node is never called for
	// EmptyRoot.
	Node(ctx context.Context, d object.Digest) (*fb.Node, error)
}

// Sink receives the nodes that Apply and Build make.
type Sink interface {
	// PutNode receives a new node. n.Content and n.View are valid only during the call; see
	// fb.Node.KeepIn.
	PutNode(ctx context.Context, n NewNode) error
	// PutPiece receives a piece of a value. content is valid only during the call. The sink may
	// have the piece already.
	PutPiece(ctx context.Context, d object.Digest, content []byte) error
}

// NewNode is a node of a new tree that the old one does not hold.
type NewNode struct {
	// Digest names the node.
	Digest object.Digest
	// Content is the encoding of the node.
	Content []byte
	// View is the view of Content.
	View *fb.Node
	// Base names the node of the old tree, at the same level, that shares most entries with it;
	// zero when no entry comes from an old node.
	Base object.Digest
}

// Tree is a version of a page's content. It is a value; copies are independent.
type Tree struct {
	// Page is the id of the page, which keys the level hash.
	Page [16]byte
	// Source reads the nodes.
	Source Source
	// Root names the root node, EmptyRoot for the empty tree.
	Root object.Digest
}

// Get returns the entry of key, and whether there is one. Key and Value of the entry are borrowed
// from the node and must not be changed. Get does not allocate, and blocks only in the Source.
// Errors: those of the Source, *base.CorruptError.
func (t Tree) Get(ctx context.Context, key []byte) (fb.Entry, bool, error) {
	n, i, err := t.Find(ctx, key)
	if n == nil {
		return fb.Entry{}, false, err
	}
	return n.Entry(i), true, nil
}

// Find is Get for a caller that needs a part of the entry only. It returns the node with the entry,
// and the entry's index there; a nil node if there is no such entry.
func (t Tree) Find(ctx context.Context, key []byte) (*fb.Node, int, error) {
	at, found, err := t.search(ctx, key)
	if !found {
		return nil, 0, err
	}
	return at.node, at.i, nil
}

// Seek returns the first key that is not below key, borrowed from its node, nil if there is none.
// It finds the key of Cursor.Seek without allocating. It blocks only in the Source. Errors: as for
// Get.
func (t Tree) Seek(ctx context.Context, key []byte) ([]byte, error) {
	at, _, err := t.search(ctx, key)
	return at.key(), err
}

// search returns the first entry whose key is not below key, and whether its key is key. The bound
// has no node when there is no such entry.
func (t Tree) search(ctx context.Context, key []byte) (at bound, found bool, err error) {
	if t.Root == EmptyRoot {
		return bound{}, false, nil
	}
	root := subtree{digest: t.Root, level: anyLevel}
	n, err := root.load(ctx, t.Source)
	if err != nil {
		return bound{}, false, err
	}
	var lo, hi bound
	for {
		i, found := n.Search(key)
		if found {
			return bound{n, i}, true, nil
		}
		if i > 0 {
			lo = bound{n, i - 1}
		}
		if i < n.Len() {
			hi = bound{n, i}
		}
		child, err := t.below(ctx, n, i, lo, hi)
		if err != nil {
			return bound{}, false, err
		}
		if child == nil {
			return hi, false, nil
		}
		n = child
	}
}

// below returns the child in a gap, nil if there is none. For an inner gap, the child's keys are
// compared with two keys of the parent once, when the child is linked: reading its first and last
// key costs two cache misses. The bounds of an outer gap belong to higher nodes, and are verified
// each time.
func (t Tree) below(ctx context.Context, n *fb.Node, gap int, lo, hi bound) (*fb.Node, error) {
	child := n.Linked(gap)
	if child != nil && (gap > 0 || lo.surelyBelow(child)) && (gap < n.Len() || hi.surelyAbove(child)) {
		child.Use()
		return child, nil
	}
	c, ok := n.ChildAt(gap)
	if !ok {
		return nil, nil
	}
	s := subtree{digest: c.Digest, level: c.Level, lo: lo.key(), hi: hi.key()}
	child, err := s.load(ctx, t.Source)
	if err != nil {
		return nil, err
	}
	n.Link(gap, child)
	return child, nil
}

// bound is a key of a node, read only where it is needed. Without a node there is no bound.
type bound struct {
	node *fb.Node
	i    int
}

func (b bound) key() []byte {
	if b.node == nil {
		return nil
	}
	return b.node.Key(b.i)
}

// surelyBelow reports whether the heads of keys suffice to prove that the bound is below all keys
// of a node.
func (b bound) surelyBelow(n *fb.Node) bool { return b.node == nil || b.node.Head(b.i) < n.Head(0) }

// surelyAbove is surelyBelow for an upper bound.
func (b bound) surelyAbove(n *fb.Node) bool {
	return b.node == nil || b.node.Head(b.i) > n.Head(n.Len()-1)
}

// anyLevel is the unknown level of a subtree: that of a root.
const anyLevel = -1

// subtree is a node, read or not, with its level and bounds as its parent states them.
type subtree struct {
	digest object.Digest
	level  int
	// All its keys lie between lo and hi, both exclusive; nil is no bound.
	lo, hi []byte
}

// load reads the node and verifies it against its level and bounds.
func (s *subtree) load(ctx context.Context, src Source) (*fb.Node, error) {
	n, err := src.Node(ctx, s.digest)
	if err != nil {
		return nil, fmt.Errorf("read tree node %s: %w", s.digest, err)
	}
	if err := s.verify(n); err != nil {
		return nil, err
	}
	return n, nil
}

// verify verifies the node against its level and bounds.
func (s *subtree) verify(n *fb.Node) error {
	switch {
	case n.Len() == 0:
		return s.corrupt("no entries")
	case s.level == anyLevel && n.Level() > MaxLevel:
		return s.corrupt(fmt.Sprintf("level %d of a root", n.Level()))
	case s.level != anyLevel && n.Level() != s.level:
		return s.corrupt(fmt.Sprintf("level %d where its parent says %d", n.Level(), s.level))
	case s.lo != nil && bytes.Compare(n.Key(0), s.lo) <= 0, s.hi != nil && bytes.Compare(n.Key(n.Len()-1), s.hi) >= 0:
		return s.corrupt("keys outside the gap of its parent")
	}
	return nil
}

func (s *subtree) corrupt(got string) error {
	return &base.CorruptError{Where: "tree node", Key: s.digest.String(), Got: got}
}

// span is a node that was read, with its bounds.
type span struct {
	node   *fb.Node
	digest object.Digest
	lo, hi []byte
}

func (s *subtree) open(ctx context.Context, src Source) (span, error) {
	n, err := s.load(ctx, src)
	if err != nil {
		return span{}, err
	}
	return span{node: n, digest: s.digest, lo: s.lo, hi: s.hi}, nil
}

// child returns the child in a gap, and whether there is one.
func (s *span) child(gap int) (subtree, bool) {
	c, ok := s.node.ChildAt(gap)
	if !ok {
		return subtree{}, false
	}
	return subtree{digest: c.Digest, level: c.Level, lo: s.before(gap), hi: s.behind(gap)}, true
}

// before returns the lower bound of a gap, nil if there is none.
func (s *span) before(gap int) []byte {
	if gap == 0 {
		return s.lo
	}
	return s.node.Key(gap - 1)
}

// behind returns the upper bound of a gap, nil if there is none.
func (s *span) behind(gap int) []byte {
	if gap == s.node.Len() {
		return s.hi
	}
	return s.node.Key(gap)
}

// orCorrupt turns an encoder's error on data of a Source into one that names the node.
func orCorrupt(d object.Digest, err error) error {
	if errors.Is(err, base.ErrInvalid) {
		return &base.CorruptError{Where: "tree node", Key: d.String(), Err: err}
	}
	return err
}
