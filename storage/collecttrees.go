package storage

import (
	"bytes"
	"context"
	"errors"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/storage/index"
)

// maxWhole bounds the commits that a collector knows to have their trees though they are said to be
// treeless. More count as treeless.
const maxWhole = 4096

// trees is what a collector knows of treeless commits. Nobody takes note when a commit that came
// without its tree gets it because another one brings the same nodes, as one does that takes a
// change back: such a commit would keep all garbage that the bucket has, or may have, for good.
type trees struct {
	whole  map[commit.ID]bool // whose nodes are all here: they stay as long as the commit does, which refers to the root
	hollow commit.ID          // one that has its root and not all else, which repair has found: it is looked at once
}

// lookAtTrees looks for treeless commits whose trees are here, up to the first one whose is not.
// The caller does not hold the fold turn, and has folded.
func (c *Collector) lookAtTrees(ctx context.Context) error {
	c.trees.whole = nil
	whole := map[commit.ID]bool{}
	for last := []byte(nil); len(whole) < maxWhole; {
		err := c.s.view(func(tx index.Tx) error {
			rows := tx.Bucket(bucketTreeless).Cursor()
			k, _ := rows.Seek(last)
			if last != nil && bytes.Equal(k, last) {
				k, _ = rows.Next()
			}
			last = bytes.Clone(k)
			return nil
		})
		if err != nil {
			return err
		}
		if len(last) != commit.IDSize || commit.ID(last) == c.trees.hollow {
			break
		}
		absent, all, err := c.s.mendedTree(ctx, commit.ID(last))
		if err != nil && !errors.Is(err, base.ErrCorrupt) && !errors.Is(err, base.ErrGone) && !errors.Is(err, base.ErrNotFound) {
			return err
		}
		if err != nil || !all {
			if !absent {
				c.trees.hollow = commit.ID(last)
			}
			break
		}
		whole[commit.ID(last)] = true
	}
	c.trees.whole = whole
	return nil
}

// here reports whether all commits have their trees.
func (t *trees) here(tx index.Tx) bool {
	for k := range rowsOf(tx, bucketTreeless) {
		if len(k) != commit.IDSize || !t.whole[commit.ID(k)] {
			return false
		}
	}
	return true
}
