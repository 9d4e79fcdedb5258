package ledger

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/internal/cloudlink"
	"github.com/ledgerd/ledger/internal/presence"
)

// SyncState is the state of sync of one page. Upload and Download say what the two directions do,
// and UploadErr and DownloadErr why they fail. An attempt that came to no page at all, as without
// the key or the network, is told of each. Up and Down say how far the two directions are; while
// they rest, what they did the last time. Unsynced counts the commits that the bucket does not
// have. PageID(s.Page) is the id of the page. See cloudsync.PageState for all fields.
type SyncState = cloudsync.PageState

// What SyncState.Upload and Download say a direction is doing. Values are only ever added.
const (
	// SyncIdle has nothing to do.
	SyncIdle = cloudsync.Idle
	// SyncPending has something to do.
	SyncPending = cloudsync.Pending
	// SyncInProgress is doing it.
	SyncInProgress = cloudsync.InProgress
	// SyncFailing has failed and will try again.
	SyncFailing = cloudsync.Failing
	// SyncNeedsUser cannot go on without the user: credentials, quota, another bucket.
	SyncNeedsUser = cloudsync.NeedsUser
)

// SyncStates returns the states of the open pages of a repository with a cloud, those that are held
// open to sync them too, and of the pages whose syncing failed, sorted by ledger and page. Where
// nothing can be synced, as without the key, each state says why.
func (r *Repository) SyncStates() []SyncState {
	states, _ := r.syncStates()
	return states
}

// syncStates returns the states, and channels of which one is closed when they change.
func (r *Repository) syncStates() (out []SyncState, changed [2]<-chan struct{}) {
	return r.keeper.States(r.gate.Life())
}

// WatchSync tells the states of the open pages now and whenever one changes. Changes that come
// faster than the loop are told as one. The loop pulls, and nothing is held between. It ends with
// an error, as the last element: ErrClosed, those of ctx.
func (r *Repository) WatchSync(ctx context.Context) iter.Seq2[[]SyncState, error] {
	return func(yield func([]SyncState, error) bool) {
		for {
			err := ctx.Err()
			if r.gate.Closed() {
				err = fmt.Errorf("repository: %w", ErrClosed)
			}
			if err != nil {
				yield(nil, fmt.Errorf("watch sync: %w", err))
				return
			}
			states, changed := r.syncStates()
			if !yield(states, nil) {
				return
			}
			select {
			case <-changed[0]:
			case <-changed[1]:
			case <-ctx.Done():
			case <-r.gate.Life().Done():
			}
		}
	}
}

// PauseSync has nothing synced in the background until ResumeSync, in later runs too. Sync,
// Prefetch and reads of what is not here go on. What is under way is finished. Errors: ErrNoCloud,
// ErrReadOnly, ErrClosed, those of the file system and of ctx.
func (r *Repository) PauseSync(ctx context.Context) error { return r.setPaused(ctx, true) }

// ResumeSync ends a pause. Errors: as PauseSync.
func (r *Repository) ResumeSync(ctx context.Context) error { return r.setPaused(ctx, false) }

func (r *Repository) setPaused(ctx context.Context, paused bool) error {
	return r.inCloudTurn(ctx, "pause or resume sync", func(context.Context) error { return r.cloud.SetPaused(paused) })
}

// PageSync is what Sync did about one page.
type PageSync struct {
	PageRef
	// Name is the page's human name, "" when there is none.
	Name string
	// Created reports that the page came from the bucket.
	Created bool
	// Missing is the number of pieces that admin.Reupload found neither here nor in the bucket.
	Missing int
	// State is that at the end.
	State SyncState
	// Err says why the page was not synced; nil when it was.
	Err error
}

// Sync syncs pages as Page.Sync does, several at a time: those that are named, or, when none is,
// all that are here or that other devices have announced in the bucket, which are created. Pages
// that are not open are opened for it. One that fails does not keep the others; when the bucket
// cannot be reached, or refuses, the rest is given up.
//
// The result has an element for each page that was tried, sorted by ledger and id. The error joins
// those of the pages; see Page.Sync.
func (r *Repository) Sync(ctx context.Context, only ...PageRef) (done []PageSync, err error) {
	var keys []pageKey
	for _, ref := range only {
		keys = append(keys, ref.key())
	}
	all, err := r.syncPages(ctx, keys, r.syncOpened)
	for i := range all {
		w := &all[i]
		done = append(done, PageSync{PageRef: refOf(w.Page), Name: w.Name, Created: w.Created, State: w.State, Err: w.Err})
	}
	return done, err
}

// SyncState returns the state of sync of the page; without a cloud it is zero but for the name.
func (p *Page) SyncState() SyncState {
	return p.shared.cloud.State(p.ledger.repo.gate.Life())
}

// syncOpened syncs a page, opened for that.
func (r *Repository) syncOpened(ctx context.Context, w *cloudlink.Work) error {
	return r.syncPage(ctx, w, presence.ForLook, func(ctx context.Context, p *Page) error { return p.syncOne(ctx, w) })
}

// syncHeld is syncOpened for the background: Evict can have the page meanwhile.
func (r *Repository) syncHeld(ctx context.Context, w *cloudlink.Work) error {
	return r.syncPage(ctx, w, presence.ForSync, func(ctx context.Context, p *Page) error { return p.syncOne(ctx, w) })
}

func (p *Page) syncOne(ctx context.Context, w *cloudlink.Work) error {
	err := p.Sync(ctx)
	w.State = p.shared.cloud.State(ctx)
	return err
}

// syncPages calls fn with pages; see cloudlink.Link.Sync. The error joins those of the pages.
func (r *Repository) syncPages(ctx context.Context, only []pageKey, fn func(context.Context, *cloudlink.Work) error) (all []cloudlink.Work, err error) {
	err = r.call(ctx, "sync", func(ctx context.Context) error {
		all, err = r.cloud.Sync(ctx, only, fn)
		errs := []error{err}
		for i := range all {
			if w := &all[i]; w.Err != nil {
				errs = append(errs, &PageError{refOf(w.Page), w.Name, w.Err})
			}
		}
		return errors.Join(errs...)
	})
	return all, err
}

// syncPage opens a page for fn, with a handle of a kind when it is here.
func (r *Repository) syncPage(ctx context.Context, w *cloudlink.Work, kind presence.Kind, fn func(context.Context, *Page) error) error {
	if w.Created {
		kind = presence.ForUse
	}
	p, err := r.openHandle(ctx, &Ledger{repo: r, name: w.Page.Ledger}, w.Page.ID, w.Name, kind)
	if errors.Is(err, ErrNotFound) && !w.Created {
		if where, _, _ := r.pages.Where(w.Page); where == presence.Away {
			return nil // evicted since the pages were listed, so the bucket has all of it
		}
	}
	if err != nil {
		return err
	}
	w.Name = p.Name()
	return errors.Join(fn(ctx, p), p.Close())
}
