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
	"github.com/ledgerd/ledger/internal/base"
)

const (
	// defaultOpenPages is how many pages are held open to sync them.
	defaultOpenPages = 64
	// listEvery is how often the bucket is asked for pages that other devices have made.
	listEvery = time.Hour
	// keeperMinPoll and keeperMaxPoll are the pauses where SyncOptions has none.
	keeperMinPoll, keeperMaxPoll = 2 * time.Second, 5 * time.Minute
)

// KeeperOptions are what a Keeper needs.
type KeeperOptions struct {
	// OnlyOpen lets the pages rest that nobody has open. Pages is how many are held open; 0: 64.
	OnlyOpen bool
	Pages    int
	// Hold holds a page open that is here. Errors: base.ErrNotFound, those of opening it.
	Hold func(context.Context, base.Page) (Held, error)
	// Sync syncs a page for Link.Sync so that others can have it meanwhile.
	Sync func(context.Context, *Work) error
	// Closed reports whether nobody has a page open.
	Closed func(base.Page) bool
	// LastClosed returns when a page was closed last.
	LastClosed func(base.Page) (time.Time, error)
}

// Held is a page that a Keeper holds open, until it is closed by that or by another.
type Held interface {
	Closed() bool
	Close() error
}

// Keeper keeps all pages in step with the cloud, whether the app has them open or not. One
// goroutine holds the pages open that were used last: they sync as soon as something happens. The
// other one connects, and looks now and then through the pages that are closed and for pages of
// other devices. It is safe for concurrent use.
type Keeper struct {
	link    *Link
	o       KeeperOptions
	wake    chan struct{} // holds one token
	running sync.WaitGroup

	held atomic.Int64 // how many pages are held

	mu      sync.Mutex
	used    []base.Page         // guarded by mu; not yet held, the one that was used last at the end
	trouble map[base.Page]error // guarded by mu; why pages that are not open could not be synced the last time
	listErr error               // guarded by mu; why the pages of the bucket could not be listed the last time
}

// NewKeeper returns a Keeper of which nothing runs.
func NewKeeper(l *Link, o KeeperOptions) *Keeper {
	o.Pages = cmp.Or(o.Pages, defaultOpenPages)
	return &Keeper{link: l, o: o, wake: make(chan struct{}, 1), trouble: map[base.Page]error{}}
}

// Start starts what runs until ctx ends, unless nothing is to sync by itself. Wait waits for it.
func (k *Keeper) Start(ctx context.Context) {
	if k.link.o.ReadOnly || k.link.o.Manual {
		return
	}
	if !k.o.OnlyOpen {
		k.running.Go(func() { k.hold(ctx) })
	}
	k.running.Go(func() { k.rounds(ctx) })
}

// Wait waits for the end of what was started.
func (k *Keeper) Wait() { k.running.Wait() }

// ListErr returns why the pages of the bucket could not be listed the last time; nil when they
// could.
func (k *Keeper) ListErr() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.listErr
}

// Use notes that the app has opened a page, or closed it.
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

// heldPage is a page that is held.
type heldPage struct {
	page base.Page
	Held
}

// hold holds pages open as they are used, until ctx ends. Close of the repository closes them.
func (k *Keeper) hold(ctx context.Context) {
	var held []heldPage // the one that was used last at the end
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
func (k *Keeper) holdPage(ctx context.Context, held []heldPage, key base.Page) []heldPage {
	next := heldPage{page: key}
	held = slices.DeleteFunc(held, func(h heldPage) bool {
		mine := h.page == key && !h.Closed()
		if mine {
			next = h
		}
		return mine || h.Closed() // Evict, DeletePage or the quota has taken that one
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

// note notes how it went with a page that is not open. A page that is not here any more is no
// trouble.
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
		k.link.set(func(*Link) {}) // wakes those that watch the states
	}
}

// States returns the states of the open pages of a repository with a cloud, and of the pages whose
// syncing failed, sorted, and channels of which one is closed when they change.
func (k *Keeper) States(ctx context.Context) (out []cloudsync.PageState, changed [2]<-chan struct{}) {
	l := k.link
	l.mu.Lock()
	conn, none := l.conn, l.file == nil && l.err == nil
	changed[0] = l.watch
	l.mu.Unlock()
	if conn != nil {
		changed[1] = conn.Syncer.Changed() // before the states are read: what comes after them is not missed
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
		name, _ := l.o.Name(key) // without it the id does
		activity := cloudsync.ActivityOf(err)
		states[key] = cloudsync.PageState{Ledger: key.Ledger, Page: key.ID, Name: name, Upload: activity, Download: activity, UploadErr: err, DownloadErr: err}
	}
	for _, key := range slices.SortedFunc(maps.Keys(states), base.Page.Compare) {
		out = append(out, states[key])
	}
	return out, changed
}

// rounds connects and looks through what nobody has open, until ctx ends.
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
			pause = min(least<<min(failures, 16), most)
			failures++
		default:
			failures = 0
			if sinceList += most; list {
				list, sinceList = false, 0
			}
		}
		now, _ := k.connection()
		if seen.conn != nil && now.conn != seen.conn {
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
	conn   *Conn
	file   bool
	paused bool
}

// connection returns it, and a channel that is closed when it may have changed.
func (k *Keeper) connection() (connection, <-chan struct{}) {
	c := k.link
	c.mu.Lock()
	defer c.mu.Unlock()
	now := connection{conn: c.conn, file: c.file != nil}
	now.paused = c.conn != nil && c.conn.Syncer.Paused()
	return now, c.watch
}

// rest waits for a pause, 0 being for ever, or until the connection is another one.
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

// round connects, has the pages held that were used last, and syncs those that are closed; with
// list also those that only the bucket has. The error is that of connecting or listing.
func (k *Keeper) round(ctx context.Context, list bool) error {
	conn, err := k.link.Connect(ctx)
	if err != nil {
		return err
	}
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
		if !errors.Is(p.Err, base.ErrClosed) { // it has given way
			k.note(p.Page, p.Err)
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
