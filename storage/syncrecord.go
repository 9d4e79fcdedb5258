package storage

import (
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/object"
)

// The kinds of log records of sync. Lists have 1 to maxRecordEntries entries.
//
//	kind         payload
//	places       container, key index uvarint, then for each piece: digest 33, frame, in a pack
//	             also offset and sealed length, where in the plaintext, length: uvarints. The
//	             container is 0 and the id of a pack (16), or 1 and the number of an entry
//	             (uvarint).
//	unplaced     digests 33 of pieces whose place is gone
//	dropped      digests 33 of pieces whose content is given up: they have a place
//	status       1: synced, 2: unsynced, 3: the tree is held now, 4: a part of it is not, 5: the
//	             explanation of the merge is gone, 6: no heads; then ids 32 of commits
//	tagReceived  as tag: from another device; ignored if this device has an unsynced change of it
//	tagSynced    as tag: this change of a tag is in the bucket
//	metadata     1 (0: the row is removed), length of the type (1 byte), type, value
const (
	recPlaces      = 10
	recUnplaced    = 11
	recDropped     = 12
	recStatus      = 13
	recTagReceived = 14
	recTagSynced   = 15
	recMetadata    = 16
)

// The statuses that a record of kind status gives to commits.
const (
	statusSynced   = 1
	statusUnsynced = 2
	statusTree     = 3
	// Repair has found that the page lacks a part of the tree, or the explanation of a merge.
	statusHoles       = 4
	statusUnexplained = 5
	// Descendants of the commits were received ahead, or given up before: they are no heads.
	statusInner = 6
)

// The containers of places.
const (
	inPack  = 0
	inEntry = 1
)

// Bounds of the content of sync records. They are part of the format.
const (
	maxRecordEntries     = 1024
	maxMetadataTypeBytes = 255
	maxMetadataBytes     = 1 << 20
)

// syncOp is the content of a sync record.
type syncOp struct {
	places  []PlacedPiece
	digests []object.Digest // of unplaced or dropped pieces
	ids     []commit.ID
	status  byte
	meta    Metadata

	children   []commit.ID                // of pruned commits
	checkpoint checkpoint                 // a complete checkpoint; last is not in the record
	known      map[object.Digest][]target // what deleted pieces refer to, if the collector has read them
}

// sameContainer reports whether two places fit in one record.
func sameContainer(a, b *CloudPlace) bool {
	return a.Pack == b.Pack && a.Entry == b.Entry && a.KeyIndex == b.KeyIndex
}

// checkPlace refuses an invalid place of a piece.
func checkPlace(p *CloudPlace) error {
	packed := p.Pack != [16]byte{}
	switch {
	case packed == (p.Entry != 0):
		return fmt.Errorf("a place in both a pack and an entry, or in none: %w", base.ErrInvalid)
	case p.Bytes > limits.MaxPieceBytes:
		return fmt.Errorf("a place of %d bytes: %w", p.Bytes, base.ErrInvalid)
	case p.Offset < 0, !packed && (p.Offset != 0 || p.StoredBytes != 0):
		return fmt.Errorf("a place at offset %d of %d bytes: %w", p.Offset, p.StoredBytes, base.ErrInvalid)
	}
	return nil
}

// checkValueDigest refuses digests of anything but pieces of values: nodes are never in the bucket.
func checkValueDigest(d *object.Digest) error {
	if _, err := object.ParseDigest(d[:]); err != nil || d.Kind().IsNode() {
		return fmt.Errorf("%s is no piece of a value: %w", d, base.ErrInvalid)
	}
	return nil
}

// placeOps returns records for places, one for each run of pieces in one container.
func placeOps(ops []op, places []PlacedPiece) []op {
	for len(places) > 0 {
		n := 1
		for n < len(places) && n < maxRecordEntries && sameContainer(&places[0].Place, &places[n].Place) {
			n++
		}
		ops = append(ops, op{kind: recPlaces, sync: &syncOp{places: places[:n:n]}})
		places = places[n:]
	}
	return ops
}

// digestOps returns records of a kind for digests.
func digestOps(ops []op, kind byte, digests []object.Digest) []op {
	for some := range slices.Chunk(digests, maxRecordEntries) {
		ops = append(ops, op{kind: kind, sync: &syncOp{digests: some}})
	}
	return ops
}

// statusOps returns records that give a status to commits.
func statusOps(ops []op, status byte, ids []commit.ID) []op {
	first := len(ops)
	ops = idOps(ops, recStatus, ids)
	for i := range ops[first:] {
		ops[first+i].sync.status = status
	}
	return ops
}

// idOps returns records of a kind for commits.
func idOps(ops []op, kind byte, ids []commit.ID) []op {
	for some := range slices.Chunk(ids, maxRecordEntries) {
		ops = append(ops, op{kind: kind, sync: &syncOp{ids: some}})
	}
	return ops
}
