package storage

import (
	"encoding/binary"

	"github.com/ledgerd/ledger/object"
)

// opTable finds records by the digests of the pieces that they store: a table of pointers, searched
// one by one from where a digest belongs. Digests are random, so that four of their bytes say where
// that is. A map, which holds digests too, takes 150 bytes for each of the 100 000 nodes that may
// be pending; this takes 11 to 21. The zero value is empty.
type opTable struct {
	places []*op // a power of two, at most three quarters full
	n      int
}

const minOpPlaces = 64

// place returns where the record of a digest is, or belongs. There are places.
func (t *opTable) place(d *object.Digest) int {
	i := t.home(d)
	for t.places[i] != nil && t.places[i].digest != *d {
		i = t.next(i)
	}
	return i
}

func (t *opTable) home(d *object.Digest) int {
	return int(binary.LittleEndian.Uint32(d[1:])) & (len(t.places) - 1)
}

func (t *opTable) next(i int) int { return (i + 1) & (len(t.places) - 1) }

// get returns the record of a digest, nil if there is none.
func (t *opTable) get(d *object.Digest) *op {
	if t.n == 0 {
		return nil
	}
	return t.places[t.place(d)]
}

// put adds a record, in place of another one of its digest.
func (t *opTable) put(o *op) {
	if 4*(t.n+1) > 3*len(t.places) {
		old := t.places
		t.places = make([]*op, max(minOpPlaces, 2*len(old)))
		for _, o := range old {
			if o != nil {
				t.places[t.place(&o.digest)] = o
			}
		}
	}
	i := t.place(&o.digest)
	if t.places[i] == nil {
		t.n++
	}
	t.places[i] = o
}

// remove removes the record of a digest, if there is one, and moves those behind it up that would
// no longer be found. An empty table gives its memory back.
func (t *opTable) remove(d *object.Digest) {
	if t.n == 0 {
		return
	}
	i := t.place(d)
	if t.places[i] == nil {
		return
	}
	if t.n--; t.n == 0 {
		t.places = nil
		return
	}
	t.places[i] = nil
	for i = t.next(i); t.places[i] != nil; i = t.next(i) {
		o := t.places[i]
		t.places[i] = nil
		t.places[t.place(&o.digest)] = o
	}
}
