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

// compare compares the positions of two records in the log.
func (o *op) compare(other *op) int {
	n, ord := o.order()
	than, thanOrd := other.order()
	return cmp.Or(cmp.Compare(n, than), cmp.Compare(ord, thanOrd))
}

// after reports whether a record follows another in the log.
func (o *op) after(other *op) bool { return o.compare(other) > 0 }

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
		for _, id := range o.sync.ids { // hidden until they are received again
			ov.pruned[id] = o
		}
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

// pieceEvent is a copy of a pending record about a piece, which is entry i of a sync record.
type pieceEvent struct {
	op
	i int32
}

// events returns the pending records about pieces, by index in ds: nothing for most. folds counts
// calls of drop.
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

// eventsLocked returns the pending records about a piece, in the order of the log.
func (ov *overlay) eventsLocked(d *object.Digest) (out []pieceEvent) {
	for o := ov.pieces[pieceKey(d)]; o != nil; o = o.next {
		if o.digest == *d {
			out = append(out, pieceEvent{op: *o})
		}
	}
	for _, t := range ov.touched[*d] {
		out = append(out, pieceEvent{*t.o, t.i})
	}
	slices.SortStableFunc(out, func(a, b pieceEvent) int { return a.compare(&b.op) })
	return out
}
