package storage

import (
	"cmp"
	"math"
	"slices"

	"github.com/ledgerd/ledger/object"
)

// touch is one mention of a piece in a pending sync record, as an index into its entries.
type touch struct {
	o *op
	i int32
}

// order returns the position of a record in the log; records that are not durable yet follow all
// durable ones.
func (o *op) order() (number uint64, ord uint32) {
	if o.number == 0 {
		return math.MaxUint64, math.MaxUint32
	}
	return o.number, o.ord
}

// after reports whether a record follows another in the log.
func (o *op) after(other *op) bool {
	n, ord := o.order()
	than, thanOrd := other.order()
	return cmp.Or(cmp.Compare(n, than), cmp.Compare(ord, thanOrd)) > 0
}

func (t touch) after(u touch) bool {
	if t.o == u.o {
		return t.i > u.i
	}
	return t.o.after(u.o)
}

// touchedBy calls fn for each piece that a sync record names.
func (o *op) touchedBy(fn func(i int, d *object.Digest)) {
	for i := range o.sync.places {
		fn(i, &o.sync.places[i].Digest)
	}
	for i := range o.sync.digests {
		fn(i, &o.sync.digests[i])
	}
}

// showSyncLocked makes a sync record visible. A record that has become durable is shown again, at
// its place.
func (ov *overlay) showSyncLocked(o *op) {
	if o.kind == recPruned {
		ov.showPrunedLocked(o)
	}
	o.touchedBy(func(i int, d *object.Digest) {
		t := touch{o, int32(i)}
		list := ov.untouchedLocked(d, t)
		at := len(list)
		for at > 0 && list[at-1].after(t) {
			at--
		}
		ov.touched[*d] = slices.Insert(list, at, t)
	})
}

// showPrunedLocked hides commits, until they are received again.
func (ov *overlay) showPrunedLocked(o *op) {
	for _, id := range o.sync.ids {
		ov.pruned[id] = o
	}
}

// untouchedLocked returns the touches of a piece without t.
func (ov *overlay) untouchedLocked(d *object.Digest, t touch) []touch {
	return slices.DeleteFunc(ov.touched[*d], func(u touch) bool { return u == t })
}

func (ov *overlay) hideSyncLocked(o *op) {
	if o.kind == recPruned {
		for _, id := range o.sync.ids {
			if ov.pruned[id] == o {
				delete(ov.pruned, id)
			}
		}
	}
	o.touchedBy(func(i int, d *object.Digest) {
		if list := ov.untouchedLocked(d, touch{o, int32(i)}); len(list) > 0 {
			ov.touched[*d] = list
		} else {
			delete(ov.touched, *d)
		}
	})
}

// pieceEvent is the effect of a pending record on a piece.
type pieceEvent struct {
	number uint64 // see op.order
	ord    uint32
	kind   byte
	place  CloudPlace // of recPlaces
	stored located    // of recPiece
}

// events returns the effects of pending records on pieces, by index in ds: nothing for most. folds
// counts calls of drop.
func (ov *overlay) events(ds []object.Digest) (of map[int][]pieceEvent, folds uint64) {
	ov.mu.RLock()
	defer ov.mu.RUnlock()
	for i := range ds {
		if events := ov.eventsLocked(&ds[i]); len(events) > 0 {
			if of == nil {
				of = map[int][]pieceEvent{}
			}
			of[i] = events
		}
	}
	return of, ov.folds
}

// eventsLocked returns the effects of pending records on a piece, in the order of the log.
func (ov *overlay) eventsLocked(d *object.Digest) (out []pieceEvent) {
	add := func(o *op) *pieceEvent {
		e := pieceEvent{kind: o.kind}
		e.number, e.ord = o.order()
		out = append(out, e)
		return &out[len(out)-1]
	}
	for o := ov.storedLocked(d); o != nil; o = o.next {
		if o.digest == *d {
			add(o).stored = o.located()
		}
	}
	for _, t := range ov.touched[*d] {
		e := add(t.o)
		if t.o.kind == recPlaces {
			e.place = t.o.sync.places[t.i].Place
		}
	}
	slices.SortStableFunc(out, func(a, b pieceEvent) int {
		return cmp.Or(cmp.Compare(a.number, b.number), cmp.Compare(a.ord, b.ord))
	})
	return out
}
