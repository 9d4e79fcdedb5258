package ledger

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledger/internal/presence"
)

const (
	// defaultOpenPages is how many pages are held open to sync them.
	defaultOpenPages = 64
	// listEvery is how often the bucket is asked for pages that other devices have made.
	listEvery = time.Hour
	// keeperMinPoll and keeperMaxPoll are the pauses where SyncOptions has none.
	keeperMinPoll, keeperMaxPoll = 2 * time.Second, 5 * time.Minute
)

// keeper keeps all pages in step with the cloud, whether the app has them open or not. One
// goroutine holds the pages open that were used last: they sync as soon as something happens. The
// other one connects, and looks now and then through the pages that are closed and for pages of
// other devices.
type keeper struct {
	repo    *Repository
	wake    chan struct{} // holds one token
	running sync.WaitGroup

	held atomic.Int64 // how many pages are held

	mu      sync.Mutex
	used    []pageKey         // guarded by mu; not yet held, the one that was used last at the end
	trouble map[pageKey]error // guarded by mu; why pages that are not open could not be synced the last time
	listErr error             // guarded by mu; why the pages of the bucket could not be listed the last time
}

// startKeeper starts the keeper, unless nothing is to sync by itself. It ends when the gate closes.
func (r *Repository) startKeeper() {
	if r.o.ReadOnly || r.o.Sync.Manual {
		return
	}
	k := r.keeper
	if !r.o.Sync.OnlyOpen {
		k.running.Go(func() { k.hold(r.gate.Life()) })
	}
	k.running.Go(func() { k.rounds(r.gate.Life()) })
}

func newKeeper(r *Repository) *keeper {
	return &keeper{repo: r, wake: make(chan struct{}, 1), trouble: map[pageKey]error{}}
}

// bound returns how many pages are held open.
func (k *keeper) bound() int {
	if n := k.repo.o.Sync.OpenPages; n > 0 {
		return n
	}
	return defaultOpenPages
}

// use notes that the app has opened a page, or closed it.
func (k *keeper) use(key pageKey) {
	o := &k.repo.o
	if o.ReadOnly || o.Sync.Manual || o.Sync.OnlyOpen {
		return
	}
	k.mu.Lock()
	k.used = append(slices.DeleteFunc(k.used, func(u pageKey) bool { return u == key }), key)
	k.mu.Unlock()
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// hold holds pages open as they are used, until ctx ends. Close of the repository closes them.
func (k *keeper) hold(ctx context.Context) {
	var held []*Page // the one that was used last at the end
	for {
		select {
		case <-k.wake:
		case <-ctx.Done():
			return
		}
		k.mu.Lock()
		used := k.used
		k.used = nil
		k.mu.Unlock()
		for _, key := range used {
			held = k.holdPage(ctx, held, key)
		}
		k.held.Store(int64(len(held)))
	}
}

// holdPage holds one page more, and gives up the one that was used longest ago when they are too
// many.
func (k *keeper) holdPage(ctx context.Context, held []*Page, key pageKey) []*Page {
	r := k.repo
	p := (*Page)(nil)
	held = slices.DeleteFunc(held, func(h *Page) bool {
		mine := h.shared.key == key && !h.gate.Closed()
		if mine {
			p = h
		}
		return mine || h.gate.Closed() // Evict, DeletePage or the quota has taken that one
	})
	if file, _ := r.cloud.get(); file == nil {
		return held
	}
	if p == nil {
		var err error
		p, err = r.keepPage(ctx, PageRef{key.Ledger, key.ID})
		if err != nil && ctx.Err() != nil {
			return held
		}
		k.note(key, err)
		if err != nil {
			return held
		}
	}
	held = append(held, p)
	if len(held) > k.bound() {
		if err := held[0].Close(); err != nil {
			r.o.Logger.Warn("a page was closed with an error", "page", held[0].shared.key.Text(""), "error", err)
		}
		held = held[1:]
	}
	return held
}

// note notes how it went with a page that is not open. A page that is not here any more is no
// trouble.
func (k *keeper) note(key pageKey, err error) {
	k.mu.Lock()
	before := k.trouble[key]
	delete(k.trouble, key)
	if err != nil && !errors.Is(err, ErrNotFound) {
		k.trouble[key] = err
	}
	changed := before != nil || k.trouble[key] != nil
	k.mu.Unlock()
	if changed {
		k.repo.cloud.set(func(*cloud) {}) // wakes those that watch the states
	}
}

// troubles returns why pages that are not open could not be synced the last time.
func (k *keeper) troubles(open func(pageKey) bool) (all []SyncState) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, err := range k.trouble {
		if open(key) {
			continue
		}
		name, _, _ := k.repo.usage.Page(key) // without it the id does
		activity := activityOf(err)
		all = append(all, SyncState{Ledger: key.Ledger, Page: key.ID, Name: name, Upload: activity, Download: activity, UploadErr: err, DownloadErr: err})
	}
	return all
}

// rounds connects and looks through what nobody has open, until ctx ends.
func (k *keeper) rounds(ctx context.Context) {
	o := &k.repo.o.Sync
	least, most := o.MinPoll, o.MaxPoll
	if least == 0 {
		least = keeperMinPoll
	}
	if most == 0 {
		most = max(least, keeperMaxPoll)
	}
	var failures int
	var sinceList time.Duration
	list := true
	for ctx.Err() == nil {
		seen, _ := k.connection()
		err := k.round(ctx, list)
		pause := most
		switch {
		case errors.Is(err, ErrNoCloud):
			pause, failures = 0, 0
		case err != nil:
			pause = min(least<<min(failures, 16), most)
			failures++
		default:
			failures = 0
			if sinceList += most; list {
				list, sinceList = false, 0
			}
		}
		now, _ := k.connection()
		if seen.link != nil && now.link != seen.link {
			list = true // of another bucket
			continue
		}
		if k.rest(ctx, pause, now); sinceList >= listEvery {
			list = true
		}
	}
}

// connection is what of the cloud makes a round worth while.
type connection struct {
	link   *cloudLink
	file   bool
	paused bool
}

// connection returns it, and a channel that is closed when it may have changed.
func (k *keeper) connection() (connection, <-chan struct{}) {
	c := k.repo.cloud
	c.mu.Lock()
	defer c.mu.Unlock()
	now := connection{link: c.link, file: c.file != nil}
	now.paused = c.link != nil && c.link.syncer.Paused()
	return now, c.watch
}

// rest waits for a pause, 0 being for ever, or until the connection is another one.
func (k *keeper) rest(ctx context.Context, pause time.Duration, seen connection) {
	var tick <-chan time.Time
	if pause > 0 {
		var release func()
		tick, release = k.repo.clock.After(pause)
		defer release()
	}
	for {
		now, changed := k.connection()
		if now != seen {
			return
		}
		select {
		case <-tick:
			return
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// round connects, has the pages held that were used last, and syncs those that are closed; with
// list also those that only the bucket has. The error is that of connecting or listing.
func (k *keeper) round(ctx context.Context, list bool) error {
	r := k.repo
	link, err := r.connect(ctx)
	if err != nil {
		return err
	}
	if r.o.Sync.OnlyOpen || link.syncer.Paused() {
		return nil
	}
	closed, err := k.closed()
	if err != nil {
		return err
	}
	room := k.bound() - int(k.held.Load())
	var rest []PageRef
	for i, key := range closed {
		if i >= len(closed)-room {
			k.use(key)
		} else {
			rest = append(rest, PageRef{key.Ledger, key.ID})
		}
	}
	switch {
	case list:
		rest = nil
	case len(rest) == 0:
		return nil
	}
	pages, err := r.syncPages(ctx, rest, presence.ForSync, (*Page).syncOne) // so that Evict can have the pages meanwhile
	failed := false
	for _, p := range pages {
		failed = failed || p.Err != nil
		if !errors.Is(p.Err, ErrClosed) { // it has given way
			k.note(p.key(), p.Err)
		}
	}
	if failed || ctx.Err() != nil {
		err = nil // the states of the pages say it
	}
	k.mu.Lock()
	k.listErr = err
	k.mu.Unlock()
	return err
}

// closed returns the pages that are here and not open, the one that was closed last at the end.
func (k *keeper) closed() ([]pageKey, error) {
	r := k.repo
	keys, err := r.disk.Pages()
	if err != nil {
		return nil, err
	}
	at := map[pageKey]time.Time{}
	keys = slices.DeleteFunc(keys, func(key pageKey) bool { return r.pages.UseOf(key) != presence.Nobody })
	for _, key := range keys {
		if _, at[key], err = r.usage.Page(key); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(keys, func(a, b pageKey) int { return at[a].Compare(at[b]) })
	return keys, nil
}
