package cloudlink

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/internal/base"
)

const (
	// defaultOpenPages is how many pages are held open to sync them.
	defaultOpenPages = 64
	// listEvery is how often the bucket is searched for pages of other devices.
	listEvery = time.Hour
	// keeperMinPoll and keeperMaxPoll are the default pauses of SyncOptions.
	keeperMinPoll, keeperMaxPoll = 2 * time.Second, 5 * time.Minute
)

// KeeperOptions are the dependencies and settings of a Keeper.
type KeeperOptions struct {
	// OnlyOpen leaves closed pages alone. Pages is how many are held open; 0: 64.
	OnlyOpen bool
	Pages    int
	// Hold holds a page of this device open. Errors: base.ErrNotFound, those of opening it.
	Hold func(context.Context, base.Page) (Held, error)
	// Sync syncs a page for Link.Sync, and lets other callers have it meanwhile.
	Sync func(context.Context, *Work) error
	// Closed reports whether a page is not open.
	Closed func(base.Page) bool
	// LastClosed returns when a page was last closed.
	LastClosed func(base.Page) (time.Time, error)
}

// Held is a page that a Keeper holds open, until the Keeper or another caller closes it.
type Held interface {
	Closed() bool
	Close() error
}

// Keeper syncs all pages with the cloud, whether the app has them open or not. One goroutine holds
// the most recently used pages open: they sync as soon as something happens. The other goroutine
// connects, and periodically syncs the closed pages and searches for pages of other devices. It is
// safe for concurrent use.
type Keeper struct {
	link    *Link
	o       KeeperOptions
	wake    chan struct{} // holds one token
	running sync.WaitGroup

	held atomic.Int64 // how many pages are held

	mu      sync.Mutex
	used    []base.Page         // guarded by mu; not yet held, the most recently used last
	trouble map[base.Page]error // guarded by mu; why closed pages could not be synced the last time
	listErr error               // guarded by mu; why the last listing of the bucket's pages failed
}

// NewKeeper returns a Keeper that is not started.
func NewKeeper(l *Link, o KeeperOptions) *Keeper {
	o.Pages = cmp.Or(o.Pages, defaultOpenPages)
	return &Keeper{link: l, o: o, wake: make(chan struct{}, 1), trouble: map[base.Page]error{}}
}

// Start starts the goroutines, which run until ctx ends, unless background sync is off.
func (k *Keeper) Start(ctx context.Context) {
	if k.link.o.ReadOnly || k.link.o.Manual {
		return
	}
	if !k.o.OnlyOpen {
		k.running.Go(func() { k.hold(ctx) })
	}
	k.running.Go(func() { k.rounds(ctx) })
}

// Wait waits for the end of the goroutines.
func (k *Keeper) Wait() { k.running.Wait() }

// ListErr returns why the last listing of the bucket's pages failed; nil when it succeeded.
func (k *Keeper) ListErr() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.listErr
}

// Use records that the app has opened or closed a page.
func (k *Keeper) Use(key base.Page) {
	if k.link.o.ReadOnly || k.link.o.Manual || k.o.OnlyOpen {
		return
	}
	k.mu.Lock()
	k.used = append(slices.DeleteFunc(k.used, func(u base.Page) bool { return u == key }), key)
	k.mu.Unlock()
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// heldPage is a held page.
type heldPage struct {
	page base.Page
	Held
}

// hold holds pages open as they are used, until ctx ends. Close of the repository closes them.
func (k *Keeper) hold(ctx context.Context) {
	var held []heldPage // the most recently used last
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

// holdPage holds one more page, and releases the least recently used one when there are too many.
func (k *Keeper) holdPage(ctx context.Context, held []heldPage, key base.Page) []heldPage {
	next := heldPage{page: key}
	held = slices.DeleteFunc(held, func(h heldPage) bool {
		mine := h.page == key && !h.Closed()
		if mine {
			next = h
		}
		return mine || h.Closed() // Evict, DeletePage or the quota has closed it
	})
	if !k.link.Has() {
		return held
	}
	if next.Held == nil {
		var err error
		next.Held, err = k.o.Hold(ctx, key)
		if err != nil && ctx.Err() != nil {
			return held
		}
		k.note(key, err)
		if err != nil {
			return held
		}
	}
	held = append(held, next)
	if len(held) > k.o.Pages {
		if err := held[0].Close(); err != nil {
			k.link.o.Logger.Warn("a page was closed with an error", "page", held[0].page.Text(""), "error", err)
		}
		held = held[1:]
	}
	return held
}

// note records the result for a closed page. A page that is no longer on this device is no failure.
func (k *Keeper) note(key base.Page, err error) {
	k.mu.Lock()
	before := k.trouble[key]
	delete(k.trouble, key)
	if err != nil && !errors.Is(err, base.ErrNotFound) {
		k.trouble[key] = err
	}
	changed := before != nil || k.trouble[key] != nil
	k.mu.Unlock()
	if changed {
		k.link.set(func(*Link) {}) // wakes watchers of the states
	}
}

// States returns the sorted states of the open pages of a repository with a cloud, and of pages
// whose sync failed, and two channels: one is closed when the states change.
func (k *Keeper) States(ctx context.Context) (out []cloudsync.PageState, changed [2]<-chan struct{}) {
	l := k.link
	l.mu.Lock()
	conn, none := l.conn, l.file == nil && l.err == nil
	changed[0] = l.watch
	l.mu.Unlock()
	if conn != nil {
		changed[1] = conn.Syncer.Changed() // taken before the states are read, so that no later change is missed
	}
	if none {
		return nil, changed
	}
	states := map[base.Page]cloudsync.PageState{}
	for _, s := range l.o.Open() {
		states[s.Page] = s.State(ctx)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for key, err := range k.trouble {
		if _, open := states[key]; open {
			continue
		}
		name, _ := l.o.Name(key) // the id suffices
		activity := cloudsync.ActivityOf(err)
		states[key] = cloudsync.PageState{Ledger: key.Ledger, Page: key.ID, Name: name, Upload: activity, Download: activity, UploadErr: err, DownloadErr: err}
	}
	for _, key := range slices.SortedFunc(maps.Keys(states), base.Page.Compare) {
		out = append(out, states[key])
	}
	return out, changed
}

// rounds connects and syncs closed pages, until ctx ends.
func (k *Keeper) rounds(ctx context.Context) {
	least := cmp.Or(k.link.o.MinPoll, keeperMinPoll)
	most := cmp.Or(k.link.o.MaxPoll, max(least, keeperMaxPoll))
	var failures int
	var sinceList time.Duration
	list := true
	for ctx.Err() == nil {
		seen, _ := k.connection()
		err := k.round(ctx, list)
		pause := most
		switch {
		case errors.Is(err, base.ErrNoCloud):
			pause, failures = 0, 0
		case err != nil:
			failures++
			pause = bucket.Rule{First: least, Most: most}.Wait(failures)
		default:
			failures = 0
			if sinceList += most; list {
				list, sinceList = false, 0
			}
		}
		now, _ := k.connection()
		if seen.conn != nil && now.conn != seen.conn {
			list = true // a new bucket
			continue
		}
		if k.rest(ctx, pause, now); sinceList >= listEvery {
			list = true
		}
	}
}

// connection is the part of the cloud state on which a round depends.
type connection struct {
	conn   *Conn
	file   bool
	paused bool
}

// connection returns the present state, and a channel that is closed when it may have changed.
func (k *Keeper) connection() (connection, <-chan struct{}) {
	c := k.link
	c.mu.Lock()
	defer c.mu.Unlock()
	now := connection{conn: c.conn, file: c.file != nil}
	now.paused = c.conn != nil && c.conn.Syncer.Paused()
	return now, c.watch
}

// rest waits for a pause, without limit when 0, or until the connection changes.
func (k *Keeper) rest(ctx context.Context, pause time.Duration, seen connection) {
	var tick <-chan time.Time
	if pause > 0 {
		var release func()
		tick, release = k.link.o.Clock.After(pause)
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

// round connects, begins to sync the open pages, holds the most recently used ones, and syncs the
// closed pages; with list also pages that only the bucket has. The error is that of connecting or
// listing.
func (k *Keeper) round(ctx context.Context, list bool) error {
	conn, err := k.link.Connect(ctx)
	if err == nil {
		err = k.link.beginAll(ctx)
	}
	if err != nil {
		return err
	}
	k.link.Remember() // a killed process loses only the figures since the last round
	if k.o.OnlyOpen || conn.Syncer.Paused() {
		return nil
	}
	rest, err := k.closed()
	if err != nil {
		return err
	}
	room := max(k.o.Pages-int(k.held.Load()), 0)
	for _, key := range rest[max(len(rest)-room, 0):] {
		k.Use(key)
	}
	rest = rest[:max(len(rest)-room, 0)]
	switch {
	case list:
		rest = nil
	case len(rest) == 0:
		return nil
	}
	pages, err := k.link.Sync(ctx, rest, k.o.Sync)
	failed := false
	for _, p := range pages {
		failed = failed || p.Err != nil
		if !errors.Is(p.Err, base.ErrClosed) { // it was closed for another caller
			k.note(p.Page, p.Err)
		}
	}
	if failed || ctx.Err() != nil {
		err = nil // the states of the pages have the error
	}
	k.mu.Lock()
	k.listErr = err
	k.mu.Unlock()
	return err
}

// closed returns the closed pages of this device, the last closed one at the end.
func (k *Keeper) closed() ([]base.Page, error) {
	keys, err := k.link.o.Disk.Pages()
	if err != nil {
		return nil, err
	}
	at := map[base.Page]time.Time{}
	keys = slices.DeleteFunc(keys, func(key base.Page) bool { return !k.o.Closed(key) })
	for _, key := range keys {
		if at[key], err = k.o.LastClosed(key); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(keys, func(a, b base.Page) int { return at[a].Compare(at[b]) })
	return keys, nil
}
