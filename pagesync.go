package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// opened is called once the store of s is open: it begins to sync it, or has the first read of what
// is not here do so.
func (s *pageStore) openedForSync(ctx context.Context) {
	r := s.repo
	file, link := r.cloud.get()
	if file == nil || r.o.ReadOnly {
		return
	}
	if link == nil {
		s.store.SetFetcher(lateFetcher{s})
		return
	}
	if _, err := s.attach(ctx, link, false); err != nil {
		r.o.Logger.Warn("a page cannot be synced", "ledger", s.key.Ledger, "page", PageID(s.key.ID).String(), "error", err)
	}
}

// lateFetcher connects to the cloud when a piece is read that is not here.
type lateFetcher struct{ s *pageStore }

// Fetch implements storage.Fetcher.
func (f lateFetcher) Fetch(ctx context.Context, d object.Digest, _ storage.CloudPlace) ([]byte, error) {
	if _, err := f.FetchAll(ctx, []object.Digest{d}); err != nil {
		return nil, err
	}
	return f.s.store.Piece(ctx, d)
}

// FetchAll implements storage.Fetcher.
func (f lateFetcher) FetchAll(ctx context.Context, ds []object.Digest) (int64, error) {
	synced, err := f.s.synced(ctx)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrNeedsFetch, err)
	}
	return synced.Fetch(ctx, ds)
}

// synced returns what syncs the page, connecting and beginning where that is needed. Errors: those
// of connect, ErrCloudReplaced.
func (s *pageStore) synced(ctx context.Context) (*cloudsync.Page, error) {
	link, err := s.repo.connect(ctx)
	if err != nil {
		return nil, err
	}
	return s.attach(ctx, link, false)
}

// syncedInTurn is synced for who has the cloud's turn.
func (s *pageStore) syncedInTurn(ctx context.Context) (*cloudsync.Page, error) {
	link, err := s.repo.connectInTurn(ctx)
	if err != nil {
		return nil, err
	}
	return s.attach(ctx, link, true)
}

// attach begins to sync the page with the bucket of link. A page that has been synced with another
// bucket forgets that first, when nothing is lost by it; anyhow says that it is wanted whatever it
// has been synced with.
func (s *pageStore) attach(ctx context.Context, link *cloudLink, anyhow bool) (*cloudsync.Page, error) {
	select {
	case s.syncTurn <- struct{}{}:
		defer func() { <-s.syncTurn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("begin to sync: %w", ctx.Err())
	}
	if s.sync != nil && s.syncLink == link {
		return s.sync, nil
	}
	if s.syncEnded {
		return nil, errPageClosed
	}
	if s.sync != nil {
		if err := s.sync.Close(); err != nil {
			return nil, err
		}
		s.sync = nil
	}
	if !anyhow {
		if err := s.forgetOther(ctx, link.id()); err != nil {
			return nil, err
		}
	}
	s.sync, s.syncLink = link.syncer.OpenPage(s.syncOptions()), link
	return s.sync, nil
}

// forgetOther makes a page that has been synced with another bucket one that has not.
func (s *pageStore) forgetOther(ctx context.Context, id format.ID) error {
	at, err := cloudsync.StandingOf(ctx, s.store)
	if err != nil || !at.At.Joined() || format.ID(at.Bucket) == id {
		return err
	}
	if err := s.store.ForgetCloud(ctx, true); err != nil {
		return fmt.Errorf("the page was synced with bucket %s, and the present one is %s: %w: %w", hexOf(at.Bucket), hexOf(id), ErrCloudReplaced, err)
	}
	return nil
}

func (s *pageStore) syncOptions() cloudsync.PageOptions {
	o := &s.repo.o
	p := cloudsync.PageOptions{Store: s.store, Ledger: s.key.Ledger, Name: s.name, Arrived: func() { s.merger.want(true) }, InUse: s.positions,
		Collect: func(ctx context.Context) error { return s.collector.All(ctx, nil) }}
	p.Plain, p.Again = s.repo.keysUnder(s.key, UploadRule.compressionOff), s.repo.keysUnder(s.key, UploadRule.dedupOff)
	if !o.Merge.Manual || o.Sync.Merge {
		p.Merge = func(ctx context.Context, _ []commit.ID) error {
			_, err := s.merger.attempt(ctx) // which merges alone what the store says
			return err
		}
	}
	return p
}

// detach ends the syncing of the page, for now.
func (s *pageStore) detach() error { return s.endSync(false) }

// endSync ends the syncing of the page, for good when its store is about to close.
func (s *pageStore) endSync(ever bool) error {
	s.syncTurn <- struct{}{} // it is never held for longer than a page takes to begin or end
	defer func() { <-s.syncTurn }()
	s.syncEnded = s.syncEnded || ever
	if s.sync == nil {
		return nil
	}
	link := s.syncLink
	state := s.sync.State()
	err := s.sync.Close()
	if !ever {
		s.store.SetFetcher(lateFetcher{s})
	}
	s.repo.cloud.mu.Lock()
	if link != nil && s.repo.cloud.link == link {
		s.repo.cloud.record.note(&state)
	}
	s.repo.cloud.mu.Unlock()
	s.sync, s.syncLink = nil, nil
	return err
}

// withSync calls fn with what syncs the page, for a call on p. what is the work for the text of an
// error, "" where the error says it. What fn waits for ends when p closes.
func (p *Page) withSync(ctx context.Context, what string, fn func(context.Context, *cloudsync.Page) error) error {
	if err := p.enter(); err != nil {
		return err
	}
	defer p.leave()
	call := p.gate.Call(ctx)
	defer call.Release()
	err := p.shared.trySync(call, fn)
	for n := 0; n < changesOfCloud && errors.Is(err, ErrClosed) && !p.gate.Closed(); n++ {
		// Not the page has ended, but its syncing with a cloud that is being changed for another,
		// or for none.
		release, turnErr := p.ledger.repo.cloud.take(call)
		if turnErr != nil {
			err = turnErr
			break
		}
		release()
		err = p.shared.trySync(call, fn)
	}
	if err != nil {
		p.note(err)
		if what != "" {
			err = fmt.Errorf("%s: %w", what, err)
		}
		return call.Explain(err)
	}
	return nil
}

// changesOfCloud is how often a call begins anew because the cloud is changed.
const changesOfCloud = 3

func (s *pageStore) trySync(ctx context.Context, fn func(context.Context, *cloudsync.Page) error) error {
	synced, err := s.synced(ctx)
	if err != nil {
		return err
	}
	return fn(ctx, synced)
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
	if _, err := p.durableCommit(ctx, commit.ID(id)); err != nil {
		return fmt.Errorf("wait for commit %s to be synced: %w", id.Short(), err)
	}
	return p.withSync(ctx, "wait for a commit to be synced", func(ctx context.Context, s *cloudsync.Page) error {
		return s.WaitSynced(ctx, commit.ID(id))
	})
}

// FetchHistory makes the content of an older commit readable here, and returns at once when it is.
// A device that began with a checkpoint knows the commits before it, but has no trees of them;
// reading such a commit fetches its tree by itself where the network is there. Errors: ErrNotFound
// (no such commit), ErrNeedsFetch (there is no cloud, or the repository is open for reading),
// ErrGone, ErrNetwork, those of Sync.
func (p *Page) FetchHistory(ctx context.Context, id CommitID) error {
	c, err := p.durableCommit(ctx, commit.ID(id))
	if err != nil {
		return fmt.Errorf("fetch history: %w", err)
	}
	return p.ensureTree(ctx, c)
}

// ensureTree makes the tree of a commit readable.
func (p *Page) ensureTree(ctx context.Context, c *commit.Commit) error {
	if file, _ := p.ledger.repo.cloud.get(); file == nil {
		return nil
	}
	if err := p.enter(); err != nil {
		return err
	}
	held, err := p.store.TreeHeld(ctx, c)
	p.leave()
	if err != nil || held {
		return err
	}
	return p.fetchTree(ctx, c.ID)
}

// fetchTree rebuilds a tree that is not here.
func (p *Page) fetchTree(ctx context.Context, id commit.ID) error {
	err := p.withSync(ctx, "fetch the tree of commit "+id.Short(), func(ctx context.Context, s *cloudsync.Page) error {
		return s.BuildTree(ctx, id)
	})
	if errors.Is(err, ErrReadOnly) || errors.Is(err, ErrNoCloud) {
		return fmt.Errorf("%w: %w", ErrNeedsFetch, err)
	}
	return err
}
