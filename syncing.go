package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/internal/layout"
	"github.com/ledgerd/ledger/internal/presence"
)

// syncParallel is how many pages Sync works on at once.
const syncParallel = 4

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
	_, link := r.cloud.get()
	if link == nil {
		return SyncMetrics{}
	}
	m, own := link.syncer.Metrics(), link.own.Counts()
	return SyncMetrics{
		ClassA: m.A + own.A, ClassB: m.B + own.B, Free: m.Free + own.Free, UpBytes: m.Up + own.Up, DownBytes: m.Down + own.Down,
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
func (r *Repository) syncStates() ([]SyncState, [2]<-chan struct{}) {
	r.cloud.mu.Lock()
	link, changed := r.cloud.link, [2]<-chan struct{}{r.cloud.watch}
	none := r.cloud.file == nil && r.cloud.err == nil
	r.cloud.mu.Unlock()
	if link != nil {
		changed[1] = link.syncer.Changed() // before the states are read: what comes after them is not missed
	}
	var out []SyncState
	if none {
		return nil, changed
	}
	open := map[pageKey]bool{}
	for _, s := range r.openStores() {
		open[s.key] = true
		out = append(out, s.syncState())
	}
	out = append(out, r.keeper.troubles(func(k pageKey) bool { return open[k] })...)
	slices.SortFunc(out, func(a, b SyncState) int {
		return cmp.Or(strings.Compare(a.Ledger, b.Ledger), a.Page.Compare(b.Page))
	})
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
	return r.inCloudTurn(ctx, "pause or resume sync", func(context.Context) error {
		file, link := r.cloud.get()
		if file == nil {
			return ErrNoCloud
		}
		if file.paused != paused {
			err := r.changeCloudFile(func(f *cloudFile) error {
				f.paused = paused
				return nil
			})
			if err != nil {
				return err
			}
		}
		switch {
		case link == nil:
		case paused:
			link.syncer.Pause()
		default:
			link.syncer.Resume()
		}
		return nil
	})
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
	return r.syncPages(ctx, only, presence.ForLook, (*Page).syncOne)
}

func (p *Page) syncOne(ctx context.Context, out *PageSync) error {
	err := p.Sync(ctx)
	out.State = p.SyncState()
	return err
}

// SyncState returns the state of sync of the page; without a cloud it is zero but for the name.
func (p *Page) SyncState() SyncState { return p.shared.syncState() }

// syncPages calls fn with pages in bounded parallelism, with handles of a kind for those that are
// here.
func (r *Repository) syncPages(ctx context.Context, only []PageRef, kind presence.Kind, fn func(*Page, context.Context, *PageSync) error) (done []PageSync, err error) {
	err = r.call(ctx, "sync", func(ctx context.Context) error {
		link, err := r.connect(ctx)
		if err == nil {
			err = r.checkBucket(ctx, link)
		}
		if err != nil {
			r.noteFailure(ctx, link, err)
			return err
		}
		r.cloud.set(func(c *cloud) { c.failed = failure{} })
		work, bad, err := r.pagesToSync(ctx, link, only)
		if err != nil {
			return err
		}
		done = r.runSyncs(ctx, work, kind, fn)
		errs := []error{bad}
		for _, d := range done {
			if d.Err != nil {
				errs = append(errs, &PageError{d.PageRef, d.Name, d.Err})
			}
		}
		err = errors.Join(errs...)
		if len(only) == 0 && err == nil {
			r.cloud.mu.Lock()
			r.cloud.record.Success = r.clock.Now().UTC()
			r.cloud.mu.Unlock()
		}
		r.remember(link)
		return err
	})
	return done, err
}

// noteFailure lets the states and Status tell, of all pages that are here, why the last sync did
// not begin. link is nil when there is none.
func (r *Repository) noteFailure(ctx context.Context, link *cloudLink, err error) {
	file, _ := r.cloud.get()
	keys, listErr := r.disk.Pages()
	if file == nil || listErr != nil || ctx.Err() != nil {
		return // whoever wants to know syncs again
	}
	if link != nil {
		r.cloud.set(func(c *cloud) { c.failed = failure{err, r.clock.Now()} })
	}
	r.cloud.mu.Lock()
	for _, k := range keys {
		r.cloud.record.page(k.Ledger, k.ID).Err = err.Error()
	}
	r.cloud.mu.Unlock()
	r.remember(link)
}

// checkBucket proves that the bucket is the one whose keyring is remembered, and takes over newer
// rings of that.
func (r *Repository) checkBucket(ctx context.Context, link *cloudLink) error {
	return r.ofBucket(link.syncer.CheckKeys(ctx))
}

// ofBucket says of which bucket an error is that a look at its keyring has given.
func (r *Repository) ofBucket(err error) error {
	file, _ := r.cloud.get()
	switch {
	case file == nil:
		return ErrNoCloud
	case err == nil, errors.Is(err, ErrInvalid), errors.Is(err, ErrNotFound), errors.Is(err, ErrUnsupported):
		return err
	case errors.Is(err, cloudsync.ErrBucketWiped):
		return fmt.Errorf("bucket %s is empty or was never one of Ledger's: %w", file.url, ErrCloudRolledBack)
	case errors.Is(err, ErrCloudReplaced):
		return fmt.Errorf("bucket %s was made anew: %w", file.url, err)
	}
	return fmt.Errorf("look at bucket %s: %w", file.url, err)
}

// pagesToSync returns the pages of a Sync. bad tells of pages in the bucket that are announced by
// bytes which are not what was written; it keeps no other.
func (r *Repository) pagesToSync(ctx context.Context, link *cloudLink, only []PageRef) (work []PageSync, bad, err error) {
	here, err := r.disk.Pages()
	if err != nil {
		return nil, nil, err
	}
	all := map[pageKey]*PageSync{}
	for _, k := range here {
		all[k] = &PageSync{PageRef: PageRef{k.Ledger, k.ID}}
	}
	away, err := r.pages.Gone(ctx)
	if err != nil {
		return nil, nil, err
	}
	isAway := map[pageKey]bool{}
	for _, p := range away { // they come when they are named
		isAway[p.Page] = true
		if slices.Contains(only, PageRef{p.Page.Ledger, p.Page.ID}) && p.Kind == layout.Evicted {
			all[p.Page] = &PageSync{PageRef: PageRef{p.Page.Ledger, p.Page.ID}, Name: p.Name, Created: true}
		}
	}
	wanted := func(k pageKey) bool { return len(only) == 0 || slices.Contains(only, PageRef{k.Ledger, k.ID}) }
	lookUp := len(only) == 0
	for _, ref := range only {
		lookUp = lookUp || all[ref.key()] == nil
	}
	if lookUp {
		announced, err := link.syncer.Announced(ctx)
		if err != nil {
			bad = fmt.Errorf("list the pages of the bucket: %w", err)
		}
		if err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrUnsupported) {
			return nil, nil, bad
		}
		for _, a := range announced {
			k := pageKey{Ledger: a.Ledger, ID: PageID(a.Page)}
			named := slices.Contains(only, PageRef{k.Ledger, k.ID})
			if all[k] == nil && (named || !isAway[k]) {
				all[k] = &PageSync{PageRef: PageRef{k.Ledger, k.ID}, Name: a.Name, Created: true}
			}
		}
	}
	for k, p := range all {
		if wanted(k) {
			work = append(work, *p)
		}
	}
	for _, ref := range only {
		if all[ref.key()] == nil {
			return nil, nil, fmt.Errorf("page %s is neither here nor in the bucket: %w", r.usage.Text(ref.key()), ErrNotFound)
		}
	}
	slices.SortFunc(work, func(a, b PageSync) int {
		return cmp.Or(strings.Compare(a.Ledger, b.Ledger), a.ID.Compare(b.ID))
	})
	return work, bad, nil
}

// runSyncs calls fn with the pages and returns those that were tried.
func (r *Repository) runSyncs(call context.Context, work []PageSync, kind presence.Kind, fn func(*Page, context.Context, *PageSync) error) []PageSync {
	ctx, giveUp := context.WithCancel(call)
	defer giveUp()
	next := make(chan *PageSync)
	tried := make([]bool, len(work))
	var workers sync.WaitGroup
	for range min(syncParallel, len(work)) {
		workers.Go(func() {
			for p := range next {
				if p.Err = r.syncPage(ctx, p, kind, fn); hopeless(p.Err) {
					giveUp()
				}
			}
		})
	}
	for i := range work {
		if ctx.Err() != nil {
			break
		}
		select {
		case next <- &work[i]:
			tried[i] = true
		case <-ctx.Done():
		}
	}
	close(next)
	workers.Wait()
	done := make([]PageSync, 0, len(work))
	for i, p := range work {
		gaveUp := errors.Is(p.Err, context.Canceled) && call.Err() == nil
		if tried[i] && !gaveUp {
			done = append(done, p)
		}
	}
	return done
}

// hopeless reports an error of the bucket that other pages would meet too.
func hopeless(err error) bool {
	if e, ok := errors.AsType[*bucket.Error](err); ok {
		return e.Class.NeedsUser() || errors.Is(err, ErrNetwork)
	}
	return errors.Is(err, ErrNetwork)
}

// syncPage opens a page for fn.
func (r *Repository) syncPage(ctx context.Context, work *PageSync, kind presence.Kind, fn func(*Page, context.Context, *PageSync) error) error {
	if work.Created {
		kind = presence.ForUse
	}
	p, err := r.openHandle(ctx, &Ledger{repo: r, name: work.Ledger}, work.ID, work.Name, kind)
	if errors.Is(err, ErrNotFound) && !work.Created {
		if where, _, _ := r.pages.Where(work.key()); where == presence.Away {
			return nil // evicted since the pages were listed, so the bucket has all of it
		}
	}
	if err != nil {
		return err
	}
	work.Name = p.Name()
	return errors.Join(fn(p, ctx, work), p.Close())
}

// attachAll connects and begins to sync the open pages, unless nothing is to sync by itself: then
// reads of what is not here do. The caller has the cloud's turn. anyhow: see attach.
func (r *Repository) attachAll(ctx context.Context, anyhow bool) error {
	file, _ := r.cloud.get()
	if file == nil || r.o.ReadOnly {
		return nil
	}
	if r.o.Sync.Manual {
		for _, s := range r.openStores() {
			s.store.SetFetcher(lateFetcher{s})
		}
		return nil
	}
	link, err := r.connectInTurn(ctx)
	if err != nil {
		return err
	}
	for _, s := range r.openStores() { // behind connecting: a page that is opened from now on sees the link
		if _, err := s.attach(ctx, link, anyhow); err != nil {
			return fmt.Errorf("begin to sync page %s: %w", s.key.Text(s.name), err)
		}
	}
	return nil
}

// openCloud reads what is remembered of the cloud and, unless nothing is to sync by itself,
// connects. Neither a damaged file nor that it cannot connect keeps anybody from the pages: Cloud
// tells.
func (r *Repository) openCloud(ctx context.Context) error {
	file, err := r.readCloudFile()
	if errors.Is(err, ErrCorrupt) || errors.Is(err, ErrUnsupported) {
		r.o.Logger.Warn("what is remembered of the cloud cannot be read", "error", err)
		r.cloud.err = err
		if errors.Is(err, ErrUnsupported) { // what another version has written is not overwritten
			r.cloud.wanted = nil
		}
		return nil
	}
	if err != nil || file == nil {
		return err
	}
	if file, err = r.settleWanted(file); err != nil {
		return err
	}
	if !r.o.ReadOnly {
		if err := r.settleDevice(file); err != nil {
			return err
		}
	}
	r.cloud.file = file
	if w, err := file.ring(); err == nil {
		r.cloud.record = r.readRecord(hexOf(w.BucketID))
	}
	if r.o.Sync.Manual || r.o.ReadOnly {
		return nil
	}
	if _, err := r.connectInTurn(ctx); err != nil {
		r.o.Logger.Warn("the cloud cannot be connected", "error", err)
	}
	return nil
}
