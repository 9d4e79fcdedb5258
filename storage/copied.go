package storage

import (
	"slices"

	"github.com/ledgerd/ledger/storage/index"
	"github.com/ledgerd/ledger/storage/segment"
)

// recCopied is the kind of a record that compaction or repair has copied forward: from then on the
// copy is the place of the piece or node.
//
//	kind    payload
//	copied  purpose, 1 byte (see below); kind of the record, 1 byte: a piece, a node, a delta or
//	        a split node; its payload
const recCopied = 23

// The purposes of copies.
const (
	copiedHeld = 1 // the piece is held
	copiedBase = 2 // a deleted node whose bytes differences need
)

// copiedHeader is the length of what precedes the payload of a copied record.
const copiedHeader = 2

// copiedPlace is the place of the original payload within that of a copy.
func copiedPlace(p segment.Place) segment.Place {
	p.Offset += copiedHeader
	p.Length -= copiedHeader
	return p
}

// addCopied plans a copied record.
func (p *plan) addCopied(o *op, n uint64) {
	t := p.touched[o.digest]
	switch {
	case o.kind == recSplitNode:
	case t != nil:
		t.number, t.stored = n, o
		t.held, t.at = true, o.located()
	default:
		p.copies = append(p.copies, plannedObject{digest: &o.digest, stored: o, number: n})
	}
}

// addCopies points rows to copies.
func (w *planWriter) addCopies(p *plan) {
	slices.SortStableFunc(p.copies, func(a, b plannedObject) int { return a.digest.Compare(*b.digest) })
	for i := range p.copies {
		c := &p.copies[i]
		w.addWeight(pieceWeight, func(tx index.Tx) error { return p.moveRow(tx, c) })
	}
}

// moveRow points a row to a copy. A node that was a difference and was copied whole needs its base
// no more.
func (p *plan) moveRow(tx index.Tx, c *plannedObject) error {
	o := c.stored
	row, ok, err := readObjectRow(tx, c.digest)
	switch {
	case err != nil || !ok && o.copied == copiedBase:
		return err
	case row.dead && o.copied != copiedBase: // its place was found before (see rebuilder)
		row.dead, row.held = false, true
		return tx.Bucket(bucketObjects).Put(c.digest[:], row.append(nil))
	case !row.held && o.copied == copiedBase && !row.dead:
		return nil
	case !row.held && !row.dead:
		return p.holdCopy(tx, c)
	case p.surveyed() && o.digest.Kind().IsNode():
		return nil
	case o.kind == recDelta && row.kind != recDelta: // it was stored whole meanwhile
		return nil
	}
	if row.kind == recDelta && o.kind == recNode {
		if err := dropBaseRef(tx, row.base, row.number); err != nil {
			return err
		}
		p.freed = append(p.freed, row.base)
		row.kind, row.base, row.depth = recNode, 0, 0
	}
	row.place = o.place
	return tx.Bucket(bucketObjects).Put(c.digest[:], row.append(nil))
}

// holdCopy makes an unheld piece of a value held: it was dropped, or the log has only the copy left
// of it.
func (p *plan) holdCopy(tx index.Tx, c *plannedObject) error {
	o := c.stored
	if o.digest.Kind().IsNode() {
		return nil // a node that cannot be built
	}
	row := objectRow{number: c.number, held: true, kind: o.kind, place: o.place}
	if err := tx.Bucket(bucketObjects).Put(c.digest[:], row.append(nil)); err != nil {
		return err
	}
	return putLocal(tx, c.number)
}

// addCopy adds a copy of a record to a batch, and returns it as an op without a place.
func addCopy(b *segment.Batch, o *op, for_ byte) op {
	c := *o
	c.copied, c.content = for_, nil
	b.Add(recCopied, c.appendHeader(nil), o.content)
	return c
}

// setPlaces assigns records their places.
func setPlaces(ops []op, done segment.Appended) {
	for i := range ops {
		if ops[i].place = done.Places[i]; ops[i].copied != 0 {
			ops[i].place = copiedPlace(done.Places[i])
		}
		ops[i].number, ops[i].ord = done.Number, uint32(i)
	}
}
