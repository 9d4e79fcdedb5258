package storage

import (
	"sync/atomic"

	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage/segment"
)

// wants coordinates journals and the collector. A journal does not store a piece that the page
// holds: it relies on it, and records that here before it looks the piece up. Before the collector
// deletes pieces, it dooms those on which no journal relies. A doomed piece is not held for a
// journal, which stores it again, after the deletion in the log.
type wants struct {
	doomed map[object.Digest]struct{} // guarded by Store.mu; pieces that are being deleted
	made   atomic.Uint64              // counts deletions
}

// maxRelied is the number of pieces and nodes that a journal records. A journal that relies on more
// relies on all.
const maxRelied = 1 << 15

// reliance is the set of pieces and nodes that a journal relies on, guarded by Store.mu.
type reliance struct {
	pieces map[object.Digest]struct{}
	all    bool
}

func (r *reliance) add(d *object.Digest) {
	if r.all {
		return
	}
	if r.pieces == nil {
		r.pieces = map[object.Digest]struct{}{}
	}
	if r.pieces[*d] = struct{}{}; len(r.pieces) > maxRelied {
		r.pieces, r.all = nil, true
	}
}

func (r *reliance) has(d *object.Digest) bool {
	_, ok := r.pieces[*d]
	return ok || r.all
}

// want records that the journal relies on a piece, and reports false for one that is being deleted.
func (j *Journal) want(d *object.Digest) bool {
	j.s.mu.Lock()
	defer j.s.mu.Unlock()
	if _, ok := j.s.wants.doomed[*d]; ok {
		return false
	}
	j.relies.add(d)
	return true
}

// holds reports whether the page holds a piece, on which the journal relies from then on.
func (j *Journal) holds(d *object.Digest) (bool, error) {
	made := j.s.wants.made.Load()
	held, err := j.s.has(d)
	if err != nil || !held || !j.want(d) {
		return false, err
	}
	if j.s.wants.made.Load() == made {
		return true, nil
	}
	return j.s.has(d)
}

// relyOn relies on the nodes of a part that the page holds, and removes from held those that are
// gone; they may remain as bases. made is the count of deletions before the look-up; unsure are the
// nodes to examine more closely.
func (j *Journal) relyOn(p *journalPart, made uint64, held map[int]uint8, dead map[int]bool, unsure []int) error {
	w := &j.s.wants
	j.s.mu.Lock()
	for i := range held {
		if _, ok := w.doomed[p.ops[i].digest]; ok {
			delete(held, i)
			dead[i] = true
		} else {
			j.relies.add(&p.ops[i].digest)
		}
	}
	same := w.made.Load() == made
	j.s.mu.Unlock()
	if !same {
		for i := range held {
			unsure = append(unsure, i)
		}
		clear(held)
	}
	for _, i := range unsure {
		d := &p.ops[i].digest
		if dead[i] = true; !j.want(d) {
			continue
		}
		l, ok, err := j.s.locate(d, false)
		if err != nil {
			return err
		}
		if ok {
			held[i] = l.depth
			delete(dead, i)
		}
	}
	return nil
}

// logSpan is a part of a segment.
type logSpan struct {
	segment    uint32
	start, end uint64
}

// addSpan adds a span to a list, and merges it with the last one if they are adjacent.
func addSpan(spans []logSpan, s logSpan) []logSpan {
	if n := len(spans); n > 0 && spans[n-1].segment == s.segment && spans[n-1].end == s.start {
		spans[n-1].end = s.end
		return spans
	}
	return append(spans, s)
}

func inSpans(spans []logSpan, p segment.Place) bool {
	for _, s := range spans {
		if s.segment == p.Segment && s.start <= p.Offset && p.Offset < s.end {
			return true
		}
	}
	return false
}
