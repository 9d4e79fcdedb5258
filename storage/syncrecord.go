package storage

import (
	"encoding/binary"
	"fmt"
	"math"
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
//	dropped      digests 33 of pieces whose content is given up, as far as they have a place
//	status       1: synced, 2: unsynced, 3: the tree is here now, 4: a part of it is not, 5: the
//	             explanation of the merge is gone, 6: no heads; then ids 32 of commits
//	tagReceived  as tag: from elsewhere, unless it was changed here and that is unsynced
//	tagSynced    as tag: this change of a tag is in the bucket
//	metadata     1 (0: the row is removed), length of the type (1 byte), type, value
//	forgotten    nothing: pieces and commits are in no bucket any more. It stands alone in its
//	             batch.
const (
	recPlaces      = 10
	recUnplaced    = 11
	recDropped     = 12
	recStatus      = 13
	recTagReceived = 14
	recTagSynced   = 15
	recMetadata    = 16
	recForgotten   = 17
)

// The statuses that a record of kind status gives to commits.
const (
	statusSynced   = 1
	statusUnsynced = 2
	statusTree     = 3
	// Repair has found that a part of the tree is not here, or that the explanation of a merge is
	// gone.
	statusHoles       = 4
	statusUnexplained = 5
	// What is built on the commits came ahead of them, or was given up before: they are no heads.
	statusInner = 6
)

// The containers of places.
const (
	inPack  = 0
	inEntry = 1
)

// Bounds of what sync records hold. They are part of the format.
const (
	maxRecordEntries     = 1024
	maxMetadataTypeBytes = 255
	maxMetadataBytes     = 1 << 20
)

// syncOp is what a record of sync says.
type syncOp struct {
	places  []PlacedPiece
	digests []object.Digest // of unplaced or dropped pieces
	ids     []commit.ID
	status  byte
	typ     string // of metadata
	value   []byte // of metadata
	removed bool   // the row of metadata

	children   []commit.ID                // of pruned commits
	journals   []uint64                   // that are abandoned
	checkpoint checkpoint                 // that is complete; last is not in the record
	known      map[object.Digest][]target // what deleted pieces refer to, as far as the collector has read them
}

// touches returns of how many pieces o changes what is known beside where they are stored.
func (o *op) touches() int {
	if o.sync != nil {
		return len(o.sync.places) + len(o.sync.digests)
	}
	if o.kind == recPiece && o.journal == 0 && o.copied == 0 && !o.quiet && !o.digest.Kind().IsNode() {
		return 1
	}
	return 0
}

func (y *syncOp) append(b []byte, kind byte) []byte {
	switch kind {
	case recPlaces:
		b = appendContainer(b, &y.places[0].Place)
		for i := range y.places {
			b = append(b, y.places[i].Digest[:]...)
			b = appendSpot(b, &y.places[i].Place)
		}
	case recUnplaced, recDropped, recDeleted:
		for i := range y.digests {
			b = append(b, y.digests[i][:]...)
		}
	case recStatus:
		b = append(b, y.status)
		for i := range y.ids {
			b = append(b, y.ids[i][:]...)
		}
	case recPruned:
		b = binary.AppendUvarint(b, uint64(len(y.ids)))
		for _, ids := range [][]commit.ID{y.ids, y.children} {
			for i := range ids {
				b = append(b, ids[i][:]...)
			}
		}
	case recAbandoned:
		for _, j := range y.journals {
			b = binary.AppendUvarint(b, j)
		}
	case recMetadata:
		if y.removed {
			b = append(b, 0)
		} else {
			b = append(b, 1)
		}
		b = append(b, byte(len(y.typ)))
		b = append(b, y.typ...)
		b = append(b, y.value...)
	}
	return b
}

// sameContainer reports whether two places can stand in one record.
func sameContainer(a, b *CloudPlace) bool {
	return a.Pack == b.Pack && a.Entry == b.Entry && a.KeyIndex == b.KeyIndex
}

func appendContainer(b []byte, p *CloudPlace) []byte {
	if p.Entry == 0 {
		b = append(b, inPack)
		b = append(b, p.Pack[:]...)
	} else {
		b = append(b, inEntry)
		b = binary.AppendUvarint(b, p.Entry)
	}
	return binary.AppendUvarint(b, uint64(p.KeyIndex))
}

func appendSpot(b []byte, p *CloudPlace) []byte {
	b = binary.AppendUvarint(b, uint64(p.Block))
	if p.Entry == 0 {
		b = binary.AppendUvarint(b, uint64(p.Offset))
		b = binary.AppendUvarint(b, uint64(p.StoredBytes))
	}
	b = binary.AppendUvarint(b, uint64(p.At))
	return binary.AppendUvarint(b, uint64(p.Bytes))
}

// placeReader reads places strictly.
type placeReader struct {
	p   []byte
	bad bool
}

func (r *placeReader) uvarint(most uint64) uint64 {
	v, n := uvarint(r.p)
	if n <= 0 || v > most {
		r.bad, r.p = true, nil
		return 0
	}
	r.p = r.p[n:]
	return v
}

func (r *placeReader) container(p *CloudPlace) {
	if len(r.p) == 0 {
		r.bad = true
		return
	}
	typ := r.p[0]
	r.p = r.p[1:]
	switch {
	case typ == inPack && len(r.p) >= len(p.Pack):
		r.p = r.p[copy(p.Pack[:], r.p):]
	case typ == inEntry:
		p.Entry = r.uvarint(math.MaxUint64)
	default:
		r.bad = true
	}
	p.KeyIndex = uint32(r.uvarint(math.MaxUint32))
}

func (r *placeReader) spot(p *CloudPlace) {
	p.Block = uint32(r.uvarint(math.MaxUint32))
	if p.Entry == 0 {
		p.Offset = int64(r.uvarint(math.MaxInt64))
		p.StoredBytes = uint32(r.uvarint(math.MaxUint32))
	}
	p.At = uint32(r.uvarint(math.MaxUint32))
	p.Bytes = uint32(r.uvarint(math.MaxUint32))
	r.bad = r.bad || checkPlace(p) != nil
}

// checkPlace refuses what is no place of a piece.
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

// checkValueDigest refuses digests that name no piece of a value: nodes are never in the bucket.
func checkValueDigest(d *object.Digest) error {
	if _, err := object.ParseDigest(d[:]); err != nil || d.Kind().IsNode() {
		return fmt.Errorf("%s is no piece of a value: %w", d, base.ErrInvalid)
	}
	return nil
}

// parseSync reads the payload of a record of sync.
func parseSync(o op, p []byte, bad func(string) (op, error)) (op, error) {
	y := &syncOp{}
	o.sync = y
	switch o.kind {
	case recPlaces:
		if !y.parsePlaces(p) {
			return bad("bad places of pieces")
		}
	case recUnplaced, recDropped:
		if !y.parseDigests(p, false) {
			return bad("a bad list of pieces")
		}
	case recStatus:
		if len(p) == 0 || p[0] < statusSynced || p[0] > statusInner || !y.parseIDs(p[1:]) {
			return bad("bad statuses of commits")
		}
		y.status = p[0]
	case recMetadata:
		if len(p) < 2 || p[0] > 1 || len(p)-2 < int(p[1]) {
			return bad("bad metadata")
		}
		n := 2 + int(p[1])
		y.removed, y.typ = p[0] == 0, string(p[2:n])
		if checkMetadata(y.typ, p[n:]) != nil || y.removed && len(p) > n {
			return bad("bad metadata")
		}
		if !y.removed {
			y.value = append([]byte{}, p[n:]...)
		}
	case recForgotten:
		if len(p) != 0 {
			return bad("bytes where none belong")
		}
	}
	return o, nil
}

func (y *syncOp) parsePlaces(p []byte) bool {
	r := placeReader{p: p}
	var c CloudPlace
	r.container(&c)
	for !r.bad && len(r.p) > 0 {
		d, rest, ok := cutDigest(r.p)
		if !ok || d.Kind().IsNode() || len(y.places) == maxRecordEntries {
			return false
		}
		r.p = rest
		at := c
		r.spot(&at)
		y.places = append(y.places, PlacedPiece{Digest: d, Place: at})
	}
	return !r.bad && len(y.places) > 0
}

// parseDigests reads a list of digests; nodes says whether there may be tree nodes among them.
func (y *syncOp) parseDigests(p []byte, nodes bool) bool {
	n := len(p) / object.DigestSize
	if n == 0 || n > maxRecordEntries || n*object.DigestSize != len(p) {
		return false
	}
	y.digests = make([]object.Digest, n)
	for i := range y.digests {
		var ok bool
		if y.digests[i], p, ok = cutDigest(p); !ok || !nodes && y.digests[i].Kind().IsNode() {
			return false
		}
	}
	return true
}

func (y *syncOp) parseIDs(p []byte) bool {
	n := len(p) / commit.IDSize
	if n == 0 || n > maxRecordEntries || n*commit.IDSize != len(p) {
		return false
	}
	y.ids = make([]commit.ID, n)
	for i := range y.ids {
		copy(y.ids[i][:], p[i*commit.IDSize:])
	}
	return true
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
