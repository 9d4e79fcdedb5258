package cloudsync

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// PageOptions say which page.
type PageOptions struct {
	// Store is the open page. It is the caller's, to be closed after the Page.
	Store *storage.Store
	// Ledger and Name are its names; Name may be empty.
	Ledger, Name string
	// Merge merges heads into one: those of only, or all where that is nil. It is called by Sync
	// and Reupload, for as long as it takes; the background goes on beside it. nil: nobody merges.
	// Who merges by himself too asks replica.StandingOf first which heads are merged alone.
	Merge func(ctx context.Context, only []commit.ID) error
	// Plain, if not nil, reports whether what a key has must go up without compression. A commit
	// that changes such a key is not compressed, and neither is what has all keys of the page. It
	// must return soon.
	Plain func(key []byte) bool
	// Again, if not nil, reports whether a value that a commit puts under a key goes up whole, also
	// where the bucket has it, or parts of it. It must return soon.
	Again func(key []byte) bool
	// Arrived, if not nil, is told that heads came from elsewhere. It must not block, nor call the
	// Page.
	Arrived func()
	// InUse, if not nil, returns commits that are not pruned here, whatever was given up. It must
	// not block, nor call the Page.
	InUse func() []commit.ID
	// Collect, if not nil, deletes in the store what nothing refers to, for as long as that takes.
	// It must not call the Page. Nil: the Page does so itself.
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
	closed chan struct{}  // closed when Close is done
	calls  sync.WaitGroup // of the background and of calls; Add only under mu while not closing
	poke   chan struct{}  // wakes the background
	turn   chan struct{}  // I1: held by who syncs
	leader chan struct{}  // held by the call of Sync that does the work
	ended  barrier        // the last one that ended by itself; guarded by leader
	begun  atomic.Uint64  // how many barriers have begun
	ses    session        // guarded by turn, as what follows

	// rep is the page as its log sees it, nil until the first call has read what the store knows.
	rep atomic.Pointer[replica.Page]
	// stored is the page as the store knows it, for who reads a value before that first call.
	stored atomic.Pointer[replica.Page]
	// fetcher gives pieces to readers, and quiet to whoever has the turn already.
	fetcher, quiet *pack.Fetcher

	mu          sync.Mutex
	closing     bool // guarded by mu, as all below
	up, down    direction
	position    uint64
	serverTime  time.Time
	lastSuccess time.Time
	failures    uint64                  // of both directions, ever
	failure     error                   // the last of them
	moved       chan struct{}           // closed at the next change
	stopRound   context.CancelCauseFunc // ends the round of the background, nil when there is none
	wantUpload  bool                    // there may be something to send
	wantUpkeep  bool                    // a barrier has left it to the background
	nextPoll    time.Time
	interval    time.Duration
}

// barrier is a round of Sync that callers share which had called before it began.
type barrier struct {
	number uint64 // from 1 on
	err    error  // with which it ended
}

// OpenPage begins to sync a page and sets the store's Fetcher. It asks the bucket for nothing. On a
// closed Syncer the page is closed.
func (s *Syncer) OpenPage(o PageOptions) *Page {
	p := &Page{s: s, o: o, store: o.Store, names: wire.NamesOf(s.o.Keyring, o.Ledger, o.Store.Page()),
		closed: make(chan struct{}), poke: make(chan struct{}, 1), turn: make(chan struct{}, 1), leader: make(chan struct{}, 1), moved: make(chan struct{}),
		wantUpload: true, interval: s.o.MinPoll}
	p.up.progress = progress.New(func() { p.begins(&p.up) }, s.notify)
	p.down.progress = progress.New(func() { p.begins(&p.down) }, s.notify)
	p.down.activity = Pending
	p.ctx, p.cancel = context.WithCancelCause(s.ctx)
	p.b = newScoped(s.b, p.ctx)
	p.connect()
	f := pack.FetchOptions{Bucket: p.b, Sealer: s.sealer, Names: p.names, Epoch: places{p}.epoch, Store: p.store, Entries: places{p}.entry}
	p.quiet = pack.NewFetcher(f)
	f.Gone = p.gone
	p.fetcher = pack.NewFetcher(f)
	p.store.SetFetcher(p.fetcher)
	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.pages[p] = true
	}
	s.mu.Unlock()
	if closed {
		_ = p.Close()
		return p
	}
	if !s.o.Manual {
		p.start()
	}
	s.notify()
	return p
}

// start starts the background, unless the page is closed already.
func (p *Page) start() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closing {
		p.calls.Go(p.run)
		p.calls.Go(p.follow)
	}
}

// connect begins a session with the log. The caller has the turn, or nobody else the page.
func (p *Page) connect() {
	p.rep.Store(nil)
	p.stored.Store(nil)
	p.ses = session{slack: p.s.random()}
}

// places says where pieces are, to a Fetcher that may be asked before the page has been read.
type places struct{ p *Page }

// page returns the page, nil where it was never synced with the bucket.
func (n places) page() *replica.Page {
	for _, known := range []*atomic.Pointer[replica.Page]{&n.p.rep, &n.p.stored} {
		if r := known.Load(); r != nil {
			return r
		}
	}
	r, err := replica.Open(n.p.ctx, n.p.replicaOptions())
	if err != nil || !r.Position().Joined() || r.State().Bucket != n.p.s.o.Keyring.BucketID() {
		return nil // who reads catches up with the log, which says what is wrong
	}
	n.p.stored.Store(r)
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

// Close ends it and waits; the store is the caller's. Calls under way end with base.ErrClosed. It
// is idempotent.
func (p *Page) Close() error {
	p.mu.Lock()
	first := !p.closing
	p.closing = true
	p.mu.Unlock()
	if !first {
		<-p.closed
		return nil
	}
	p.cancel(errClosed)
	p.calls.Wait()
	p.store.SetFetcher(nil)
	p.fetcher.Close()
	p.quiet.Close()
	p.s.mu.Lock()
	delete(p.s.pages, p)
	p.s.mu.Unlock()
	close(p.closed)
	p.s.notify()
	return nil
}

// enter begins a call: its context ends with the page, and Close waits for leave.
func (p *Page) enter(ctx context.Context) (_ context.Context, leave func(), err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closing {
		return nil, nil, errClosed
	}
	p.calls.Add(1)
	ctx, release := joined(ctx, p.ctx)
	return ctx, func() {
		release()
		p.calls.Done()
	}, nil
}

// outward returns err as callers get it.
func (p *Page) outward(err error) error {
	if err != nil && p.ctx.Err() != nil {
		return errClosed
	}
	return err
}

// holder is the key of a context under which the caller has the turn of the page that is its value.
type holder struct{}

// lock waits for the page's turn. The context that it returns says that the caller has it.
func (p *Page) lock(ctx context.Context) (context.Context, error) { return p.lockWithin(ctx, 0) }

// lockWithin is lock, for no longer than most, 0 being for ever.
func (p *Page) lockWithin(ctx context.Context, most time.Duration) (context.Context, error) {
	select {
	case p.turn <- struct{}{}:
	default:
		var timeout <-chan time.Time
		if most > 0 {
			var release func()
			timeout, release = p.s.o.Clock.After(most)
			defer release()
		}
		select {
		case p.turn <- struct{}{}:
		case <-timeout:
			return nil, fmt.Errorf("wait for the page's sync: %w", base.ErrNetwork)
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	if ctx.Err() != nil {
		<-p.turn
		return nil, context.Cause(ctx)
	}
	return context.WithValue(ctx, holder{}, p), nil
}

func (p *Page) unlock() { <-p.turn }

// Sync returns when everything that was committed before the call is in the bucket and everything
// that was in the bucket before the call is here, merged if there is who merges. It works in pause
// too. Who calls while another call is at it may share its end. It ends with the first error that
// needs the user (see the package's comment), with base.ErrNetwork when the bucket cannot be
// reached after the retries of the table, with base.ErrCorrupt naming an object that is bad, with
// what Merge returned once all else is done, with base.ErrClosed, or with the error of ctx.
func (p *Page) Sync(ctx context.Context) error {
	ctx, leave, err := p.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	seen := p.begun.Load()
	select {
	case p.leader <- struct{}{}:
		defer func() { <-p.leader }()
	case <-ctx.Done():
		return p.outward(fmt.Errorf("sync: %w", context.Cause(ctx)))
	}
	if p.ended.number > seen {
		return p.outward(p.ended.err)
	}
	number := p.begun.Add(1)
	held, err := p.lock(ctx)
	if err == nil {
		err = p.barrier(ctx, held)
	}
	if err != nil {
		err = fmt.Errorf("sync: %w", err)
	}
	if err == nil || ctx.Err() == nil { // else it was the caller's context that ended it
		p.ended = barrier{number, err}
	}
	return p.outward(err)
}

// WaitSynced returns when a commit is in the bucket. It waits for the background, or for who calls
// Sync where there is none, and lets what failed be tried again at once. Errors: base.ErrNotFound
// when the page has no such commit; the error of an attempt that failed since the call;
// base.ErrClosed; that of ctx.
func (p *Page) WaitSynced(ctx context.Context, id commit.ID) error {
	ctx, leave, err := p.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	c, err := p.store.Commit(ctx, id)
	if err == nil {
		err = p.store.WaitDurable(c) // before that it does not count as unsynced
	}
	if err != nil {
		return p.outward(fmt.Errorf("wait for commit %s: %w", id.Short(), err))
	}
	p.mu.Lock()
	before := p.failures
	p.mu.Unlock()
	p.wake(true)
	for {
		p.mu.Lock()
		moved, failures, failure := p.moved, p.failures, p.failure
		p.mu.Unlock()
		if synced, err := p.isSynced(ctx, id); synced || err != nil {
			return p.outward(err)
		}
		if failures != before {
			return p.outward(fmt.Errorf("wait for commit %s: %w", id.Short(), failure))
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return p.outward(fmt.Errorf("wait for commit %s: %w", id.Short(), context.Cause(ctx)))
		}
	}
}

func (p *Page) isSynced(ctx context.Context, id commit.ID) (bool, error) {
	unsynced, err := p.store.Unsynced(ctx)
	if err != nil {
		return false, fmt.Errorf("wait for commit %s: %w", id.Short(), err)
	}
	for _, u := range unsynced {
		if u == id {
			return false, nil
		}
	}
	return true, nil
}

// Fetch brings the given pieces here, with as few requests as it can, and returns how many bytes of
// content came. Pieces that are here, or that nobody has sent, are passed over. When something is
// not where it should be, it catches up with the log and looks there once more. Errors:
// base.ErrNetwork, base.ErrGone, base.ErrCorrupt, base.ErrClosed, those of the bucket and of ctx.
func (p *Page) Fetch(ctx context.Context, pieces []object.Digest) (int64, error) {
	ctx, leave, err := p.enter(ctx)
	if err != nil {
		return 0, err
	}
	defer leave()
	n, err := p.fetcher.FetchAll(ctx, pieces)
	if !errors.Is(err, base.ErrGone) {
		return n, p.outward(err)
	}
	if err := p.gone(ctx, pieces[0]); err != nil { // it is gone only when the log says nothing else
		return n, p.outward(fmt.Errorf("catch up with the log: %w", err))
	}
	more, err := p.fetcher.FetchAll(ctx, pieces)
	return n + more, p.outward(err)
}

// goneWait bounds how long a reader waits for the turn of a page that may itself be waiting for the
// reader's request.
const goneWait = 30 * time.Second

// gone catches up with the log, since the bucket has no object where a piece should stand, or the
// page does not know where that is. A pack that moved has another place then.
func (p *Page) gone(ctx context.Context, d object.Digest) error {
	if ctx.Value(holder{}) == p {
		return fmt.Errorf("look up piece %s again: %w", d.Short(), base.ErrGone)
	}
	return p.withTurnWithin(ctx, goneWait, "look up piece "+d.Short()+" again", func(ctx context.Context) error {
		p.ses.looked = false // the epoch may be past
		if _, err := p.download(ctx); err != nil {
			return err
		}
		return p.findPlace(ctx, d)
	})
}

// findPlace searches the log for a piece without a place.
func (p *Page) findPlace(ctx context.Context, d object.Digest) error {
	st, err := p.store.PieceState(d)
	if err != nil || st.Held || st.Synced || !p.ses.log.Position().Joined() {
		return err
	}
	return p.rep.Load().FindPlaces(ctx)
}

// BuildTree makes the tree of a commit that is known as history only, from what the bucket has. It
// holds up the page's sync meanwhile. Errors: base.ErrNotFound; base.ErrGone when it was given up;
// those of the bucket and of ctx.
func (p *Page) BuildTree(ctx context.Context, id commit.ID) error {
	return p.BuildTrees(ctx, []commit.ID{id})
}

// BuildTrees makes the trees of several commits, as BuildTree does. Errors: those of BuildTree;
// when one is gone, all others that are not have been built.
func (p *Page) BuildTrees(ctx context.Context, ids []commit.ID) error {
	return p.withTurn(ctx, fmt.Sprintf("build %d trees", len(ids)), func(ctx context.Context) error {
		at := p.ses.log.Position()
		err := p.s.withNewerKeys(ctx, func() error { return p.rep.Load().BuildTrees(ctx, ids) })
		if !errors.Is(err, base.ErrGone) && !errors.Is(err, base.ErrNotFound) && !isDamage(err) {
			return err
		}
		p.ses.looked = false // it may stand elsewhere in a newer epoch, or have gone with a past one
		if _, err := p.download(ctx); err != nil {
			return err
		}
		if p.ses.log.Position() == at {
			return err
		}
		return p.s.withNewerKeys(ctx, func() error { return p.rep.Load().BuildTrees(ctx, ids) })
	})
}

// withTurn calls fn for a call of the API, with the turn and a bucket that is the right one.
func (p *Page) withTurn(ctx context.Context, what string, fn func(ctx context.Context) error) error {
	return p.withTurnWithin(ctx, 0, what, fn)
}

// withTurnWithin is withTurn for who waits for the turn no longer than most, 0 being for ever.
func (p *Page) withTurnWithin(ctx context.Context, most time.Duration, what string, fn func(ctx context.Context) error) error {
	ctx, leave, err := p.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if ctx, err = p.lockWithin(ctx, most); err == nil {
		defer p.unlock()
		if err = p.begin(ctx); err == nil {
			err = fn(ctx)
		}
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", what, err)
	}
	return p.outward(err)
}
