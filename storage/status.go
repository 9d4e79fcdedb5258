package storage

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"

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

// writeStatus gives commits a status. Commits that are not there have none.
func writeStatus(tx index.Tx, y *syncOp) error {
	for _, id := range y.ids {
		v := tx.Bucket(bucketCommits).Get(id[:])
		if v == nil {
			continue
		}
		var err error
		switch y.status {
		case statusSynced:
			err = tx.Bucket(bucketUnsynced).Delete(id[:])
		case statusTree:
			err = tx.Bucket(bucketTreeless).Delete(id[:])
		case statusHoles:
			err = tx.Bucket(bucketTreeless).Put(bytes.Clone(id[:]), nil)
		case statusUnsynced:
			c, perr := parseCommitRow(id[:], v)
			if perr != nil {
				return perr
			}
			err = tx.Bucket(bucketUnsynced).Put(c.ID[:], unsyncedRow(c))
		}
		if err != nil {
			return err
		}
	}
	return nil
}
