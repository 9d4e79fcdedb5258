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

// SyncState is the state of sync of one page. Upload and Download are the activities of the two
// directions, and UploadErr and DownloadErr the reasons of failure. An attempt that fails before it
// gets to a page, for example without the key or the network, is reported for each page. Up and
// Down are the progress of the two directions, or that of the last run. Unsynced counts the commits
// that the bucket does not have. PageID(s.Page) is the id of the page. See cloudsync.PageState.
type SyncState = cloudsync.PageState

// The values of SyncState.Upload and Download. New versions may add values.
const (
	// SyncIdle has no work.
	SyncIdle = cloudsync.Idle
	// SyncPending has work that has not begun.
	SyncPending = cloudsync.Pending
	// SyncInProgress is at work.
	SyncInProgress = cloudsync.InProgress
	// SyncFailing has failed and will retry.
	SyncFailing = cloudsync.Failing
	// SyncNeedsUser needs the user to continue: credentials, quota, another bucket.
	SyncNeedsUser = cloudsync.NeedsUser
)

// SyncStates returns the states of the pages that the app or background sync has open, and of pages
// whose sync failed, sorted by ledger and page. When no page can be synced, for example without the
// key, each state says why. Without a cloud there are none.
func (r *Repository) SyncStates() []SyncState {
	states, _ := r.syncStates()
	return states
}

// syncStates returns the states, and two channels: one is closed when the states change.
func (r *Repository) syncStates() (out []SyncState, changed [2]<-chan struct{}) {
	return r.keeper.States(r.gate.Life())
}

// WatchSync yields the states of SyncStates now and after each change. Changes during the loop body
// are combined. The loop pulls; nothing is buffered. The sequence ends with an error, as the last
// element: ErrClosed, those of ctx.
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

// PauseSync stops background sync with true, also in later runs of the program, and resumes it with
// false. A second call with the same value changes nothing. Sync, Prefetch and fetching reads still
// work, and work in progress is finished. Errors: ErrNoCloud, also before the cloud of
// Options.Cloud was first reached; ErrReadOnly, ErrClosed, those of the file system and of ctx.
func (r *Repository) PauseSync(ctx context.Context, paused bool) error {
	return r.inCloudTurn(ctx, "pause or resume sync", func(context.Context) error { return r.cloud.SetPaused(paused) })
}

// PageSync is the result of Sync for one page.
type PageSync struct {
	PageRef
	// Name is the page's human name, "" when there is none.
	Name string
	// Created reports that Sync created the page from the bucket.
	Created bool
	// Missing is the number of pieces that admin.Reupload found neither on this device nor in the
	// bucket.
	Missing int
	// State is the state at the end.
	State SyncState
	// Err says why the page was not synced; nil when it was.
	Err error
}

// Sync syncs pages as Page.Sync does, several at a time: the named pages or, without names, all
// pages of this device and all that other devices have announced in the bucket, which Sync creates.
// Closed pages are opened for it. One failure does not stop the other pages, unless the bucket is
// unreachable or refuses requests.
//
// The result has an element for each page that was tried, sorted by ledger and id. The error joins
// those of the pages; see Page.Sync.
func (r *Repository) Sync(ctx context.Context, only ...PageRef) (done []PageSync, err error) {
	var keys []pageKey
	for _, ref := range only {
		keys = append(keys, ref.key())
	}
	all, err := r.syncPages(ctx, keys, r.syncBy(presence.ForLook))
	for i := range all {
		w := &all[i]
		done = append(done, PageSync{PageRef: refOf(w.Page), Name: w.Name, Created: w.Created, State: w.State, Err: w.Err})
	}
	return done, err
}

// syncBy returns a function that syncs a page, which it opens with a handle of the given kind.
func (r *Repository) syncBy(kind presence.Kind) func(context.Context, *cloudlink.Work) error {
	return func(ctx context.Context, w *cloudlink.Work) error {
		return r.syncPage(ctx, w, kind, func(ctx context.Context, p *Page) error {
			err := p.Sync(ctx)
			w.State = p.shared.cloud.State(ctx)
			return err
		})
	}
}

// syncPages calls fn for pages; see cloudlink.Link.Sync. The error joins those of the pages.
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

// syncPage opens a page for fn. An existing page gets a handle of the given kind.
func (r *Repository) syncPage(ctx context.Context, w *cloudlink.Work, kind presence.Kind, fn func(context.Context, *Page) error) error {
	if w.Created {
		kind = presence.ForUse
	}
	p, err := r.openHandle(ctx, w.Page, w.Name, kind)
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
