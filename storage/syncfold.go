package storage

import (
	"cmp"
	"maps"
	"slices"

	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage/index"
)

// maxTouches is the number of pieces that sync may touch in one fold, unless one batch touches
// more. The effect of a record on a piece depends on the records before, so that a fold repeated
// after a crash must find the same state: all rows of such pieces are written together with the
// state row (I7), and must fit into one transaction.
const maxTouches = 1024

// touchedPiece is a piece of a value that a sync record in the plan names.
type touchedPiece struct {
	pieceState
	digest object.Digest
	number uint64 // 0 until it is mentioned, if the index does not have it
	row    objectRow
	stored *op // the record that counts, nil when the row does
}

// noteTouched finds the pieces that sync records name, and their state in the index.
func (p *plan) noteTouched(parts [][]op) error {
	for _, ops := range parts {
		for i := range ops {
			o := &ops[i]
			if o.sync != nil {
				o.touchedBy(func(_ int, d *object.Digest) { p.touch(d) })
			}
		}
	}
	if p.touched == nil {
		return nil
	}
	all := slices.Collect(maps.Values(p.touched))
	slices.SortFunc(all, func(a, b *touchedPiece) int { return a.digest.Compare(b.digest) }) // in the order of the rows, so that successive look-ups share pages
	return p.db.View(func(tx index.Tx) error {
		for _, t := range all {
			var err error
			t.pieceState, t.row, err = readPieceState(tx, &t.digest, func(row *objectRow) bool { return reflects(p.reflected, row.place) })
			if err != nil {
				return err
			}
			t.number = t.row.number
		}
		return nil
	})
}

func (p *plan) touch(d *object.Digest) {
	if p.touched == nil {
		p.touched = map[object.Digest]*touchedPiece{}
	}
	if p.touched[*d] == nil {
		p.touched[*d] = &touchedPiece{digest: *d}
	}
}

// addTouches applies a record that names pieces.
func (p *plan) addTouches(tx index.Tx, o *op) (err error) {
	o.touchedBy(func(i int, d *object.Digest) {
		t := p.touched[*d]
		n, nerr := p.number(tx, d)
		if err = cmp.Or(err, nerr); err != nil {
			return
		}
		t.number = n
		switch o.kind {
		case recPlaces:
			t.put(o.sync.places[i].Place)
		case recUnplaced:
			t.unplace()
		case recDropped:
			if t.drop(); !t.held {
				t.stored = nil
			}
		}
	})
	return err
}

// storeRecord applies a record that stores the piece.
func (t *touchedPiece) storeRecord(o *op, number uint64) {
	t.number, t.stored = number, o
	t.store(o.located())
}

// writeTouched writes all rows of the pieces that sync touches.
func (p *plan) writeTouched(tx index.Tx) error {
	all := slices.Collect(maps.Values(p.touched))
	slices.SortFunc(all, func(a, b *touchedPiece) int { return cmp.Compare(a.number, b.number) })
	for _, t := range all {
		if err := t.write(tx); err != nil {
			return err
		}
	}
	return nil
}

func (t *touchedPiece) write(tx index.Tx) error {
	row := objectRow{number: t.number}
	if t.held {
		if t.stored != nil {
			row.held, row.kind, row.place = true, recPiece, t.stored.place
		} else {
			row = t.row
		}
	}
	if t.row.number == 0 || row != t.row {
		if err := tx.Bucket(bucketObjects).Put(t.digest[:], row.append(nil)); err != nil {
			return err
		}
	}
	k, local := appendNumber(nil, t.number), tx.Bucket(bucketLocal)
	var err error
	switch here := t.held && !t.placed; {
	case !here:
		err = local.Delete(k)
	case !hasKey(local, k):
		err = local.Put(k, nil)
	}
	if err != nil {
		return err
	}
	var place []byte
	if t.placed {
		place = cloudRow(&t.digest, &t.place)
	}
	return setRow(tx.Bucket(bucketCloud), k, t.placed, place)
}
