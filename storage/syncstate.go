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

// pieceState is what is known of a piece of a value. The records of the log lead from one to the
// next (see step).
type pieceState struct {
	held   bool
	at     located // valid when held
	placed bool
	place  CloudPlace // valid when placed
	local  bool       // never together with placed
}

// store notes a record that stores the piece: the first one counts since the piece was dropped
// last. One that belongs to no journal was fetched; when the piece has no place any more, it is
// local.
func (st *pieceState) store(at located, fetched bool) {
	if !st.held {
		st.held, st.at = true, at
	}
	if fetched && !st.placed {
		st.local = true
	}
}

func (st *pieceState) put(p CloudPlace) { st.placed, st.place, st.local = true, p, false }

// unplace takes the place away: what is held is local again.
func (st *pieceState) unplace() {
	if st.placed {
		st.placed, st.place, st.local = false, CloudPlace{}, st.held
	}
}

// drop gives the content up if the bucket has it (I8): here the order of the records is known, and
// nothing can come between.
func (st *pieceState) drop() {
	if st.placed {
		st.held, st.at = false, located{}
	}
}

// commit notes that a journal is committed which has stored or used the piece.
func (st *pieceState) commit() {
	if !st.placed {
		st.local = true
	}
}

// apply lets st follow what pending records behind a batch say.
func (st *pieceState) apply(events []pieceEvent, behind uint64) {
	for i := range events {
		e := &events[i]
		if e.number <= behind {
			continue
		}
		switch e.kind {
		case recPiece, recNode, recDelta:
			st.store(e.stored, false)
		case recPlaces:
			st.put(e.place)
		case recUnplaced, recForgotten:
			st.unplace()
		case recDropped:
			st.drop()
		case recDeleted:
			*st = pieceState{}
		}
	}
}

// readPieceState returns what the rows say of a piece, whose number is 0 when there is no row of
// it. Rows of objects may be ahead of what the index reflects, since a fold writes them before;
// reflected, if not nil, says what counts.
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

// statesOf returns what is known of pieces: durable records, and those that were submitted and not
// only dropped them.
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

// PieceState returns what the page knows of d, durable and submitted. It does not read the piece.
// Errors match base.ErrCorrupt or base.ErrClosed.
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

// pendingOp is a pending record with the number of its batch at the time when it was looked at.
type pendingOp struct {
	number uint64 // 0 while the batch is not durable
	*op
}

// pendingSync returns those of the pending records about commits, tags and metadata that wanted is
// true for, in the order of the log, and, if submitted is set, behind them those that are not
// durable yet. folds is for foldedSince.
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

// What records are wanted of pendingSync.
var (
	ofCommits = func(o *op) bool {
		return o.kind == recCommit || o.kind == recStatus || o.kind == recForgotten || o.kind == recPruned
	}
	ofTags = func(o *op) bool {
		return o.kind == recTag || o.kind == recTagReceived || o.kind == recTagSynced || o.kind == recForgotten
	}
)

// viewPending calls fn with a state of the rows and those of the wanted pending records that it
// does not reflect.
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
		// What was not durable may be in the rows by now.
		if err != nil || !submitted || !s.over.foldedSince(folds) {
			return err
		}
	}
}

// TreeHeld reports whether the tree of a commit is here, and not which values: the tree may be
// absent for commits that came treeless, until it is rebuilt, or have holes since they were
// damaged. Else a root is stored behind all nodes below it. Errors match base.ErrCorrupt, also when
// a tree is absent that must be here, or base.ErrClosed.
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
		return false, nil // what said so was lost, and was found in the log
	}
	return err == nil, err
}
