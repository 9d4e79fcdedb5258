package storage

import (
	"context"
	"encoding/hex"
	"slices"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/storage/index"
)

// Merges returns the ids of the merge commits whose parents are exactly a and b, in any order,
// durable or submitted, as the rows of the family merges have them.
func (s *Store) Merges(_ context.Context, a, b commit.ID) ([]commit.ID, error) {
	if a.Compare(b) > 0 {
		a, b = b, a
	}
	pending := s.over.mergesOf(a, b) // read before the rows: a fold may move them there meanwhile
	var ids []commit.ID
	prefix := mergeKey(a, b, commit.ID{})[:2*len(a)]
	err := s.view(func(tx index.Tx) error {
		ids = nil
		for k := range rowsWith(tx.Bucket(bucketMerges), prefix) {
			if len(k) != len(prefix)+len(commit.ID{}) {
				return badRow(bucketMerges, hex.EncodeToString(k), "bad key")
			}
			if id := commit.ID(k[len(prefix):]); !s.over.isPruned(id) {
				ids = append(ids, id)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, id := range pending {
		if !s.over.isPruned(id) {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, commit.ID.Compare)
	return slices.Compact(ids), nil
}

// mergesOf returns the merges of two commits.
func (ov *overlay) mergesOf(a, b commit.ID) (ids []commit.ID) {
	ov.mu.RLock()
	defer ov.mu.RUnlock()
	for _, p := range ov.commits.Items() {
		if slices.Equal(p.commit.Parents, []commit.ID{a, b}) {
			ids = append(ids, p.id)
		}
	}
	return ids
}
