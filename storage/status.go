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

// unsyncedCommits remembers what Unsynced has found. Store.mu guards it.
type unsyncedCommits struct {
	found       bool
	changes     uint64               // of the overlay, when it was looked
	ids         []commit.ID          // not changed but replaced
	generations map[commit.ID]uint64 // of ids
}

func (s *Store) unsynced(ctx context.Context) ([]commit.ID, error) {
	changes := s.over.changesNow() // before anything is read
	s.mu.Lock()
	last := s.lastUnsynced // what it points to is not changed any more
	s.mu.Unlock()
	if last.found && last.changes == changes {
		return slices.Clone(last.ids), s.viewOnce(func(index.Tx) error { return nil }) // the page may be closed
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
		of, err := statusesIn(tx, pending)
		for id, st := range of {
			if st.unsynced {
				unsynced[id] = true
			} else {
				delete(unsynced, id)
			}
		}
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
	s.lastUnsynced = unsyncedCommits{true, changes, ids, generations}
	s.mu.Unlock()
	return slices.Clone(ids), nil
}

// commitStatus is what is known of a commit beside what it says. A commit that is not here has
// none.
type commitStatus struct{ here, unsynced, treeless, ahead bool }

// statusIn returns what the rows say of a commit.
func statusIn(tx index.Tx, id commit.ID) commitStatus {
	v := tx.Bucket(bucketTreeless).Get(id[:])
	return commitStatus{
		here: tx.Bucket(bucketCommits).Get(id[:]) != nil, unsynced: tx.Bucket(bucketUnsynced).Get(id[:]) != nil,
		treeless: v != nil, ahead: bytes.Equal(v, aheadRow),
	}
}

// statuses returns those of commits, durable or submitted.
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

// statusesIn returns those of all commits of which pending records say something.
func statusesIn(tx index.Tx, pending []pendingOp) (map[commit.ID]commitStatus, error) {
	of := map[commit.ID]commitStatus{}
	for _, o := range pending {
		switch o.kind {
		case recCommit:
			of[o.commit.ID] = commitStatus{}
			if tx.Bucket(bucketCommits).Get(o.commit.ID[:]) != nil { // mostly it is new: one look-up tells
				of[o.commit.ID] = statusIn(tx, o.commit.ID)
			}
		case recForgotten:
			for k := range rowsOf(tx, bucketCommits) {
				if len(k) != len(commit.ID{}) {
					return nil, badRow(bucketCommits, hex.EncodeToString(k), "bad key")
				}
				of[commit.ID(k)] = statusIn(tx, commit.ID(k))
			}
		default:
			for _, id := range o.sync.ids {
				of[id] = statusIn(tx, id)
			}
		}
	}
	for _, o := range pending {
		applyStatus(o.op, of)
	}
	return of, nil
}

// applyStatus lets the statuses of some commits follow a record, as a fold lets the rows.
func applyStatus(o *op, of map[commit.ID]commitStatus) {
	change := func(id commit.ID, change func(st *commitStatus)) {
		if st, ok := of[id]; ok && st.here {
			change(&st)
			of[id] = st
		}
	}
	switch o.kind {
	case recCommit:
		id := o.commit.ID
		st, ok := of[id]
		switch {
		case !ok:
		case !st.here:
			of[id] = commitStatus{here: true, unsynced: o.origin == originLocal, treeless: o.origin >= originTreeless, ahead: o.origin == originAhead}
		case st.ahead && o.origin != originAhead: // see promoteCommit
			st.treeless, st.ahead = o.origin == originTreeless, false
			of[id] = st
		}
	case recStatus:
		for _, id := range o.sync.ids {
			change(id, func(st *commitStatus) {
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
			})
		}
	case recPruned:
		for _, id := range o.sync.ids {
			change(id, func(st *commitStatus) { *st = commitStatus{} })
		}
	case recForgotten:
		for id := range of {
			change(id, func(st *commitStatus) { st.unsynced = true })
		}
	}
}

// writeStatus gives commits a status. Commits that are not there have none.
func writeStatus(tx index.Tx, st *state, y *syncOp) error {
	if y.status == statusInner {
		return dropHeads(tx, st, y.ids)
	}
	for _, id := range y.ids {
		if err := writeStatusOf(tx, id, y.status); err != nil {
			return err
		}
	}
	return nil
}

func writeStatusOf(tx index.Tx, id commit.ID, status byte) error {
	v := tx.Bucket(bucketCommits).Get(id[:])
	if v == nil {
		return nil
	}
	switch status {
	case statusSynced:
		return tx.Bucket(bucketUnsynced).Delete(id[:])
	case statusTree:
		return tx.Bucket(bucketTreeless).Delete(id[:])
	case statusHoles:
		return tx.Bucket(bucketTreeless).Put(bytes.Clone(id[:]), nil)
	case statusUnexplained:
		return dropExplanation(tx, id)
	}
	c, err := parseCommitRow(id[:], v)
	if err != nil {
		return err
	}
	return tx.Bucket(bucketUnsynced).Put(c.ID[:], unsyncedRow(c))
}
