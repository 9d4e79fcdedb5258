package storage

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/split"
	"github.com/ledgerd/ledger/storage/index"
	"github.com/ledgerd/ledger/storage/segment"
)

// plan collects the rows that a run of log records adds to the index. Numbers follow the order in
// which the log mentions digests, so that a rebuilt index has the same numbers.
type plan struct {
	s       *Store
	from    locator // where the pieces of the records are found
	db      index.DB
	numbers map[object.Digest]uint64 // of the digests looked up
	next    uint64                   // next piece number
	// reflected is the position of the index. Rows beyond it are from an unfinished fold: related
	// rows may be missing.
	reflected *segment.Position

	order    []object.Digest // numbered by this plan, in order; the first has number next-len(order)
	objects  []plannedObject
	refs     []plannedRef
	places   []plannedPlace
	statuses []plannedStatus
	history  []plannedStep // the effects of records on commits, tags and metadata, in order

	// nodes are the nodes read last. Most nodes are differences to a node of an earlier commit in
	// the plan; the store's cache holds the newest nodes, which later commits have made.
	nodes *NodeCache
}

// plannedObject is a digest that gets a row, with the record that stores or drops the piece, or nil
// for a digest that was only mentioned.
type plannedObject struct {
	digest *object.Digest
	stored *op
	number uint64
	base   uint64
	old    *objectRow // of a piece or node that the page has already, else nil
}

// plannedPlace is a piece that gets a place in the bucket, or loses it: place is nil.
type plannedPlace struct {
	digest *object.Digest
	number uint64
	place  *CloudPlace
}

// plannedStatus is a piece of a value that is local if it is held and has no place.
type plannedStatus struct {
	number uint64
	held   bool
}

// plannedStep is a record that apply executes, with the number of the root that it names.
type plannedStep struct {
	o    *op
	root uint64
}

func newPlan(s *Store, from locator, db index.DB, next uint64, reflected *segment.Position) *plan {
	return &plan{
		s: s, from: from, db: db, numbers: map[object.Digest]uint64{}, next: next, reflected: reflected,
		nodes: NewNodeCache(planCacheBytes),
	}
}

// planCacheBytes bounds plan.nodes.
const planCacheBytes = 8 << 20

// planChunk is the number of records planned in one transaction on the index.
const planChunk = 256

// mention is a record and the pieces that it refers to.
type mention struct {
	o       *op
	targets []target
	absent  bool // the record has no other effect: what it needs was garbage and is gone
}

type target struct {
	digest object.Digest
	typ    byte
}

// add takes the records of some batches, in the order of the log.
func (p *plan) add(ctx context.Context, parts [][]op) error {
	chunk := make([]mention, 0, planChunk)
	for _, ops := range parts {
		for i := range ops {
			m := mention{o: &ops[i]}
			var err error
			if b, ok := p.from.(*rebuilder); ok {
				m.absent, err = b.lacks(&ops[i])
			}
			if err == nil && !m.absent {
				m.targets, err = p.targets(ctx, &ops[i])
			}
			if err != nil {
				return err
			}
			chunk = append(chunk, m)
			if len(chunk) == planChunk {
				if err := p.addChunk(chunk); err != nil {
					return err
				}
				chunk = chunk[:0]
			}
		}
	}
	return p.addChunk(chunk)
}

// targets returns the pieces that the piece or node stored by o refers to.
func (p *plan) targets(ctx context.Context, o *op) ([]target, error) {
	if o.bare || !o.stored() {
		return nil, nil
	}
	at := o.located() // elsewhere the place of a piece depends on later records
	out, err := p.s.targets(ctx, &o.digest, &at, p.from, p.nodes)
	if err != nil {
		return nil, fmt.Errorf("fold %s %s: %w", o.digest.Kind(), o.digest.Short(), err)
	}
	return out, nil
}

// targets returns the pieces and nodes that a held one refers to: those that an index piece lists,
// or the children of a node and the values of its entries. A piece is read at its place, a node
// and its bases are found by from, and kept in nodes if that is not nil.
func (s *Store) targets(ctx context.Context, d *object.Digest, at *located, from locator, nodes *NodeCache) (out []target, err error) {
	switch d.Kind() {
	case object.Index:
		content, err := s.content(d, at)
		if err != nil {
			return nil, err
		}
		children, err := split.Children(*d, content)
		for _, c := range children {
			out = append(out, target{c, refEager})
		}
		return out, err
	case object.Node:
		n, err := s.loadNodeBeside(ctx, *d, from, 0, nodes)
		if err != nil {
			return nil, err
		}
		out = make([]target, 0, n.NumChildren())
		for i := range n.NumChildren() {
			out = append(out, target{n.Child(i).Digest, refEager})
		}
		for i := range n.Len() {
			if n.Inline(i) {
				continue
			}
			e := n.Entry(i)
			typ := byte(refEager)
			if e.Priority == object.Lazy {
				typ = refLazy
			}
			out = append(out, target{e.Digest, typ})
		}
	}
	return out, nil
}

func (p *plan) addChunk(chunk []mention) error {
	if len(chunk) == 0 {
		return nil
	}
	return p.db.View(func(tx index.Tx) error {
		for i := range chunk {
			if err := p.addRecord(tx, &chunk[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

func (p *plan) addRecord(tx index.Tx, m *mention) error {
	o := m.o
	switch o.kind {
	case recPlaces:
		for i := range o.sync.places {
			if err := p.addPlace(tx, &o.sync.places[i].Digest, &o.sync.places[i].Place); err != nil {
				return err
			}
		}
		return nil
	case recUnplaced, recDropped:
		for i := range o.sync.digests {
			var err error
			if d := &o.sync.digests[i]; o.kind == recUnplaced {
				err = p.addPlace(tx, d, nil)
			} else {
				err = p.addObject(tx, o, d)
			}
			if err != nil {
				return err
			}
		}
		return nil
	case recRows:
		return nil // see restoring
	case recTag, recTagReceived, recTagSynced, recMetadata, recStatus, recPruned, recComplete, recCommit, recExplain:
		step := plannedStep{o: o}
		var err error
		if o.kind == recCommit {
			step.root, err = p.number(tx, &o.commit.Root)
		} else if o.kind == recExplain {
			step.root, err = p.number(tx, &o.digest)
		}
		p.history = append(p.history, step)
		return err
	}
	n, err := p.number(tx, &o.digest)
	if err != nil {
		return err
	}
	if m.absent {
		return nil
	}
	if o.stored() {
		if err := p.addObject(tx, o, &o.digest); err != nil {
			return err
		}
	}
	for i := range m.targets {
		t := &m.targets[i]
		dest, err := p.number(tx, &t.digest)
		if err != nil {
			return err
		}
		p.refs = append(p.refs, newRef(refKey{dest, t.typ}, n))
	}
	return nil
}

// addPlace plans the place of a piece; nil: it has none.
func (p *plan) addPlace(tx index.Tx, d *object.Digest, place *CloudPlace) error {
	n, err := p.number(tx, d)
	if err != nil {
		return err
	}
	row, _, err := readObjectRow(tx, d)
	p.places = append(p.places, plannedPlace{d, n, place})
	p.statuses = append(p.statuses, plannedStatus{n, row.held}) // until addObjects knows better
	return err
}

// addObject plans the row of a piece or node that a record stores or drops.
func (p *plan) addObject(tx index.Tx, o *op, d *object.Digest) error {
	n, err := p.number(tx, d)
	if err != nil {
		return err
	}
	planned := plannedObject{digest: d, stored: o, number: n}
	row, ok, err := readObjectRow(tx, d)
	if err == nil && o.kind == recDelta {
		planned.base, err = p.number(tx, o.base)
	}
	if err != nil {
		return err
	}
	if ok && (row.held || row.dead) {
		old := row
		if planned.old = &old; old.kind == recDelta && !reflects(p.reflected, old.place) {
			// An unfinished fold has written the row. The base may have another number now.
			d, known := numberDigest(tx, old.base)
			if !known {
				return badRow(bucketNumbers, fmt.Sprint(old.base), "no digest")
			}
			if old.base, err = p.number(tx, &d); err != nil {
				return err
			}
		}
	}
	p.objects = append(p.objects, planned)
	return nil
}

// rowOf returns the row of a digest after the records that mention or store it, in the order of the
// log.
func rowOf(planned []*plannedObject) objectRow {
	row := objectRow{number: planned[0].number}
	if old := planned[0].old; old != nil {
		row = *old
	}
	for _, o := range planned {
		if o.stored != nil {
			row = row.after(o.stored, o.base)
		}
	}
	return row
}

// after returns the row after a record that stores or drops the piece or node. The last record
// counts. But a difference counts only if it is the first record, or its base is the one that the
// row has: the base may be a difference to this node.
func (r objectRow) after(o *op, base uint64) objectRow {
	if o.kind == recDropped {
		return objectRow{number: r.number}
	}
	sameBase := o.kind == recDelta && r.kind == recDelta && r.base == base
	switch {
	case !r.held && !r.dead, o.kind != recDelta:
		return objectRow{number: r.number, held: true, kind: o.kind, place: o.place, depth: o.depth, base: base}
	case sameBase:
		r.place = o.place
	}
	r.held, r.dead = true, false
	return r
}

// reflects reports whether a place lies in a batch that a position reflects.
func reflects(p *segment.Position, place segment.Place) bool {
	i, ok := slices.BinarySearchFunc(p.Ends, place.Segment, func(e segment.End, id uint32) int { return cmp.Compare(e.Segment, id) })
	return ok && place.Offset < p.Ends[i].Offset
}

// number returns the page-local number of a digest and assigns one at its first mention (I6).
func (p *plan) number(tx index.Tx, d *object.Digest) (uint64, error) {
	if n := p.numbers[*d]; n != 0 {
		return n, nil
	}
	row, ok, err := readObjectRow(tx, d)
	if err != nil {
		return 0, err
	}
	n := row.number
	if !ok {
		n = p.next
		if n > maxNumber {
			return 0, fmt.Errorf("number piece %s: the page has too many pieces: %w", d.Short(), base.ErrTooLarge)
		}
		p.next++
		p.order = append(p.order, *d)
	}
	p.numbers[*d] = n
	return n, nil
}
