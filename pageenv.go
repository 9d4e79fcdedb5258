package ledger

import (
	"context"
	"fmt"
	"time"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/merging"
	"github.com/ledgerd/ledger/internal/session"
	"github.com/ledgerd/ledger/merge"
	"github.com/ledgerd/ledger/object"
)

// sessionEnv returns the environment of the page's sessions. The page's merger is set later.
func (s *pageStore) sessionEnv() *session.Env {
	r := s.repo
	env := &session.Env{
		Store: s.store, Clock: r.clock, Logger: s.log(), Table: r.table.Load, Device: r.o.Device,
		JournalBytes: r.o.JournalBytes, ReadOnly: r.o.ReadOnly, Note: s.note, Near: s.near,
		WantMerge: func() { s.merger.Want(false) }, HasCloud: r.cloud.Has,
		Fetch: func(ctx context.Context, id commit.ID) error {
			return s.withSync(ctx, "fetch the tree of commit "+id.Short(), func(ctx context.Context, p *cloudsync.Page) error { return p.BuildTree(ctx, id) })
		},
		FetchPieces: func(ctx context.Context, pieces []object.Digest) (n int64, err error) {
			err = s.withSync(ctx, "fetch pieces of values", func(ctx context.Context, p *cloudsync.Page) error {
				n, err = p.Fetch(ctx, pieces)
				return err
			})
			return n, err
		},
	}
	if r.o.Observe != nil {
		env.Committed = s.committed
	}
	return env
}

// committed reports a commit to the observer.
func (s *pageStore) committed(c *commit.Commit, changes int, took time.Duration, err error) {
	st := s.store.Stats()
	e := Event{Kind: EventCommit, Commit: c.ID, Changes: changes, Duration: took, Syncs: st.Syncs, WrittenBytes: st.BytesWritten}
	if err != nil {
		e.Kind, e.Err = EventCommitFailed, err
	}
	s.observe(e)
}

// near is session.Env.Near.
func (s *pageStore) near(ctx context.Context, id commit.ID) ([]commit.ID, bool, error) {
	st, err := cloudsync.StandingOf(ctx, s.store)
	if err != nil {
		return nil, false, err
	}
	return st.Near(ctx, s.store, id)
}

// mergingEnv returns what the merger of the page needs.
func (s *pageStore) mergingEnv() merging.Env {
	r := s.repo
	return merging.Env{
		Session: s.env, Automatic: !r.o.ManualMerge && !r.o.ReadOnly, Jitter: r.jitter,
		Rules: func() merging.Rules { return r.rules.Of(s.key) },
		Fetch: func(ctx context.Context, id commit.ID) error {
			synced, err := s.cloud.Synced(ctx)
			if err != nil {
				return fmt.Errorf("%w: %w", ErrNeedsFetch, err)
			}
			return synced.BuildTree(ctx, id)
		},
		Merged: func(m merge.Merged, took time.Duration) {
			s.observe(Event{Kind: EventMerge, Commit: m.Commit.ID, Changes: m.Conflicts, Duration: took})
		},
		Failed: func(err error) { s.observe(Event{Kind: EventMergeFailed, Err: err}) },
	}
}
