package storage

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage/index"
)

// A commit may be treeless though the root of its tree is in the page. Either it was received
// without a tree, and another commit has the same tree; or repair found damaged nodes, which are
// holes in the tree. The rest of such a tree stays. Once any commit has stored the lost nodes
// again, the tree is whole.

// hasTreelessRow reports whether the rows mark a commit as treeless. Only repair records holes, and
// its records are never pending in an open page.
func (s *Store) hasTreelessRow(id commit.ID) (treeless bool, err error) {
	err = s.view(func(tx index.Tx) error {
		treeless = hasKey(tx.Bucket(bucketTreeless), id[:])
		return nil
	})
	return treeless, err
}

// maxWhole bounds Store.whole.
const maxWhole = 1 << 12

// TreeWhole reports whether the page has all nodes of a commit's tree. Unlike TreeHeld it examines
// each node, unless an earlier call has found the tree whole. Errors match base.ErrCorrupt or
// base.ErrClosed, or are those of the disk or of ctx.
func (s *Store) TreeWhole(ctx context.Context, c *commit.Commit) (bool, error) {
	s.mu.RLock()
	known := s.whole[c.Root]
	s.mu.RUnlock()
	if known {
		return true, nil
	}
	whole, err := s.nodesHeld(ctx, c.Root, map[object.Digest]bool{})
	if err != nil || !whole {
		return false, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.whole == nil || len(s.whole) == maxWhole {
		s.whole = map[object.Digest]bool{}
	}
	s.whole[c.Root] = true
	return true, nil
}

// nodesHeld reports whether the page has a node and all below it. It skips the nodes in seen.
func (s *Store) nodesHeld(ctx context.Context, d object.Digest, seen map[object.Digest]bool) (bool, error) {
	if d == btree.EmptyRoot || seen[d] {
		return true, nil
	}
	held, err := s.has(&d)
	if err != nil || !held {
		return false, err
	}
	n, err := s.Node(ctx, d)
	if isMissingPiece(err) { // it was deleted meanwhile
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for i := range n.NumChildren() {
		if held, err := s.nodesHeld(ctx, n.Child(i).Digest, seen); err != nil || !held {
			return false, err
		}
	}
	seen[d] = true
	return true, nil
}

// Holes returns the commits whose trees lack a part, as repair has found (see Salvage). A commit
// whose tree has become whole again, since another commit has brought the nodes, gets its normal
// status, unless the page is open for reading. It folds first. Errors match base.ErrCorrupt or
// base.ErrClosed, or are those of the disk or of ctx.
func (s *Store) Holes(ctx context.Context) (holes []commit.ID, err error) {
	var ids, whole []commit.ID
	err = s.eachRow(ctx, bucketTreeless, func(_ index.Tx, k, v []byte) error {
		if len(k) != commit.IDSize {
			return badRow(bucketTreeless, hex.EncodeToString(k), "bad key")
		}
		if !bytes.Equal(v, aheadRow) { // which only its descendants can change
			ids = append(ids, commit.ID(k))
		}
		return nil
	}, nil)
	slices.SortFunc(ids, commit.ID.Compare)
	for _, id := range slices.Compact(ids) {
		absent, mended := false, false
		if err == nil {
			absent, mended, err = s.mendedTree(ctx, id)
		}
		switch {
		case err != nil:
			return nil, fmt.Errorf("look for incomplete trees: %w", err)
		case mended:
			whole = append(whole, id)
		case !absent:
			holes = append(holes, id)
		}
	}
	if err == nil && len(whole) > 0 && s.foldable() {
		err = s.submitOps(ctx, statusOps(nil, statusTree, whole), submission{})
	}
	if err != nil {
		return nil, fmt.Errorf("look for incomplete trees: %w", err)
	}
	return holes, nil
}

// mendedTree reports whether the tree of a treeless commit, or its root, is absent, and whether the
// tree is whole.
func (s *Store) mendedTree(ctx context.Context, id commit.ID) (absent, whole bool, err error) {
	c, err := s.Commit(ctx, id)
	if err != nil {
		return false, false, err
	}
	if c.Root != btree.EmptyRoot {
		if held, err := s.has(&c.Root); err != nil || !held {
			return true, false, err
		}
	}
	whole, err = s.TreeWhole(ctx, c)
	return false, whole, err
}
