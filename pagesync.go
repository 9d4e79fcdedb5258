package ledger

import (
	"context"
	"fmt"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/cloudlink"
)

// cloudPage returns what a page that was opened has of the cloud.
func (s *pageStore) cloudPage() *cloudlink.Page {
	p := cloudlink.PageOptions{
		Page: s.key, Name: s.name, Store: s.store, Arrived: func() { s.merger.Want(true) }, InUse: s.positions,
		Collect: func(ctx context.Context) error { return s.collector.All(ctx, nil) },
	}
	if o := &s.repo.o; !o.Merge.Manual || o.Sync.Merge {
		p.Merge = func(ctx context.Context, _ []commit.ID) error {
			_, err := s.merger.Merge(ctx) // which merges alone what the store says
			return err
		}
	}
	return s.repo.cloud.Page(p)
}

// withSync calls fn with what syncs the page, for a call on p. what is the work for the text of an
// error, "" where the error says it. What fn waits for ends when p closes.
func (p *Page) withSync(ctx context.Context, what string, fn func(context.Context, *cloudsync.Page) error) error {
	return p.in.Call(ctx, func(ctx context.Context) error { return p.shared.withSync(ctx, what, fn) })
}

// withSync is Page.withSync for a call that has entered, whose context ends with its handle.
func (s *pageStore) withSync(ctx context.Context, what string, fn func(context.Context, *cloudsync.Page) error) error {
	err := s.cloud.Do(ctx, fn)
	s.note(err)
	if err != nil && what != "" {
		return fmt.Errorf("%s: %w", what, err)
	}
	return err
}

// Sync returns when everything that was committed to the page before the call is in the bucket, and
// everything that was in the bucket before is here, merged unless Options.Merge.Manual says
// otherwise (see SyncOptions.Merge). It works in pause too.
//
// Errors: ErrNoCloud, ErrWrongKey, ErrNetwork (the bucket cannot be reached, after some tries),
// ErrNoSpace and fs.ErrPermission (of the bucket, too), ErrCloudRolledBack, ErrCloudReplaced,
// ErrCorrupt (an object in the bucket, named), *MergeError, ErrReadOnly, ErrClosed, those of ctx.
func (p *Page) Sync(ctx context.Context) error {
	return p.withSync(ctx, "", func(ctx context.Context, s *cloudsync.Page) error { return s.Sync(ctx) })
}

// WaitSynced returns when a commit is in the bucket. It starts nothing: in the background, or by
// Sync, it gets there. Errors: ErrNotFound (no such commit), ErrNoCloud, ErrWrongKey, ErrReadOnly,
// ErrClosed, those of ctx.
func (p *Page) WaitSynced(ctx context.Context, id CommitID) error {
	if _, err := p.in.Commit(ctx, id); err != nil {
		return fmt.Errorf("wait for commit %s to be synced: %w", id.Short(), err)
	}
	return p.withSync(ctx, "wait for a commit to be synced", func(ctx context.Context, s *cloudsync.Page) error {
		return s.WaitSynced(ctx, id)
	})
}

// FetchHistory makes the content of an older commit readable here, and returns at once when it is.
// A device that began with a checkpoint knows the commits before it, but has no trees of them;
// reading such a commit fetches its tree by itself where the network is there. Errors: ErrNotFound
// (no such commit), ErrNeedsFetch (there is no cloud, or the repository is open for reading),
// ErrGone, ErrNetwork, those of Sync.
func (p *Page) FetchHistory(ctx context.Context, id CommitID) error {
	return p.in.FetchHistory(ctx, id)
}
