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

// pieceState is the state of a piece.
type pieceState struct {
	held   bool
	at     located // valid when held
	placed bool
	place  CloudPlace // valid when placed
}

// apply applies pending records. Each sets what it is about, whatever the state before, so that
// they may be applied to rows that reflect some of them.
func (st *pieceState) apply(events []pieceEvent) {
	for i := range events {
		switch e := &events[i]; e.kind {
		case recPiece, recNode, recDelta: // the last one counts, as for objectRow.after
			if !st.held || e.kind != recDelta { // with the same base, both places are right
				st.held, st.at = true, e.located()
			}
		case recPlaces:
			st.placed, st.place = true, e.sync.places[e.i].Place
		case recUnplaced: // a held piece is local again
			st.placed, st.place = false, CloudPlace{}
		case recDropped, recDeleted: // the place stays
			st.held, st.at = false, located{}
		}
	}
}

// readPieceState returns the state of a piece in the rows.
func readPieceState(tx index.Tx, d *object.Digest) (st pieceState, err error) {
	row, ok, err := readObjectRow(tx, d)
	if err != nil || !ok {
		return st, err
	}
	if row.held {
		if st.at, err = locatedRow(tx, &row); err != nil {
			return st, err
		}
		st.held = true
	}
	st.place, st.placed, err = readCloudRow(tx, d, row.number)
	return st, err
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
	for folds := s.over.foldsNow(); ; {
		err := s.view(func(tx index.Tx) (err error) {
			for i := 0; err == nil && i < len(ds); i++ {
				states[i], err = readPieceState(tx, &ds[i])
			}
			return err
		})
		events, now := s.over.events(ds)
		if err != nil || now == folds { // else a fold has moved records to the rows
			for i := range events {
				states[i].apply(events[i])
			}
			return states, err
		}
		folds = now
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
// is that of foldsNow.
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
		if err != nil || !submitted || s.over.foldsNow() == folds {
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
