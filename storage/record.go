package storage

import (
	"fmt"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage/segment"
)

// The kinds of log records. The numbers are part of the format (docs/format/records.md) and
// append-only.
//
//	kind       payload
//	piece    digest 33, content: a piece of a value
//	node     digest 33, content: a tree node, written whole
//	delta    digest 33, digest of base 33, depth 1, script: a tree node as difference
//	         (btree.AppendDelta)
//	commit   origin 1 (see the origins), FlatBuffers commit
//	tag      1, commit id 32, name; or 0, name: the tag is gone
//	explain  merge commit id 32, digest 33 of the root node of the tree of the merge's decisions
//
// The kinds of sync are in syncrecord.go, those of deleting in collectrecord.go, those of
// checkpoints in checkpoint.go.
const (
	recPiece   = 1
	recNode    = 3
	recDelta   = 4
	recCommit  = 6
	recTag     = 8
	recExplain = 9
)

// The origins of a commit.
const (
	originLocal    = 0 // made on this device: not in the bucket yet
	originBucket   = 1 // from the bucket, with its tree
	originTreeless = 2 // from the bucket; the tree need not be held
	originAhead    = 3 // as originTreeless, received ahead of its descendants: it changes no heads
)

// maxDeltaDepth is the greatest number of differences between a node and one that is stored whole.
const maxDeltaDepth = 8

// maxReadDepth bounds the differences that a read follows for one node. It exceeds maxDeltaDepth
// because two journals may write the same node at the same time: the stored node may then be deeper
// than the other journal counted for its differences to it.
const maxReadDepth = 4 * maxDeltaDepth

// op is one record of the log as the index and the overlay need it.
type op struct {
	kind   byte
	depth  uint8          // of a delta
	origin byte           // of a commit
	bare   bool           // of a node: it refers to nothing, or the index has its references
	digest object.Digest  // of the piece; of an explanation the root
	ord    uint32         // index of the record in its batch
	number uint64         // of its batch; 0 while the batch is not durable
	base   *object.Digest // of a delta
	place  segment.Place
	commit *commit.Commit
	tag    *TagChange
	merge  *commit.ID // that is explained
	sync   *syncOp    // of the kinds of sync and of deleting
	next   *op        // in the chain of the overlay, which guards it
	// content is the content of the record while its batch is not durable: the content of a piece
	// or whole node, or the script of a delta.
	content []byte
}

// stored reports whether o puts a piece into the log.
func (o *op) stored() bool {
	return o.kind == recPiece || o.kind == recNode || o.kind == recDelta
}

// pieceWeight is the weight of a piece of a value when the store decides whether to fold. Its row
// may lie anywhere in the index, so that a transaction keeps a whole leaf in memory for it. Rows of
// commits cluster.
const pieceWeight = 6

// historyWeight is the weight of a commit that is pruned, or received as part of history. Many of
// these arrive together, each has rows anywhere in several families, and one transaction writes all
// of a fold.
const historyWeight = 48

// nodeWeight is the weight of a node that refers to others: a fold holds its dozen references in
// memory.
const nodeWeight = 2

// weight returns how many pending rows the record counts as.
func (o *op) weight() int {
	switch {
	case (o.kind == recNode || o.kind == recDelta) && !o.bare:
		return nodeWeight
	case o.kind == recPiece:
		return pieceWeight
	case o.kind == recCommit && o.origin >= originTreeless:
		return historyWeight
	case o.kind == recCommit && o.origin == originBucket:
		return pieceWeight
	case o.kind == recPruned:
		return historyWeight * len(o.sync.ids)
	case o.sync != nil:
		return 1 + pieceWeight*(len(o.sync.places)+len(o.sync.digests)) + len(o.sync.ids)
	}
	return 1
}

// checkExplanation refuses a root that cannot explain a merge: one that is not a root node, or that
// of an empty tree, which holds no decision.
func checkExplanation(merge commit.ID, root *object.Digest) error {
	switch {
	case !root.Kind().IsNode():
		return fmt.Errorf("explanation of merge %s: %s is no tree node: %w", merge, root.Short(), base.ErrInvalid)
	case *root == btree.EmptyRoot:
		return fmt.Errorf("explanation of merge %s: the tree is empty: %w", merge, base.ErrInvalid)
	}
	return nil
}

func placeString(p segment.Place) string {
	return fmt.Sprintf("segment %08x offset %d", p.Segment, p.Offset)
}
