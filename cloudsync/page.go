package cloudsync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/pack"
	"github.com/ledgerd/ledger/cloudsync/progress"
	"github.com/ledgerd/ledger/cloudsync/replica"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/turn"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// PageOptions configure a Page.
type PageOptions struct {
	// Store is the open page. The caller owns it, and closes it after the Page.
	Store *storage.Store
	// Ledger and Name are its names; Name may be empty.
	Ledger, Name string
	// Merge merges all heads into one, with the bases that Standing.Over leads to. Sync and
	// Reupload call it, and it may block; the background goes on meanwhile. nil: heads are not
	// merged.
	Merge func(ctx context.Context) error
	// Plain, if not nil, reports whether the values of a key must go up without compression. A
	// commit that changes such a key is not compressed, nor are objects with all keys of the page.
	// It must return soon.
	Plain func(key []byte) bool
	// Again, if not nil, reports whether a value that a commit puts under a key goes up whole, even
	// if the bucket has the value or parts of it. It must return soon.
	Again func(key []byte) bool
	// Arrived, if not nil, is called when heads of other devices arrive. It must not block, nor
	// call the Page.
	Arrived func()
	// InUse, if not nil, returns commits that are not pruned here even if they were given up. It
	// must not block, nor call the Page.
	InUse func() []commit.ID
	// Collect, if not nil, deletes unreferenced data in the store; it may block. It must not call
	// the Page. nil: the Page collects itself.
	Collect func(ctx context.Context) error
}

// Page is a page that is synced. Its methods are safe for concurrent use.
type Page struct {
	s     *Syncer
	o     PageOptions
	store *storage.Store
	names wire.Names
	b     bucket.Bucket // ends with the page

	ctx    context.Context // ends with Close
	cancel context.CancelCauseFunc
	calls  sync.WaitGroup // of the background and of calls; Add only under mu while not closing
	poke   chan struct{}  // wakes the background
	turn   turn.Lock      // I1: held while syncing
	leader turn.Lock      // held by the call of Sync that does the work
	ended  barrier        // the last barrier that its caller's context did not end; guarded by leader
	begun  atomic.Uint64  // the number of barriers begun
	ses    session        // guarded by turn

	// rep is the page as its log sees it. Before the first call of the log it is nil, or what a
	// reader of values has read of the store's records.
	rep     atomic.Pointer[replica.Page]
	fetcher *pack.Fetcher

	closed sync.Once // does the work of Close

	mu          sync.Mutex
	closing     bool // guarded by mu, as all below
	up, down    direction
	position    uint64
	serverTime  time.Time
	lastSuccess time.Time
	failures    uint64        // of both directions, since the page was opened
	moved       chan struct{} // closed at the next change
	failure     error         // the last of them
	wantUpload  bool          // there may be something to send
	nextPoll    time.Time
	interval    time.Duration
}

// barrier is a round of Sync. Callers that called before it began share it.
type barrier struct {
	number uint64 // from 1 on
	err    error  // its result
}

// OpenPage begins to sync a page and sets the store's Fetcher. It makes no request. On a closed
// Syncer the returned page is closed.
func (s *Syncer) OpenPage(o PageOptions) *Page {
	p := &Page{s: s, o: o, store: o.Store, names: wire.NamesOf(s.o.Keyring, o.Ledger, o.Store.Page()),
		poke: make(chan struct{}, 1), turn: turn.New(), leader: turn.New(), moved: make(chan struct{}),
		wantUpload: true, interval: s.o.MinPoll}
	p.up.progress = progress.New(func() { p.begins(&p.up) }, s.notify)
	p.down.progress = progress.New(func() { p.begins(&p.down) }, s.notify)
	p.down.activity = Pending
	p.ctx, p.cancel = context.WithCancelCause(s.ctx)
	p.b = newScoped(s.b, p.ctx)
	p.connect()
	p.fetcher = pack.NewFetcher(pack.FetchOptions{Bucket: p.b, Sealer: s.sealer, Names: p.names, Epoch: places{p}.epoch, Store: p.store, Entries: places{p}.entry, Gone: func(ctx context.Context, d object.Digest) error { return p.gone(ctx, d) }})
	p.store.SetFetcher(p.fetcher)
	if !s.o.Manual {
		p.calls.Go(p.run)
		p.calls.Go(p.follow)
	}
	s.mu.Lock()
	closed := s.closed
	s.pages[p] = true
	s.mu.Unlock()
	if closed {
		_ = p.Close()
	}
	s.notify()
	return p
}

// connect begins a session with the log. The caller has the turn, or is the only user of the page.
func (p *Page) connect() {
	p.rep.Store(nil)
	p.ses = session{slack: p.s.random()}
}

// places tells a Fetcher where pieces are, also before the log has been read.
type places struct{ p *Page }

// page returns the page, nil if it was never synced with the bucket.
func (n places) page() *replica.Page {
	if r := n.p.rep.Load(); r != nil {
		return r
	}
	r, err := replica.Open(n.p.ctx, n.p.replicaOptions())
	if err != nil || !r.Position().Joined() || r.State().Bucket != n.p.s.o.Keyring.BucketID() {
		return nil // the reader then catches up with the log, which reports the error
	}
	n.p.rep.CompareAndSwap(nil, r)
	return r
}

// epoch is the Epoch of a Fetcher.
func (n places) epoch(pack epoch.ID) epoch.ID {
	if r := n.page(); r != nil {
		return r.PackEpoch(pack)
	}
	return epoch.ID{}
}

// entry is the Entries of a Fetcher.
func (n places) entry(ctx context.Context, number uint64) (map[object.Digest][]byte, error) {
	if r := n.page(); r != nil {
		return r.EntryPieces(ctx, number)
	}
	return nil, fmt.Errorf("read log entry %d before the log: %w", number, base.ErrNotFound)
}

// Close ends the sync of the page and waits; the store stays open. Calls in flight end with
// base.ErrClosed. It is idempotent.
func (p *Page) Close() error {
	p.closed.Do(func() {
		p.mu.Lock()
		p.closing = true
		p.mu.Unlock()
		p.cancel(errClosed)
		p.calls.Wait()
		p.store.SetFetcher(nil)
		p.fetcher.Close()
		p.s.mu.Lock()
		delete(p.s.pages, p)
		p.s.mu.Unlock()
		p.s.notify()
	})
	return nil
}

// call runs fn as a call of the page: its context ends with the page, and Close waits for it. what,
// if not empty, begins errors.
func (p *Page) call(ctx context.Context, what string, fn func(ctx context.Context) error) error {
	p.mu.Lock()
	if p.closing {
		p.mu.Unlock()
		return errClosed
	}
	p.calls.Add(1)
	p.mu.Unlock()
	defer p.calls.Done()
	ctx, release := joined(ctx, p.ctx)
	defer release()
	err := fn(ctx)
	switch {
	case err != nil && p.ctx.Err() != nil:
		return errClosed
	case err != nil && what != "":
		return fmt.Errorf("%s: %w", what, err)
	}
	return err
}

// errBusy ends a wait for the page's turn.
var errBusy = fmt.Errorf("wait for the page's sync: %w", base.ErrNetwork)

// lock waits for the page's turn, at most for a time; 0: for ever. The returned context says that
// the caller has the turn.
func (p *Page) lock(ctx context.Context, most time.Duration) (context.Context, error) {
	waiting, stop := context.WithCancel(ctx)
	if most > 0 {
		waiting, stop = context.WithTimeoutCause(ctx, most, errBusy)
	}
	defer stop()
	if p.turn.Take(waiting) != nil {
		return nil, context.Cause(waiting)
	}
	return p.fetcher.CatchingUp(ctx), nil
}

// Sync returns when everything committed before the call is in the bucket, and everything that was
// in the bucket before the call is here, merged if there is a Merge. It works in a pause too.
// Concurrent calls may share one round. It ends with the first error that needs the user (see the
// package's comment), with base.ErrNetwork when the bucket cannot be reached after the retries of
// the table, with base.ErrCorrupt naming a bad object, with the error of Merge once all else is
// done, with base.ErrConflict if without a Merge heads have to be merged before they are sent (see
// package epoch), with base.ErrClosed, or with the error of ctx.
func (p *Page) Sync(ctx context.Context) error {
	return p.call(ctx, "sync", func(ctx context.Context) error {
		seen := p.begun.Load()
		if p.leader.Take(ctx) != nil {
			return context.Cause(ctx)
		}
		defer p.leader.Give()
		if p.ended.number > seen {
			return p.ended.err
		}
		number := p.begun.Add(1)
		held, err := p.lock(ctx, 0)
		if err == nil {
			err = p.barrier(ctx, held)
		}
		if err == nil || ctx.Err() == nil { // else the caller's context ended it
			p.ended = barrier{number, err}
		}
		return err
	})
}

// WaitSynced returns when a commit is in the bucket. WaitSynced only waits: the background or a
// call to Sync does the work. It lets the background retry at once after a failure. Errors:
// base.ErrNotFound when the page has no such commit; the error of an attempt that failed since the
// call; base.ErrClosed; that of ctx.
func (p *Page) WaitSynced(ctx context.Context, id commit.ID) error {
	return p.call(ctx, "wait for commit "+id.Short(), func(ctx context.Context) error {
		c, err := p.store.Commit(ctx, id)
		if err == nil {
			err = p.store.WaitDurable(c) // a commit counts as unsynced only once it is durable
		}
		if err != nil {
			return err
		}
		p.mu.Lock()
		before := p.failures
		p.mu.Unlock()
		p.wake(true)
		for {
			p.mu.Lock()
			moved, failures, failure := p.moved, p.failures, p.failure
			p.mu.Unlock()
			unsynced, err := p.store.Unsynced(ctx)
			if err != nil || !slices.Contains(unsynced, id) {
				return err
			}
			if failures != before {
				return failure
			}
			select {
			case <-moved:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
	})
}

// Fetch brings the given pieces here, with as few requests as it can, and returns how many bytes of
// content it fetched. It skips pieces that are here or that no device has sent. If a piece is not
// at its place, it catches up with the log and tries the new place once. Errors: base.ErrNetwork,
// base.ErrGone, base.ErrCorrupt, base.ErrClosed, those of the bucket and of ctx.
func (p *Page) Fetch(ctx context.Context, pieces []object.Digest) (n int64, err error) {
	err = p.call(ctx, "", func(ctx context.Context) (err error) {
		if n, err = p.fetcher.FetchAll(ctx, pieces); !errors.Is(err, base.ErrGone) || p.fetcher.CatchesUp(ctx) {
			return err
		}
		if err := p.gone(ctx, pieces...); err != nil { // a piece is gone only if the log has no other place for it
			return fmt.Errorf("catch up with the log: %w", err)
		}
		more, err := p.fetcher.FetchAll(ctx, pieces)
		n += more
		return err
	})
	return n, err
}

// goneWait bounds how long a reader waits for the turn. The page may itself be waiting for the
// reader's request.
const goneWait = 30 * time.Second

// gone catches up with the log, because the bucket has no object at a piece's place, or the page
// has no place for the piece. After that, a piece that was moved to another pack has its new place.
// It searches the log if one of the pieces has no place then.
func (p *Page) gone(ctx context.Context, ds ...object.Digest) error {
	return p.withTurn(ctx, goneWait, "look up piece "+ds[0].Short()+" again", func(ctx context.Context) error {
		p.ses.lookAt = time.Time{} // the epoch may be past
		if _, err := p.download(ctx); err != nil || !p.ses.log.Position().Joined() {
			return err
		}
		for _, d := range ds {
			st, err := p.store.PieceState(d)
			if err != nil {
				return err
			}
			if !st.Held && !st.Synced {
				return p.rep.Load().FindPlaces(ctx)
			}
		}
		return nil
	})
}

// BuildTree is BuildTrees for one commit.
func (p *Page) BuildTree(ctx context.Context, id commit.ID) error {
	return p.BuildTrees(ctx, []commit.ID{id})
}

// BuildTrees makes the trees of treeless commits from the bucket's data. The page does not sync
// meanwhile. Errors: base.ErrNotFound; base.ErrGone when a commit was given up: the trees of all
// others have been built; those of the bucket and of ctx.
func (p *Page) BuildTrees(ctx context.Context, ids []commit.ID) error {
	return p.withTurn(ctx, 0, fmt.Sprintf("build %d trees", len(ids)), func(ctx context.Context) error {
		at := p.ses.log.Position()
		err := p.s.withNewerKeys(ctx, func() error { return p.rep.Load().BuildTrees(ctx, ids) })
		if !errors.Is(err, base.ErrGone) && !errors.Is(err, base.ErrNotFound) && !isDamage(err) {
			return err
		}
		p.ses.lookAt = time.Time{} // the data may have moved in a newer epoch, or be deleted with a past one
		if _, err := p.download(ctx); err != nil {
			return err
		}
		if p.ses.log.Position() == at {
			return err
		}
		return p.s.withNewerKeys(ctx, func() error { return p.rep.Load().BuildTrees(ctx, ids) })
	})
}

// withTurn calls fn for an API call, with the turn and a verified keyring. It waits for the turn at
// most for a time; 0: for ever.
func (p *Page) withTurn(ctx context.Context, most time.Duration, what string, fn func(ctx context.Context) error) error {
	return p.call(ctx, what, func(ctx context.Context) error {
		ctx, err := p.lock(ctx, most)
		if err != nil {
			return err
		}
		defer p.turn.Give()
		if err := p.begin(ctx); err != nil {
			return err
		}
		return fn(ctx)
	})
}
