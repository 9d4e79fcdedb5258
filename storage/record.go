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
//	piece      journal uvarint (0: none), digest 33, content
//	use        journal uvarint (0: ones that were committed), digest 33: the journal relies on a
//	           piece that is stored already
//	node       digest 33, content: a tree node of one piece, written whole
//	delta      digest 33, digest of base 33, depth 1, script: a tree node as difference
//	           (btree.AppendDelta)
//	splitNode  digest 33: the root piece of a tree node that is stored as several pieces
//	commit     origin 1 (see the origins), FlatBuffers commit
//	journal    journal uvarint: its pieces are local from here on
//	tag        1, commit id 32, name; or 0, name: the tag is gone
//	explain    merge commit id 32, digest 33 of the root node of the tree that tells what was
//	           decided in the merge
//
// The kinds of sync are in syncrecord.go, those of deleting in collectrecord.go, those of
// compaction in copied.go and checkpoint.go.
const (
	recPiece     = 1
	recUse       = 2
	recNode      = 3
	recDelta     = 4
	recSplitNode = 5
	recCommit    = 6
	recJournal   = 7
	recTag       = 8
	recExplain   = 9
)

// The origins of a commit.
const (
	originLocal    = 0 // made on this device: not in the bucket yet
	originBucket   = 1 // from the bucket, with its tree
	originTreeless = 2 // from the bucket; the tree need not be here
	originAhead    = 3 // as originTreeless, ahead of what is built on it: it changes no heads
)

// maxDeltaDepth is the greatest number of differences between a node and one that is stored whole.
const maxDeltaDepth = 8

// maxReadDepth bounds the differences that are followed for one node. It is greater, because of two
// journals that write the same node at the same time one may be stored deeper than what the other
// has put on it has counted.
const maxReadDepth = 4 * maxDeltaDepth

// op is one record of the log as the index and the overlay need it.
type op struct {
	kind    byte
	depth   uint8         // of a delta
	origin  byte          // of a commit
	bare    bool          // of a node: it is known to refer to nothing
	copied  byte          // of a record that was copied forward: what it is for, else 0
	ofSync  bool          // of rows of a checkpoint: sync has written them
	quiet   bool          // what it says of the status of a piece is void, since a checkpoint came
	digest  object.Digest // of the piece; of an explanation the root
	ord     uint32        // which record of its batch it is
	number  uint64        // of its batch; 0 while the batch is not durable
	journal uint64
	base    *object.Digest // of a delta
	place   segment.Place
	commit  *commit.Commit
	tag     *TagChange
	merge   *commit.ID // that is explained
	sync    *syncOp    // of the kinds of sync and of deleting
	next    *op        // in the chain of the overlay, which guards it
	// content is what the record holds while the batch is not yet durable: the content of a piece
	// or whole node, or the script of a delta.
	content []byte
}

// stored reports whether o puts a piece into the log.
func (o *op) stored() bool {
	return (o.kind == recPiece || o.kind == recNode || o.kind == recDelta) && o.copied != copiedBase && o.copied != copiedDropped
}

// pieceWeight is how much more a piece of a value counts than other records when it is decided
// whether to fold: its row lies anywhere in the index, so that a transaction keeps a whole leaf in
// memory for it, while what commits bring clusters.
const pieceWeight = 6

// historyWeight is how much more a commit counts that is pruned, or comes as a part of history:
// many of these come together, each with rows anywhere in several families, and one transaction
// writes all that a fold brings.
const historyWeight = 48

// nodeWeight is how much more a node counts that refers to others: a dozen references, of which a
// fold holds each.
const nodeWeight = 2

// weight is what a record counts as pending rows.
func (o *op) weight() int {
	switch {
	case (o.kind == recNode || o.kind == recDelta) && !o.bare:
		return nodeWeight
	case o.kind == recPiece || o.kind == recUse:
		return pieceWeight
	case o.kind == recCommit && o.origin >= originTreeless:
		return historyWeight
	case o.kind == recCommit && o.origin == originBucket:
		return pieceWeight
	case o.kind == recPruned:
		return historyWeight * len(o.sync.ids)
	case o.sync != nil:
		return 1 + pieceWeight*o.touches() + len(o.sync.ids)
	}
	return 1
}

// checkExplanation refuses what cannot be the explanation of a merge: no root node, or that of an
// empty tree, by which nothing was decided.
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
