package ledger

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/internal/cloudlink"
	"github.com/ledgerd/ledger/internal/presence"
)

// SyncActivity is what a direction of sync is doing. Values are only ever added.
type SyncActivity uint8

// The activities.
const (
	// SyncIdle has nothing to do.
	SyncIdle SyncActivity = iota
	// SyncPending has something to do.
	SyncPending
	// SyncInProgress is doing it.
	SyncInProgress
	// SyncFailing has failed and will try again.
	SyncFailing
	// SyncNeedsUser cannot go on without the user: credentials, quota, another bucket.
	SyncNeedsUser
)

// String returns the words for a, such as "in progress".
func (a SyncActivity) String() string {
	switch a {
	case SyncIdle:
		return "idle"
	case SyncPending:
		return "pending"
	case SyncInProgress:
		return "in progress"
	case SyncFailing:
		return "failing"
	case SyncNeedsUser:
		return "needs the user"
	}
	return fmt.Sprintf("activity %d", uint8(a))
}

// SyncState is the state of sync of one open page.
type SyncState struct {
	Ledger, Name string
	Page         PageID
	// Upload and Download say what the two directions do, and the errors why they fail. An attempt
	// that came to no page at all, as without the key or the network, is told of each.
	Upload, Download       SyncActivity
	UploadErr, DownloadErr error
	// Up and Down say how far the two directions are; while they rest, what they did the last time.
	Up, Down SyncProgress
	// Unsynced is the number of commits that the bucket does not have, and OldestUnsynced the
	// timestamp of the oldest, zero when there is none.
	Unsynced       int
	OldestUnsynced time.Time
	// LastSuccess is when all commits were last known to be up and all entries down, by this
	// device's clock; zero: not since the page was opened. Pieces that go up a second time, since
	// their place is gone, do not count.
	LastSuccess time.Time
	// Position is the number of the last entry of the page's log in the bucket that is here.
	Position uint64
	// ServerTime is when the last entry with commits of others was written, by the bucket's clock.
	ServerTime time.Time
	// Paused reports that nothing is synced but by Sync.
	Paused bool
}

// SyncProgress says how much one direction of sync has done since it was last at rest. Totals are
// those of the log entries that are being sent or taken; they grow as further ones begin.
type SyncProgress struct {
	// Values counts keys that get a value, of TotalValues. A value that is sent counts when it was
	// read.
	Values, TotalValues int64
	// Bytes is how much is done of TotalBytes: of the content of values where they are sent,
	// whether the bucket had it already or not, and of objects that are read from the bucket where
	// they are taken.
	Bytes, TotalBytes int64
}

func newSyncState(s *cloudsync.PageState) SyncState {
	return SyncState{
		Ledger: s.Ledger, Name: s.Name, Page: PageID(s.Page), Upload: SyncActivity(s.Upload), Download: SyncActivity(s.Download),
		Up: SyncProgress(s.Up), Down: SyncProgress(s.Down), UploadErr: s.UploadErr, DownloadErr: s.DownloadErr, Unsynced: s.Unsynced, OldestUnsynced: s.OldestUnsynced,
		LastSuccess: s.LastSuccess, Position: s.Position, ServerTime: s.ServerTime, Paused: s.Paused,
	}
}

// SyncMetrics are figures of the syncing of a repository since it was opened. See CloudStatus for
// sums over all runs.
type SyncMetrics struct {
	// ClassA counts puts and lists, ClassB gets, Free deletes: requests as stores bill them, failed
	// ones included.
	ClassA, ClassB, Free int64
	// UpBytes and DownBytes are bytes of content.
	UpBytes, DownBytes int64
	// Retries counts requests that were made again. Entries counts what was appended to logs,
	// Applied what came from others.
	Retries, Entries, Applied, Checkpoints int64
	// OldestUnsynced is the timestamp of the oldest commit that the bucket does not have, of all
	// open pages; zero: none.
	OldestUnsynced time.Time
	// LastSuccess is when the open page that is furthest behind had all its commits up and all
	// entries down, by this device's clock; zero: never for one of them, or no page is open.
	LastSuccess time.Time
}

// SyncMetrics returns the figures; all zero while nothing was synced.
func (r *Repository) SyncMetrics() SyncMetrics {
	m := r.cloud.Metrics()
	return SyncMetrics{
		ClassA: m.A, ClassB: m.B, Free: m.Free, UpBytes: m.Up, DownBytes: m.Down,
		Retries: m.Retries, Entries: m.Entries, Applied: m.Applied, Checkpoints: m.Checkpoints,
		OldestUnsynced: m.OldestUnsynced, LastSuccess: m.LastSuccess,
	}
}

// SyncStates returns the states of the open pages of a repository with a cloud, those that are held
// open to sync them too, and of the pages whose syncing failed, sorted by ledger and page. Where
// nothing can be synced, as without the key, each state says why.
func (r *Repository) SyncStates() []SyncState {
	states, _ := r.syncStates()
	return states
}

// syncStates returns the states, and channels of which one is closed when they change.
func (r *Repository) syncStates() (out []SyncState, changed [2]<-chan struct{}) {
	states, changed := r.keeper.States(r.gate.Life())
	for i := range states {
		out = append(out, newSyncState(&states[i]))
	}
	return out, changed
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
	// Missing is the number of pieces that Reupload found neither here nor in the bucket.
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
func (r *Repository) Sync(ctx context.Context, only ...PageRef) ([]PageSync, error) {
	return r.syncPages(ctx, only, r.syncOpened)
}

// SyncState returns the state of sync of the page; without a cloud it is zero but for the name.
func (p *Page) SyncState() SyncState {
	state := p.shared.cloud.State(p.ledger.repo.gate.Life())
	return newSyncState(&state)
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

// syncPages calls fn with pages; see cloudlink.Link.Sync.
func (r *Repository) syncPages(ctx context.Context, only []PageRef, fn func(context.Context, *cloudlink.Work) error) (done []PageSync, err error) {
	err = r.call(ctx, "sync", func(ctx context.Context) error {
		var keys []pageKey
		for _, ref := range only {
			keys = append(keys, ref.key())
		}
		all, bad := r.cloud.Sync(ctx, keys, fn)
		errs := []error{bad}
		for i := range all {
			w := &all[i]
			done = append(done, PageSync{PageRef: refOf(w.Page), Name: w.Name, Created: w.Created, Missing: w.Missing, State: newSyncState(&w.State), Err: w.Err})
			if w.Err != nil {
				errs = append(errs, &PageError{refOf(w.Page), w.Name, w.Err})
			}
		}
		return errors.Join(errs...)
	})
	return done, err
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
