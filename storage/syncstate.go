package storage

import (
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage/index"
)

// pieceState is the state of a piece of a value. Each record of the log changes it to the next
// state (see step).
type pieceState struct {
	held   bool
	at     located // valid when held
	placed bool
	place  CloudPlace // valid when placed
}

// store applies a record that stores the piece or node: the last one counts, as objectRow.after says.
func (st *pieceState) store(at located) {
	if !st.held || at.kind != recDelta { // with the same base, both places are right
		st.held, st.at = true, at
	}
}

func (st *pieceState) put(p CloudPlace) { st.placed, st.place = true, p }

// unplace removes the place: a held piece is local again.
func (st *pieceState) unplace() { st.placed, st.place = false, CloudPlace{} }

// drop gives the content up if the bucket has it (I8). At this point the order of records is fixed,
// and nothing can intervene.
func (st *pieceState) drop() {
	if st.placed {
		st.held, st.at = false, located{}
	}
}

// apply applies the pending records after the batch with number behind.
func (st *pieceState) apply(events []pieceEvent, behind uint64) {
	for i := range events {
		e := &events[i]
		if e.number <= behind {
			continue
		}
		switch e.kind {
		case recPiece, recNode, recDelta:
			st.store(e.stored)
		case recPlaces:
			st.put(e.place)
		case recUnplaced:
			st.unplace()
		case recDropped:
			st.drop()
		case recDeleted: // the place stays
			st.held, st.at = false, located{}
		}
	}
}

// readPieceState returns the state of a piece in the rows, whose number is 0 when it has no row.
// Object rows may be ahead of the position of the index, since a fold writes them first; reflected,
// if not nil, decides which rows count.
func readPieceState(tx index.Tx, d *object.Digest, reflected func(*objectRow) bool) (st pieceState, row objectRow, err error) {
	row, ok, err := readObjectRow(tx, d)
	if err != nil || !ok {
		return st, row, err
	}
	if row.held && (reflected == nil || reflected(&row)) {
		if st.at, err = locatedRow(tx, &row); err != nil {
			return st, row, err
		}
		st.held = true
	}
	st.place, st.placed, err = readCloudRow(tx, d, row.number)
	return st, row, err
}

// stateOf is statesOf for one piece.
func (s *Store) stateOf(d *object.Digest) (pieceState, error) {
	states, err := s.statesOf([]object.Digest{*d})
	return states[0], err
}

// statesOf returns the states of pieces by durable records and submitted ones, except that
// submitted drops do not count.
func (s *Store) statesOf(ds []object.Digest) ([]pieceState, error) {
	states := make([]pieceState, len(ds))
	for {
		events, folds := s.over.events(ds) // read before the rows: a fold may move them there meanwhile
		err := s.view(func(tx index.Tx) (err error) {
			var is state
			if len(events) > 0 {
				if is, err = parseState(tx.Bucket(bucketState).Get(stateKey)); err != nil {
					return err
				}
			}
			for i := range ds {
				var reflected func(*objectRow) bool
				if events[i] != nil {
					reflected = func(row *objectRow) bool { return reflects(&is.position, row.place) }
				}
				if states[i], _, err = readPieceState(tx, &ds[i], reflected); err != nil {
					return err
				}
				states[i].apply(events[i], is.position.Number)
			}
			return nil
		})
		if err != nil || !s.over.foldedSince(folds) {
			return states, err
		}
	}
}

// PieceState returns the state of d, durable and submitted. It does not read the piece. Errors
// match base.ErrCorrupt or base.ErrClosed.
func (s *Store) PieceState(d object.Digest) (PieceState, error) {
	if d.Kind().IsNode() {
		held, err := s.has(&d)
		return PieceState{Held: held}, err
	}
	st, err := s.stateOf(&d)
	if err != nil {
		return PieceState{}, fmt.Errorf("look piece %s up: %w", d.Short(), err)
	}
	return PieceState{Held: st.held, Synced: st.placed, Place: st.place}, nil
}

// pendingOp is a pending record with the number of its batch at the time of the look-up.
type pendingOp struct {
	number uint64 // 0 while the batch is not durable
	*op
}

// pendingSync returns the pending records about commits, tags and metadata for which wanted is
// true, in the order of the log. With submitted, the records that are not durable yet follow. folds
// is for foldedSince.
func (s *Store) pendingSync(submitted bool, wanted func(*op) bool) (out []pendingOp, folds uint64) {
	pick := func(o *op) {
		if wanted(o) {
			out = append(out, pendingOp{o.number, o})
		}
	}
	s.mu.RLock() // no group becomes durable meanwhile
	defer s.mu.RUnlock()
	folds = s.over.eachSyncLocked(pick)
	if !submitted {
		return out, folds
	}
	for _, g := range []*group{s.appending, s.group} {
		if g == nil {
			continue
		}
		for _, ops := range g.parts {
			for i := range ops {
				if forSync(ops[i].kind) {
					pick(&ops[i])
				}
			}
		}
	}
	return out, folds
}

// The selections of records for pendingSync.
var (
	ofCommits = func(o *op) bool {
		return o.kind == recCommit || o.kind == recStatus || o.kind == recPruned
	}
	ofTags = func(o *op) bool {
		return o.kind == recTag || o.kind == recTagReceived || o.kind == recTagSynced
	}
)

// viewPending calls fn with a state of the rows and the wanted pending records that this state does
// not reflect.
func (s *Store) viewPending(submitted bool, wanted func(*op) bool, fn func(tx index.Tx, pending []pendingOp) error) error {
	for {
		pending, folds := s.pendingSync(submitted, wanted) // read before the rows: a fold may move them there meanwhile
		err := s.view(func(tx index.Tx) error {
			if len(pending) == 0 {
				return fn(tx, nil)
			}
			st, err := parseState(tx.Bucket(bucketState).Get(stateKey))
			if err != nil {
				return err
			}
			i := 0
			for i < len(pending) && pending[i].number != 0 && pending[i].number <= st.position.Number {
				i++
			}
			return fn(tx, pending[i:])
		})
		// Records that were not durable may be in the rows by now.
		if err != nil || !submitted || !s.over.foldedSince(folds) {
			return err
		}
	}
}

// TreeHeld reports whether the page holds the tree of a commit; values do not count. A tree may be
// absent for treeless commits until it is rebuilt, or have holes since it was damaged. Otherwise a
// stored root follows all nodes below it. Errors match base.ErrCorrupt, also when a tree is absent
// that must be held, or base.ErrClosed.
func (s *Store) TreeHeld(ctx context.Context, c *commit.Commit) (bool, error) {
	if c.Root == btree.EmptyRoot {
		return true, nil
	}
	held, err := s.has(&c.Root)
	if err == nil && held {
		var treeless bool
		if treeless, err = s.hasTreelessRow(c.ID); err == nil && treeless {
			return s.TreeWhole(ctx, c)
		}
	}
	if err != nil || held {
		return held, err
	}
	st, err := s.statuses([]commit.ID{c.ID})
	if err != nil || st[c.ID].treeless {
		return false, err
	}
	if _, err = s.find(&c.Root, s); errors.Is(err, base.ErrNeedsFetch) {
		return false, nil // the treeless status was lost, and was found in the log
	}
	return err == nil, err
}
