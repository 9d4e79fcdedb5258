package storage

import (
	"encoding/binary"
	"fmt"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/limits"
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
	tag     *tagChange
	merge   *commit.ID // that is explained
	sync    *syncOp    // of the kinds of sync and of deleting
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

// historyWeight is how much more a commit counts that comes as a part of history: many of these
// come together, each with rows anywhere in several families, and one transaction writes all that a
// fold brings.
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
	case o.sync != nil:
		return 1 + pieceWeight*o.touches() + len(o.sync.ids)
	}
	return 1
}

// appendHeader appends what precedes the content of a record.
func (o *op) appendHeader(b []byte) []byte {
	if o.copied != 0 {
		b = append(b, o.copied, o.kind)
	}
	switch o.kind {
	case recPiece, recUse:
		b = binary.AppendUvarint(b, o.journal)
		b = append(b, o.digest[:]...)
	case recNode, recSplitNode:
		b = append(b, o.digest[:]...)
	case recDelta:
		b = append(b, o.digest[:]...)
		b = append(b, o.base[:]...)
		b = append(b, o.depth)
	case recCommit:
		b = append(b, o.origin)
	case recJournal:
		b = binary.AppendUvarint(b, o.journal)
	case recTag, recTagReceived, recTagSynced:
		if o.tag.deleted {
			b = append(b, 0)
		} else {
			b = append(b, 1)
			b = append(b, o.tag.id[:]...)
		}
		b = append(b, o.tag.name...)
	case recExplain:
		b = append(b, o.merge[:]...)
		b = append(b, o.digest[:]...)
	case recComplete:
		for _, n := range []uint64{o.sync.checkpoint.upTo, o.sync.checkpoint.first, o.journal} {
			b = binary.AppendUvarint(b, n)
		}
	default:
		b = o.sync.append(b, o.kind)
	}
	return b
}

// parseRecord reads a record strictly. The content of the result borrows r.Payload. Errors are
// *base.CorruptError, or match base.ErrUnsupported for a kind of a newer format.
func parseRecord(r segment.Record) (op, error) {
	o := op{kind: r.Kind, place: r.Place}
	p := r.Payload
	bad := func(what string) (op, error) {
		return op{}, &base.CorruptError{Where: placeString(r.Place), Got: "record with " + what}
	}
	var ok bool
	switch r.Kind {
	case recPiece, recUse, recJournal:
		j, n := uvarint(p)
		if n <= 0 || j > maxJournal {
			return bad("a bad journal number")
		}
		o.journal, p = j, p[n:]
		if r.Kind == recJournal {
			if len(p) != 0 {
				return bad("bytes behind a journal number")
			}
			return o, nil
		}
		if o.digest, p, ok = cutDigest(p); !ok {
			return bad("a bad digest")
		}
		if r.Kind == recUse && len(p) != 0 {
			return bad("bytes behind a use")
		}
		if len(p) > limits.MaxPieceBytes {
			return bad("a piece that is too large")
		}
		o.content = p
	case recNode, recDelta, recSplitNode:
		if o.digest, p, ok = cutDigest(p); !ok || !o.digest.Kind().IsNode() || o.digest.Kind().IsIndex() != (r.Kind == recSplitNode) {
			return bad("a bad node digest")
		}
		if r.Kind == recDelta {
			var b object.Digest
			if b, p, ok = cutDigest(p); !ok || b.Kind() != object.NodeBit || len(p) == 0 || p[0] == 0 || p[0] > maxDeltaDepth {
				return bad("a bad base or depth of a delta")
			}
			o.base, o.depth, p = &b, p[0], p[1:]
		}
		if r.Kind == recSplitNode && len(p) != 0 {
			return bad("bytes behind a split node")
		}
		if len(p) > limits.MaxPieceBytes {
			return bad("a node that is too large")
		}
		o.content = p
	case recCommit:
		if len(p) == 0 || p[0] > originAhead {
			return bad("an unknown origin of a commit")
		}
		o.origin = p[0]
		c, err := commit.Parse(p[1:])
		if err != nil {
			return op{}, &base.CorruptError{Where: placeString(r.Place), Got: "a bad commit", Err: err}
		}
		o.commit = c
	case recTag, recTagReceived, recTagSynced:
		return parseTag(o, p, bad)
	case recPlaces, recUnplaced, recDropped, recStatus, recMetadata, recForgotten:
		return parseSync(o, p, bad)
	case recDeleted, recPruned, recAbandoned:
		return parseDeleting(o, p, bad)
	case recCopied:
		return parseCopied(r, bad)
	case recRows, recComplete:
		return parseCheckpoint(o, p, bad)
	case recExplain:
		return parseExplain(o, p, bad)
	default:
		return op{}, fmt.Errorf("read record of kind %d at %s: %w", r.Kind, placeString(r.Place), base.ErrUnsupported)
	}
	return o, nil
}

func parseExplain(o op, p []byte, bad func(string) (op, error)) (op, error) {
	var id commit.ID
	if len(p) != len(id)+object.DigestSize {
		return bad("an explanation of another length")
	}
	d, _, ok := cutDigest(p[copy(id[:], p):])
	if !ok || checkExplanation(id, &d) != nil {
		return bad("a bad explanation")
	}
	o.merge, o.digest = &id, d
	return o, nil
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

func cutDigest(p []byte) (object.Digest, []byte, bool) {
	if len(p) < object.DigestSize {
		return object.Digest{}, nil, false
	}
	d, err := object.ParseDigest(p[:object.DigestSize])
	return d, p[object.DigestSize:], err == nil
}

// uvarint reads a minimal uvarint: there is one encoding for each number.
func uvarint(p []byte) (uint64, int) {
	v, n := binary.Uvarint(p)
	if n > 1 && p[n-1] == 0 {
		return 0, -1
	}
	return v, n
}

func placeString(p segment.Place) string {
	return fmt.Sprintf("segment %08x offset %d", p.Segment, p.Offset)
}
