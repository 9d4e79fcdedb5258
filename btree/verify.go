package btree

import (
	"context"
	"fmt"

	"github.com/ledgerd/ledger/object"

	fb "github.com/ledgerd/ledger/flatbuffers"
)

// Verify reads a whole tree, parents first and in key order, and verifies every node, its level and
// its key range against its parent. If visit is not nil, Verify calls it for each node before its
// children; visit may skip the children, for example of a known node. An error of visit ends the
// walk and is returned unchanged. Empty trees have no node. Errors: those of the Source,
// *base.CorruptError that names the node, that of ctx.
func Verify(ctx context.Context, t Tree, visit func(n *fb.Node, d object.Digest) (descend bool, err error)) error {
	if t.Root == EmptyRoot {
		return ctx.Err()
	}
	return verify(ctx, t, subtree{digest: t.Root, level: anyLevel}, visit)
}

// verify recurses once for each level: children are lower than their parent, or an error.
func verify(ctx context.Context, t Tree, s subtree, visit func(n *fb.Node, d object.Digest) (bool, error)) error {
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
	if visit != nil {
		if descend, err := visit(opened.node, s.digest); err != nil || !descend {
			return err
		}
	}
	for i := range opened.node.NumChildren() {
		c, ok := opened.child(opened.node.Child(i).Gap)
		if !ok {
			return s.corrupt("a child without a gap")
		}
		if err := verify(ctx, t, c, visit); err != nil {
			return err
		}
	}
	return nil
}
