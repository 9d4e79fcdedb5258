package storage

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

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
		case recDeleted, recBuried:
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

// stateOf returns what is known of a piece: durable records, and those that were submitted and not
// only dropped it.
func (s *Store) stateOf(d *object.Digest) (pieceState, error) {
	for {
		events, folds := s.over.events(d) // read before the rows: a fold may move them there meanwhile
		var st pieceState
		err := s.view(func(tx index.Tx) (err error) {
			if len(events) == 0 {
				st, _, err = readPieceState(tx, d, nil)
				return err
			}
			is, err := parseState(tx.Bucket(bucketState).Get(stateKey))
			if err != nil {
				return err
			}
			st, _, err = readPieceState(tx, d, func(row *objectRow) bool { return reflects(&is.position, row.place) })
			st.apply(events, is.position.Number)
			return err
		})
		if err != nil || !s.over.foldedSince(folds) {
			return st, err
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
	if !submitted {
		folds = s.over.eachSync(pick)
		return out, folds
	}
	s.mu.Lock() // no group becomes durable meanwhile
	defer s.mu.Unlock()
	folds = s.over.eachSync(pick)
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

// Metadata returns the value of a row of sync_metadata, durable or submitted, nil when there is
// none. The slice is the caller's. Errors match base.ErrCorrupt or base.ErrClosed.
func (s *Store) Metadata(_ context.Context, typ string) (value []byte, err error) {
	wanted := func(o *op) bool {
		return o.kind == recForgotten && !staysForgotten(typ) || o.kind == recMetadata && o.sync.typ == typ
	}
	err = s.viewPending(true, wanted, func(tx index.Tx, pending []pendingOp) error {
		value = nil
		found := len(pending) > 0
		if found {
			value = bytes.Clone(pending[len(pending)-1].sync.value)
		}
		v := tx.Bucket(bucketMetadata).Get([]byte(typ))
		if found || v == nil {
			return nil
		}
		b, err := parseMetadataRow(typ, v)
		value = append([]byte{}, b...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read metadata %q: %w", typ, err)
	}
	return value, nil
}

// tagState are the tags of a page and the changes of them that were made here and are not in the
// bucket.
type tagState struct {
	tags map[string]commit.ID
	news map[string]*tagChange
}

// apply lets the tags follow a record.
func (ts *tagState) apply(o *op) {
	switch o.kind {
	case recTag:
		o.tag.apply(ts.tags)
		ts.news[o.tag.name] = o.tag
	case recTagReceived:
		if ts.news[o.tag.name] == nil {
			o.tag.apply(ts.tags)
		}
	case recTagSynced:
		if n := ts.news[o.tag.name]; n != nil && *n == *o.tag {
			delete(ts.news, o.tag.name)
		}
	case recForgotten:
		for name, id := range ts.tags {
			ts.news[name] = &tagChange{name: name, id: id}
		}
	}
}

// readTags returns the durable tags.
func (s *Store) readTags() (ts tagState, err error) {
	err = s.viewPending(false, ofTags, func(tx index.Tx, pending []pendingOp) error {
		ts = tagState{map[string]commit.ID{}, map[string]*tagChange{}}
		for k, v := range rowsOf(tx, bucketTags) {
			id, err := parseTagRow(string(k), v)
			if err != nil {
				return err
			}
			ts.tags[string(k)] = id
		}
		for k, v := range rowsOf(tx, bucketNewTags) {
			t, err := parseNewTagRow(string(k), v)
			if err != nil {
				return err
			}
			ts.news[t.name] = t
		}
		for _, o := range pending {
			ts.apply(o.op)
		}
		return nil
	})
	return ts, err
}

// UnsyncedTags returns the durable changes of tags that were made here and are not in the bucket,
// sorted by name. Errors match base.ErrCorrupt or base.ErrClosed.
func (s *Store) UnsyncedTags(context.Context) ([]TagChange, error) {
	ts, err := s.readTags()
	if err != nil {
		return nil, fmt.Errorf("list unsynced tags: %w", err)
	}
	out := make([]TagChange, 0, len(ts.news))
	for _, t := range ts.news {
		out = append(out, TagChange{Name: t.name, Commit: t.id, Removed: t.deleted})
	}
	slices.SortFunc(out, func(a, b TagChange) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// Unsynced returns the ids of the durable commits that the bucket does not have yet, by generation
// and then by id. Errors match base.ErrCorrupt or base.ErrClosed.
func (s *Store) Unsynced(ctx context.Context) ([]commit.ID, error) {
	ids, err := s.unsynced(ctx)
	if errors.Is(err, base.ErrCorrupt) && s.reindex(err.Error()) {
		return s.unsynced(ctx)
	}
	return ids, err
}

// unsyncedCommits remembers what Unsynced has found.
type unsyncedCommits struct {
	mu          sync.Mutex
	found       bool                 // guarded by mu, as all below
	changes     uint64               // of the overlay, when it was looked
	ids         []commit.ID          // not changed but replaced
	generations map[commit.ID]uint64 // of ids
}

// at returns a copy of what was found when the overlay had that number of changes.
func (u *unsyncedCommits) at(changes uint64) ([]commit.ID, bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.ids), u.found && u.changes == changes
}

func (s *Store) unsynced(ctx context.Context) ([]commit.ID, error) {
	changes := s.over.changesNow() // before anything is read
	if ids, ok := s.lastUnsynced.at(changes); ok {
		return ids, s.viewOnce(func(index.Tx) error { return nil }) // the page may be closed
	}
	var unsynced map[commit.ID]bool
	err := s.viewPending(false, ofCommits, func(tx index.Tx, pending []pendingOp) error {
		unsynced = map[commit.ID]bool{}
		for k := range rowsOf(tx, bucketUnsynced) {
			if len(k) != len(commit.ID{}) {
				return badRow(bucketUnsynced, hex.EncodeToString(k), "bad key")
			}
			unsynced[commit.ID(k)] = true
		}
		return s.applyStatuses(tx, pending, unsynced)
	})
	if err != nil {
		return nil, err
	}
	u := &s.lastUnsynced
	u.mu.Lock()
	known := u.generations
	u.mu.Unlock()
	generations := make(map[commit.ID]uint64, len(unsynced)) // known is not changed any more
	ids := make([]commit.ID, 0, len(unsynced))
	for id := range unsynced {
		generation, ok := known[id]
		if !ok {
			c, err := s.Commit(ctx, id)
			if errors.Is(err, base.ErrNotFound) {
				err = badRow(bucketUnsynced, id.String(), "a commit that is not there")
			}
			if err != nil {
				return nil, fmt.Errorf("unsynced commit: %w", err)
			}
			generation = c.Generation
		}
		generations[id] = generation
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b commit.ID) int {
		return cmp.Or(cmp.Compare(generations[a], generations[b]), a.Compare(b))
	})
	u.mu.Lock()
	u.found, u.changes, u.ids, u.generations = true, changes, ids, generations
	u.mu.Unlock()
	return slices.Clone(ids), nil
}

// applyStatuses lets the set of unsynced commits follow pending records.
func (s *Store) applyStatuses(tx index.Tx, pending []pendingOp, unsynced map[commit.ID]bool) error {
	rows := tx.Bucket(bucketCommits)
	come := map[commit.ID]bool{} // by pending records
	for _, o := range pending {
		switch {
		case o.kind == recCommit:
			id := o.commit.ID
			if o.origin != originLocal {
				delete(unsynced, id)
			} else if !come[id] && rows.Get(id[:]) == nil {
				unsynced[id] = true
			}
			come[id] = true
		case o.kind == recStatus && o.sync.status == statusSynced:
			for _, id := range o.sync.ids {
				delete(unsynced, id)
			}
		case o.kind == recStatus && o.sync.status == statusUnsynced:
			for _, id := range o.sync.ids {
				if come[id] || rows.Get(id[:]) != nil {
					unsynced[id] = true
				}
			}
		case o.kind == recPruned:
			for _, id := range o.sync.ids {
				delete(unsynced, id)
				delete(come, id)
			}
		case o.kind == recForgotten:
			for k := range rowsWith(rows, nil) {
				if len(k) != len(commit.ID{}) {
					return badRow(bucketCommits, hex.EncodeToString(k), "bad key")
				}
				if !s.over.isPruned(commit.ID(k)) {
					unsynced[commit.ID(k)] = true
				}
			}
			for id := range come {
				unsynced[id] = true
			}
		}
	}
	return nil
}

// commitStatus is what is known of a commit beside what it says.
type commitStatus struct{ unsynced, treeless, ahead bool }

// statuses returns those of commits that are there, durable or submitted.
func (s *Store) statuses(ids []commit.ID) (map[commit.ID]commitStatus, error) {
	var out map[commit.ID]commitStatus
	err := s.viewPending(true, ofCommits, func(tx index.Tx, pending []pendingOp) error {
		out = make(map[commit.ID]commitStatus, len(ids))
		for _, id := range ids {
			v := tx.Bucket(bucketTreeless).Get(id[:])
			out[id] = commitStatus{unsynced: tx.Bucket(bucketUnsynced).Get(id[:]) != nil, treeless: v != nil, ahead: bytes.Equal(v, aheadRow)}
		}
		for _, o := range pending {
			applyStatus(o.op, out)
		}
		return nil
	})
	return out, err
}

// applyStatus lets the statuses of some commits follow a record. A commit that is there and is said
// to come again was there, for the index or for an earlier record.
func applyStatus(o *op, of map[commit.ID]commitStatus) {
	switch o.kind {
	case recCommit:
		if st, ok := of[o.commit.ID]; ok {
			promoted := st.ahead && o.origin != originAhead
			of[o.commit.ID] = commitStatus{unsynced: o.origin == originLocal, treeless: st.treeless && !promoted || o.origin >= originTreeless, ahead: o.origin == originAhead}
		}
	case recStatus:
		for _, id := range o.sync.ids {
			st, ok := of[id]
			if !ok {
				continue
			}
			switch o.sync.status {
			case statusSynced:
				st.unsynced = false
			case statusUnsynced:
				st.unsynced = true
			case statusTree:
				st.treeless, st.ahead = false, false
			case statusHoles:
				st.treeless, st.ahead = true, false
			}
			of[id] = st
		}
	case recForgotten:
		for id, st := range of {
			st.unsynced = true
			of[id] = st
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
			return s.treeWhole(ctx, c.Root)
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
