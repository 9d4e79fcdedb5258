package storage

import (
	"bytes"
	"cmp"
	"encoding/binary"
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
	digest    object.Digest
	number    uint64 // 0 until it is mentioned, if the index does not have it
	row       objectRow
	stored    *op      // the record that counts, nil when the row does
	journals  []uint64 // uncommitted journals that have stored or used it in this plan
	committed []uint64 // journals whose transient rows are removed
	was       pieceState
}

// noteTouched finds the pieces that sync records name, and their state in the index.
func (p *plan) noteTouched(parts [][]op) error {
	for _, ops := range parts {
		for i := range ops {
			o := &ops[i]
			switch {
			case o.sync != nil:
				o.touchedBy(func(_ int, d *object.Digest) { p.touch(d) })
			case o.touches() > 0:
				p.touch(&o.digest)
			}
		}
	}
	if p.touched == nil {
		return nil
	}
	p.skip, p.touchedIn = map[uint64]bool{}, map[uint64][]*touchedPiece{}
	all := slices.Collect(maps.Values(p.touched))
	slices.SortFunc(all, func(a, b *touchedPiece) int { return a.digest.Compare(b.digest) }) // in the order of the rows, so that successive look-ups share pages
	return p.db.View(func(tx index.Tx) error {
		for _, t := range all {
			var err error
			t.pieceState, t.row, err = readPieceState(tx, &t.digest, func(row *objectRow) bool { return reflects(p.reflected, row.place) })
			if err != nil {
				return err
			}
			if t.number = t.row.number; t.number != 0 {
				t.local = hasKey(tx.Bucket(bucketLocal), appendNumber(nil, t.number))
				p.skip[t.number] = true
			}
			t.was = t.pieceState
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

// addToTouched applies a record that stores or uses a piece which sync touches as well.
func (p *plan) addToTouched(t *touchedPiece, o *op, number uint64) {
	t.number = number
	if o.kind == recPiece {
		if !t.held {
			t.stored = o
		}
		t.store(o.located(), o.journal == 0)
	}
	if o.kind == recUse && o.journal == 0 {
		t.commit()
	}
	if o.journal != 0 && !slices.Contains(t.journals, o.journal) {
		t.journals = append(t.journals, o.journal)
		p.touchedIn[o.journal] = append(p.touchedIn[o.journal], t)
	}
}

// commitTouched applies the commit of a journal to the pieces that sync touches.
func (p *plan) commitTouched(tx index.Tx, journal uint64) error {
	if p.touched == nil {
		return nil
	}
	b := tx.Bucket(bucketTransient)
	prefix := binary.BigEndian.AppendUint64(nil, journal)
	k, _ := b.Cursor().Seek(prefix)
	noted := bytes.HasPrefix(k, prefix)
	for _, t := range p.touchedIn[journal] {
		t.journals = slices.DeleteFunc(t.journals, func(j uint64) bool { return j == journal })
		t.commit()
	}
	delete(p.touchedIn, journal)
	if !noted {
		return nil
	}
	for _, t := range p.touched {
		if t.number != 0 && hasKey(b, transientKey(journal, t.number)) && !slices.Contains(t.committed, journal) {
			t.committed = append(t.committed, journal)
			t.commit()
		}
	}
	return nil
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
	k := appendNumber(nil, t.number)
	puts := []struct {
		bucket   string
		was, set bool
		value    []byte
	}{
		{bucketCloud, t.was.placed, t.placed, nil}, {bucketSynced, t.was.placed, t.placed, nil}, {bucketLocal, t.was.local, t.local, nil},
	}
	if t.placed {
		puts[0].value = cloudRow(&t.digest, &t.place)
		puts[1].value = binary.AppendUvarint(nil, uint64(t.place.KeyIndex))
	}
	for _, r := range puts {
		b := tx.Bucket(r.bucket)
		var err error
		switch { // noteTouched has found these already
		case r.set && !r.was:
			err = b.Put(k, r.value)
		case r.set:
			err = setRow(b, k, true, r.value)
		case r.was:
			err = b.Delete(k)
		}
		if err != nil {
			return err
		}
	}
	for _, j := range t.committed {
		if err := tx.Bucket(bucketTransient).Delete(transientKey(j, t.number)); err != nil {
			return err
		}
	}
	for _, j := range t.journals {
		if err := tx.Bucket(bucketTransient).Put(transientKey(j, t.number), nil); err != nil {
			return err
		}
	}
	return nil
}
