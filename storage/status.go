package storage

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/storage/index"
)

// Unsynced returns the ids of the durable commits that the bucket does not have yet, by generation
// and then by id. Errors match base.ErrCorrupt or base.ErrClosed.
func (s *Store) Unsynced(ctx context.Context) ([]commit.ID, error) {
	ids, err := s.unsynced(ctx)
	if errors.Is(err, base.ErrCorrupt) && s.reindex(err.Error()) {
		return s.unsynced(ctx)
	}
	return ids, err
}

// IsUnsynced reports whether the bucket lacks a commit, which need not be durable yet. It is false
// for a commit that is not here. Errors: as Unsynced.
func (s *Store) IsUnsynced(_ context.Context, id commit.ID) (bool, error) {
	of, err := s.statuses([]commit.ID{id})
	return of[id].unsynced, err
}

// unsyncedCommits caches the result of Unsynced. Store.mu guards it.
type unsyncedCommits struct {
	found       bool
	changes     uint64               // the overlay's count of changes at that time
	indexes     uint64               // the count of indexes at that time
	upTo        uint64               // the last batch that was considered
	ids         []commit.ID          // replaced, never changed in place
	generations map[commit.ID]uint64 // of ids
}

func (s *Store) unsynced(ctx context.Context) ([]commit.ID, error) {
	changes := s.over.changesNow() // before anything is read
	s.mu.Lock()
	last := s.lastUnsynced // the data that it points to is immutable
	s.mu.Unlock()
	if last.found && last.changes == changes {
		return slices.Clone(last.ids), s.viewOnce(func(index.Tx) error { return nil }) // the page may be closed
	}
	next := unsyncedCommits{found: true, changes: changes, indexes: s.indexes.Load()}
	var unsynced map[commit.ID]bool
	err := s.viewPending(false, ofCommits, func(tx index.Tx, pending []pendingOp) (err error) {
		unsynced, err = next.find(tx, pending, &last)
		return err
	})
	if err != nil {
		return nil, err
	}
	generations := make(map[commit.ID]uint64, len(unsynced))
	ids := make([]commit.ID, 0, len(unsynced))
	for id := range unsynced {
		generation, ok := last.generations[id]
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
	s.mu.Lock()
	next.ids, next.generations = ids, generations
	s.lastUnsynced = next
	s.mu.Unlock()
	return slices.Clone(ids), nil
}

// find finds the commits, and sets upTo. If no batch has been folded that last has not considered,
// it only looks at later ones.
func (u *unsyncedCommits) find(tx index.Tx, pending []pendingOp, last *unsyncedCommits) (map[commit.ID]bool, error) {
	state, err := parseState(tx.Bucket(bucketState).Get(stateKey))
	if err != nil {
		return nil, err
	}
	unsynced, fresh := map[commit.ID]bool{}, pending
	if last.found && last.indexes == u.indexes && state.position.Number <= last.upTo {
		for _, id := range last.ids {
			unsynced[id] = true
		}
		for len(fresh) > 0 && fresh[0].number <= last.upTo {
			fresh = fresh[1:]
		}
	} else {
		for k := range rowsOf(tx, bucketUnsynced) {
			if len(k) != len(commit.ID{}) {
				return nil, badRow(bucketUnsynced, hex.EncodeToString(k), "bad key")
			}
			unsynced[commit.ID(k)] = true
		}
	}
	if u.upTo = state.position.Number; len(pending) > 0 {
		u.upTo = pending[len(pending)-1].number
	}
	for id, st := range statusesIn(tx, pending, fresh) {
		if st.unsynced {
			unsynced[id] = true
		} else {
			delete(unsynced, id)
		}
	}
	return unsynced, nil
}

// commitStatus is the status of a commit beside its content. The zero value is that of a commit
// which the page lacks.
type commitStatus struct{ here, unsynced, treeless, ahead bool }

// statusIn returns the status of a commit in the rows.
func statusIn(tx index.Tx, id commit.ID) (st commitStatus) {
	if st.here = tx.Bucket(bucketCommits).Get(id[:]) != nil; st.here { // mostly one look-up is enough
		v := tx.Bucket(bucketTreeless).Get(id[:])
		st.unsynced, st.treeless, st.ahead = tx.Bucket(bucketUnsynced).Get(id[:]) != nil, v != nil, bytes.Equal(v, aheadRow)
	}
	return st
}

// after returns the status of a commit after a record that names it. Readers apply it to pending
// records, a fold to the rows.
func (st commitStatus) after(o *op) commitStatus {
	switch {
	case o.kind == recCommit && !st.here:
		return commitStatus{here: true, unsynced: o.origin == originLocal, treeless: o.origin >= originTreeless, ahead: o.origin == originAhead}
	case !st.here, o.kind == recPruned:
		return commitStatus{}
	case o.kind == recCommit && st.ahead && o.origin != originAhead: // counts as new
		st.treeless, st.ahead = o.origin == originTreeless, false
	case o.kind == recCommit && o.origin != originLocal: // received although the app has made it too
		st.unsynced = false
	case o.kind != recStatus:
	case o.sync.status == statusSynced:
		st.unsynced = false
	case o.sync.status == statusUnsynced:
		st.unsynced = true
	case o.sync.status == statusTree:
		st.treeless, st.ahead = false, false
	case o.sync.status == statusHoles:
		st.treeless, st.ahead = true, false
	}
	return st
}

// write changes the rows of a commit from status st to next.
func (st commitStatus) write(tx index.Tx, c *commit.Commit, next commitStatus) error {
	if st.unsynced != next.unsynced {
		if err := setRow(tx.Bucket(bucketUnsynced), c.ID[:], next.unsynced, unsyncedRow(c)); err != nil {
			return err
		}
	}
	if st.treeless == next.treeless && st.ahead == next.ahead {
		return nil
	}
	var v []byte
	if next.ahead {
		v = aheadRow
	}
	return setRow(tx.Bucket(bucketTreeless), c.ID[:], next.treeless, v)
}

// statuses returns the statuses of commits, durable or submitted.
func (s *Store) statuses(ids []commit.ID) (of map[commit.ID]commitStatus, err error) {
	err = s.viewPending(true, ofCommits, func(tx index.Tx, pending []pendingOp) error {
		of = make(map[commit.ID]commitStatus, len(ids))
		for _, id := range ids {
			of[id] = statusIn(tx, id)
		}
		for _, o := range pending {
			applyStatus(o.op, of)
		}
		return nil
	})
	return of, err
}

// statusesIn returns the statuses of all commits that some of the pending records name.
func statusesIn(tx index.Tx, pending, some []pendingOp) map[commit.ID]commitStatus {
	of := map[commit.ID]commitStatus{}
	for _, o := range some {
		for _, id := range o.named() {
			of[id] = statusIn(tx, id)
		}
	}
	for _, o := range pending {
		applyStatus(o.op, of)
	}
	return of
}

// named returns the commits that a record of ofCommits is about.
func (o *op) named() []commit.ID {
	if o.kind == recCommit {
		return []commit.ID{o.commit.ID}
	}
	return o.sync.ids
}

// applyStatus applies a record to the statuses of some commits.
func applyStatus(o *op, of map[commit.ID]commitStatus) {
	for _, id := range o.named() {
		if st, ok := of[id]; ok {
			of[id] = st.after(o)
		}
	}
}

// writeStatus gives commits a status. Commits that the page lacks have none.
func writeStatus(tx index.Tx, st *state, o *op) error {
	if o.sync.status == statusInner {
		return dropHeads(tx, st, o.sync.ids)
	}
	for _, id := range o.sync.ids {
		if err := writeStatusOf(tx, id, o); err != nil {
			return err
		}
	}
	return nil
}

// writeStatusOf applies a record that names a commit to the commit's rows.
func writeStatusOf(tx index.Tx, id commit.ID, o *op) error {
	v := tx.Bucket(bucketCommits).Get(id[:])
	if v == nil {
		return nil
	}
	if o.kind == recStatus && o.sync.status == statusUnexplained {
		return dropExplanation(tx, id)
	}
	c, err := parseCommitRow(id[:], v)
	if err != nil {
		return err
	}
	was := statusIn(tx, id)
	return was.write(tx, c, was.after(o))
}
