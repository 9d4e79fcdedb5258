package btree

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
)

// Verify reads a whole tree, parents first and in key order, and verifies every node, its level and
// its key range against its parent. If visit is not nil, Verify calls it for each node; children
// verifies those of the node, and visit may skip that, for example for a known node. After damage
// Verify goes on to the other children of the node, and returns the first damage in the end. Any
// other error ends the walk. Empty trees have no node. Errors: those of the Source and of visit,
// *base.CorruptError that names the node, that of ctx.
func Verify(ctx context.Context, t Tree, visit Visit) error {
	if t.Root == EmptyRoot {
		return ctx.Err()
	}
	if visit == nil {
		visit = func(_ *fb.Node, _ object.Digest, children func() error) error { return children() }
	}
	return verify(ctx, t, subtree{digest: t.Root, level: anyLevel}, visit)
}

// Visit is called by Verify for a node. Its error is that of the node.
type Visit func(n *fb.Node, d object.Digest, children func() error) error

// verify recurses once for each level: children are lower than their parent, or an error.
func verify(ctx context.Context, t Tree, s subtree, visit Visit) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	opened, err := s.open(ctx, t.Source)
	if err != nil {
		return err
	}
	if err := VerifyNode(t.Page, opened.node); err != nil {
		return fmt.Errorf("verify tree node %s: %w", s.digest, err)
	}
	return visit(opened.node, s.digest, func() (first error) {
		for i := range opened.node.NumChildren() {
			var err error
			if sub, ok := opened.child(opened.node.Child(i).Gap); ok {
				err = verify(ctx, t, sub, visit)
			} else {
				err = s.corrupt("a child without a gap")
			}
			if err != nil && !errors.Is(err, base.ErrCorrupt) {
				return err
			}
			first = cmp.Or(first, err)
		}
		return first
	})
}
