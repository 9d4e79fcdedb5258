package replica

import (
	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/object"
)

// passed says how far a gatherer came: all of that has a place once the packs under way have
// arrived. The call of Next behind an announcement goes on from there, so that a value of any size,
// and any number of them, is looked through once.
type passed struct {
	portions map[portion]reach
	pieces   map[object.Digest]passedPiece
}

// portion is what a difference puts with a priority.
type portion struct {
	from, to object.Digest
	priority object.Priority
	put      bool // as in delta
}

// reach is how far a portion was gone through.
type reach struct {
	all    bool
	key    []byte // of the last value
	values int64
	bytes  int64
}

// passedPiece is an index piece, with all that it lists.
type passedPiece struct {
	digest object.Digest
	again  bool  // it went up again where it had a place
	bytes  int64 // of content
}

func newPassed() *passed {
	return &passed{portions: map[portion]reach{}, pieces: map[object.Digest]passedPiece{}}
}

// note notes an index piece. Only the last ones are remembered.
func (p *passed) note(q passedPiece) {
	if len(p.pieces) >= maxKnown {
		clear(p.pieces)
	}
	p.pieces[q.digest] = q
}

func portionOf(d *delta, priority object.Priority) portion {
	return portion{d.from.Root, d.to.Root, priority, d.put}
}

// add adds a value that was gone through.
func (r *reach) add(e *btree.DiffEntry) {
	r.key, r.values, r.bytes = e.Key, r.values+1, r.bytes+int64(e.Right.Size)
}

// behind returns the first key that was not gone through, nil for all.
func (r *reach) behind() []byte {
	if r.key == nil {
		return nil
	}
	return append(r.key[:len(r.key):len(r.key)], 0)
}
