package ingest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/storage"
)

// tags takes changes of tags. Changes in an entry of this device's own that are as they were made
// here are synced by it. A tag of a commit that was given up here is passed over; shallow says that
// all that are not here were.
func (s *step) tags(ctx context.Context, b *format.Body, own, shallow bool) error {
	if len(b.Tags) == 0 {
		return nil
	}
	var unsynced []storage.TagChange
	if own {
		var err error
		if unsynced, err = s.p.o.Store.UnsyncedTags(ctx); err != nil {
			return fmt.Errorf("read tags: %w", err)
		}
	}
	for i := range b.Tags {
		t, err := s.tag(ctx, &b.Tags[i])
		var none *UnknownCommitError
		if errors.Is(err, base.ErrGone) || shallow && errors.As(err, &none) {
			continue
		}
		if err != nil {
			return fmt.Errorf("tag %d: %w", i, err)
		}
		if slices.Contains(unsynced, t) {
			s.b.SyncedTags = append(s.b.SyncedTags, t)
		} else {
			s.b.Tags = append(s.b.Tags, t)
		}
	}
	return nil
}

func (s *step) tag(ctx context.Context, t *format.TagChange) (storage.TagChange, error) {
	if len(t.Name) == 0 || len(t.Name) > limits.MaxTagBytes {
		return storage.TagChange{}, bad("name of %d bytes", len(t.Name))
	}
	if t.Removed {
		return storage.TagChange{Name: t.Name, Removed: true}, nil
	}
	c, _, err := s.find(ctx, t.Commit)
	if err != nil {
		return storage.TagChange{}, err
	}
	if c == nil {
		return storage.TagChange{}, unknown("its commit", t.Commit)
	}
	return storage.TagChange{Name: t.Name, Commit: t.Commit}, nil
}
