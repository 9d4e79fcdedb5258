package ledger

import (
	"context"
	"fmt"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/internal/cloudlink"
)

// cloudPage returns the cloud state of an open page.
func (s *pageStore) cloudPage() *cloudlink.Page {
	p := cloudlink.PageOptions{
		Page: s.key, Name: s.name, Store: s.store, Arrived: func() { s.merger.Want(true) }, InUse: s.positions,
		Collect: func(ctx context.Context) error { return s.collector.All(ctx, nil) },
	}
	if o := &s.repo.o; !o.ManualMerge || o.Sync.Merge {
		p.Merge = func(ctx context.Context) error {
			_, err := s.merger.Merge(ctx)
			return err
		}
	}
	return s.repo.cloud.Page(p)
}

// withSync calls fn with the syncer of the page, for a call on p. what names the work in errors;
// with "" the error stays as it is. fn's context ends when p closes.
func (p *Page) withSync(ctx context.Context, what string, fn func(context.Context, *cloudsync.Page) error) error {
	return p.in.Call(ctx, func(ctx context.Context) error { return p.shared.withSync(ctx, what, fn) })
}

// withSync is Page.withSync for a caller that has entered and whose context ends with its handle.
func (s *pageStore) withSync(ctx context.Context, what string, fn func(context.Context, *cloudsync.Page) error) error {
	err := s.cloud.Do(ctx, fn)
	s.note(err)
	if err != nil && what != "" {
		return fmt.Errorf("%s: %w", what, err)
	}
	return err
}

// Sync returns when the bucket has everything committed to the page before the call, and the page
// has everything that was in the bucket before the call, merged unless Options.ManualMerge is set
// (see SyncOptions.Merge). It works in pause too. A merge that needs versions which were given up
// has to be made before anything is sent: with Options.ManualMerge, Sync then returns ErrConflict.
//
// Errors: ErrNoCloud, ErrWrongKey, ErrNetwork (the bucket cannot be reached after some tries),
// ErrNoSpace and fs.ErrPermission (also those of the bucket), ErrCloudRolledBack, ErrCloudReplaced,
// ErrCorrupt (an object in the bucket, named), *MergeError, ErrReadOnly, ErrClosed, those of ctx.
func (p *Page) Sync(ctx context.Context) error {
	return p.withSync(ctx, "", func(ctx context.Context, s *cloudsync.Page) error { return s.Sync(ctx) })
}

// WaitSynced returns when a commit is in the bucket. WaitSynced only waits: background sync or a
// call to Sync does the work. Errors: ErrNotFound (no such commit), ErrNoCloud, ErrWrongKey,
// ErrReadOnly, ErrClosed, those of ctx.
func (p *Page) WaitSynced(ctx context.Context, id CommitID) error {
	if _, err := p.in.Commit(ctx, id); err != nil {
		return fmt.Errorf("wait for commit %s to be synced: %w", id.Short(), err)
	}
	return p.withSync(ctx, "wait for a commit to be synced", func(ctx context.Context, s *cloudsync.Page) error {
		return s.WaitSynced(ctx, id)
	})
}
