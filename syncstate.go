package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/storage"
)

// syncState returns the state of an open page.
func (s *pageStore) syncState() (out SyncState) {
	s.syncTurn <- struct{}{} // see endSync
	defer func() { <-s.syncTurn }()
	if s.sync == nil {
		out = s.unattachedState()
	} else {
		state := s.sync.State()
		out = newSyncState(&state)
	}
	s.repo.cloud.explain(&out)
	return out
}

// activityOf returns what a direction of sync does that has failed.
func activityOf(err error) SyncActivity { return SyncActivity(cloudsync.ActivityOf(err)) }

// unattachedState returns the state of a page that is not being synced.
func (s *pageStore) unattachedState() SyncState {
	out := SyncState{Ledger: s.key.Ledger, Name: s.name, Page: s.key.ID}
	file, _ := s.repo.cloud.get()
	if file == nil {
		return out
	}
	out.Paused = file.paused
	ctx := s.repo.gate.Life()
	if unsynced, err := s.store.Unsynced(ctx); err == nil { // else the page is being closed, or damaged: who reads it is told
		_ = out.setUnsynced(ctx, s.store, unsynced)
	}
	return out
}

// setUnsynced sets what the commits say that the bucket does not have.
func (s *SyncState) setUnsynced(ctx context.Context, store *storage.Store, unsynced []commit.ID) error {
	if s.Unsynced = len(unsynced); s.Unsynced > 0 && s.Upload == SyncIdle {
		s.Upload = SyncPending
	}
	for _, id := range unsynced {
		c, err := store.Known(ctx, id)
		if err != nil {
			return fmt.Errorf("read unsynced commit: %w", err)
		}
		if at := time.Unix(0, c.Timestamp).UTC(); s.OldestUnsynced.IsZero() || at.Before(s.OldestUnsynced) {
			s.OldestUnsynced = at
		}
	}
	return nil
}

// explain adds to a state that says no error what keeps all pages from being synced.
func (c *cloud) explain(s *SyncState) {
	if s.UploadErr != nil || s.DownloadErr != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	err, activity := c.err, SyncNeedsUser // a key or a file that is not as it should be
	if err != nil && c.wanted != nil {
		activity = activityOf(err) // also a network that is not there
	}
	if err == nil && c.failed.err != nil && s.LastSuccess.Before(c.failed.at) {
		err, activity = c.failed.err, activityOf(c.failed.err)
	}
	if err != nil {
		s.Upload, s.Download, s.UploadErr, s.DownloadErr = activity, activity, err, err
	}
}
