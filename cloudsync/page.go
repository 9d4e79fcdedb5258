package cloudsync

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/ingest"
	"github.com/ledgerd/ledger/cloudsync/outgoing"
	"github.com/ledgerd/ledger/cloudsync/pack"
	"github.com/ledgerd/ledger/cloudsync/progress"
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
	// Merge merges the heads, when there are several; nil: nobody does. It is called by Sync and
	// Reupload, for as long as it takes; the background goes on beside it.
	Merge func(ctx context.Context) error
	// Plain, if not nil, reports whether what a key has must go up without compression. A commit
	// that changes such a key is not compressed, and neither is what has all keys of the page. It
	// must return soon.
	Plain func(key []byte) bool
	// Arrived, if not nil, is told that heads came from elsewhere. It must not block, nor call the
	// Page.
	Arrived func()
	// InUse, if not nil, returns commits that are not pruned here, whatever the bucket's retention
	// says. It must not block, nor call the Page.
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
	names format.PageNames
	b     bucket.Bucket // ends with the page

	ctx      context.Context // ends with Close
	cancel   context.CancelCauseFunc
	closed   chan struct{}  // closed when Close is done
	calls    sync.WaitGroup // of the background and of calls; Add only under mu while not closing
	poke     chan struct{}  // wakes the background
	turn     chan struct{}  // I1: held by who syncs
	leader   chan struct{}  // held by the call of Sync that does the work
	ses      session        // guarded by turn, as what follows
	recorder *recorder
	in       *ingest.Page
	out      *outgoing.Page

	mu          sync.Mutex
	closing     bool            // guarded by mu, as all below
	fetchers    []*pack.Fetcher // two for each connection with a log, of which the last but one gives pieces to the store
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
	holding     bool                    // what is to be sent waits for a merge, until holdUntil or a change
	holdUntil   time.Time
	nextPoll    time.Time
	interval    time.Duration
	barriers    barriers
}

// barriers let callers of Sync share a round that began after all of them had called.
type barriers struct {
	begun  uint64 // how many have begun
	number uint64 // of the last that ended by itself
	err    error  // with what
}

// OpenPage begins to sync a page and sets the store's Fetcher. It asks the bucket for nothing. On a
// closed Syncer the page is closed.
func (s *Syncer) OpenPage(o PageOptions) *Page {
	p := &Page{s: s, o: o, store: o.Store, names: format.NamesOf(s.o.Keyring, o.Ledger, o.Store.Page()),
		closed: make(chan struct{}), poke: make(chan struct{}, 1), turn: make(chan struct{}, 1), leader: make(chan struct{}, 1), moved: make(chan struct{}),
		wantUpload: true, interval: s.o.MinPoll}
	p.up.progress = progress.New(func() { p.begins(&p.up) }, s.notify)
	p.down.progress = progress.New(func() { p.begins(&p.down) }, s.notify)
	p.down.activity = Pending
	p.ctx, p.cancel = context.WithCancelCause(s.ctx)
	p.b = scoped{s.b, p.ctx}
	p.connect() // before anybody can close it
	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.pages[p] = true
	}
	s.mu.Unlock()
	if closed {
		p.close(s.ctx)
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

// connect makes what works on a log, anew when that is another one. The caller has the turn, or
// nobody else the page.
func (p *Page) connect() {
	p.ses = session{}
	p.recorder = newRecorder(p.b, p.s.sealer, p.names)
	o := pack.FetchOptions{Bucket: p.b, Sealer: p.s.sealer, Names: p.names, Store: p.store}
	quiet := pack.NewFetcher(o) // for who has the turn already
	o.Gone = p.gone
	fetcher := pack.NewFetcher(o)
	p.in = ingest.New(ingest.Options{Store: p.store, Bucket: p.b, Sealer: p.s.sealer, Names: p.names, Fetcher: quiet, Device: p.s.o.Device,
		Announced: outgoing.Announced, Past: p.pastOf, Progress: p.down.progress})
	p.out = outgoing.New(outgoing.Options{Store: p.store, Bucket: p.b, Sealer: p.s.sealer, Names: p.names, Device: p.s.o.Device, NewID: p.s.newID,
		Cached: p.recorder.cached, At: p.at, Progress: p.up.progress, Plain: p.o.Plain,
		Kept: func() (format.Retention, []format.Condemnation) { return p.ses.retention, nil }})
	p.mu.Lock()
	p.fetchers = append(p.fetchers, fetcher, quiet)
	p.mu.Unlock()
	p.store.SetFetcher(fetcher)
}

// farewell bounds how long Close talks with the bucket, by the machine's clock.
const farewell = 1500 * time.Millisecond

// Close ends it and waits; the store is the caller's. Calls under way end with base.ErrClosed. If
// the bucket was not told today how far the device has read, it is told, in less than two seconds;
// that this did not work is no error. It is idempotent.
func (p *Page) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), farewell)
	defer cancel()
	p.close(ctx)
	return nil
}

func (p *Page) close(ctx context.Context) {
	p.mu.Lock()
	first := !p.closing
	p.closing = true
	p.mu.Unlock()
	if !first {
		<-p.closed
		return
	}
	p.cancel(errClosed)
	p.calls.Wait()
	p.tellAtClose(ctx)
	p.store.SetFetcher(nil)
	for _, f := range p.fetchers { // nobody adds one any more
		f.Close()
	}
	p.s.mu.Lock()
	delete(p.s.pages, p)
	p.s.mu.Unlock()
	close(p.closed)
	p.s.notify()
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
func (p *Page) lock(ctx context.Context) (context.Context, error) {
	select {
	case p.turn <- struct{}{}:
		if ctx.Err() != nil {
			<-p.turn
			return nil, context.Cause(ctx)
		}
		return context.WithValue(ctx, holder{}, p), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
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
	p.mu.Lock()
	seen := p.barriers.begun
	p.mu.Unlock()
	select {
	case p.leader <- struct{}{}:
		defer func() { <-p.leader }()
	case <-ctx.Done():
		return p.outward(fmt.Errorf("sync: %w", context.Cause(ctx)))
	}
	if err, ok := p.shared(seen); ok {
		return p.outward(err)
	}
	number := p.barrierBegins()
	held, err := p.lock(ctx)
	if err == nil {
		err = p.barrier(ctx, held)
	}
	if err != nil {
		err = fmt.Errorf("sync: %w", err)
	}
	p.barrierEnds(ctx, number, err)
	return p.outward(err)
}

// shared returns how a barrier ended that began after the caller had seen so many begin.
func (p *Page) shared(seen uint64) (error, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.barriers.err, p.barriers.number > seen
}

func (p *Page) barrierBegins() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.barriers.begun++
	return p.barriers.begun
}

// barrierEnds remembers the end for who waits, unless it was the caller's context that ended it.
func (p *Page) barrierEnds(ctx context.Context, number uint64, err error) {
	if err != nil && ctx.Err() != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if number > p.barriers.number {
		p.barriers.number, p.barriers.err = number, err
	}
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
	p.mu.Lock()
	fetcher := p.fetchers[len(p.fetchers)-2]
	p.mu.Unlock()
	n, err := fetcher.FetchAll(ctx, pieces)
	if !errors.Is(err, base.ErrGone) {
		return n, p.outward(err)
	}
	if err := p.gone(ctx, pieces[0]); err != nil { // it is gone only when the log says nothing else
		return n, p.outward(fmt.Errorf("catch up with the log: %w", err))
	}
	more, err := fetcher.FetchAll(ctx, pieces)
	return n + more, p.outward(err)
}

// goneWait bounds how long a reader waits for the turn of a page that may itself be waiting for the
// reader's request.
const goneWait = 30 * time.Second

// gone catches up with the log, since the bucket has no object where a piece should stand, or the
// page does not know where that is; then it searches the log for it.
func (p *Page) gone(ctx context.Context, d object.Digest) error {
	if ctx.Value(holder{}) == p {
		return fmt.Errorf("look up piece %s again: %w", d.Short(), base.ErrGone)
	}
	ctx, leave, err := p.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if err := p.lockSoon(ctx); err != nil {
		return p.outward(fmt.Errorf("look up piece %s again: %w", d.Short(), err))
	}
	defer p.unlock()
	held := context.WithValue(ctx, holder{}, p)
	if err = p.begin(held); err == nil {
		_, err = p.download(held)
	}
	if err == nil {
		err = p.findPlaceOf(held, d)
	}
	return p.outward(err)
}

// lockSoon waits for the page's turn, but not for ever.
func (p *Page) lockSoon(ctx context.Context) error {
	select {
	case p.turn <- struct{}{}:
		return nil
	default:
	}
	timeout, release := p.s.o.Clock.After(goneWait)
	defer release()
	select {
	case p.turn <- struct{}{}:
		return nil
	case <-timeout:
		return fmt.Errorf("wait for the page's sync: %w", base.ErrNetwork)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// BuildTree makes the tree of a commit that is known as history only, from what the bucket has: the
// newest checkpoint before the commit, or the beginning of the log, and the entries behind that. It
// holds up the page's sync meanwhile. Errors: base.ErrNotFound; base.ErrGone when retention has
// given it up; those of the bucket and of ctx.
func (p *Page) BuildTree(ctx context.Context, id commit.ID) error {
	return p.withTurn(ctx, "build the tree of "+id.Short(), func(ctx context.Context) error {
		return p.fromPast(ctx, func() error { return p.buildTree(ctx, id) })
	})
}

// BuildTrees makes the trees of several commits, as BuildTree does, with the log read twice in all
// when they are many. Errors: those of BuildTree; when one is gone, all others that are not have
// been built.
func (p *Page) BuildTrees(ctx context.Context, ids []commit.ID) error {
	return p.withTurn(ctx, fmt.Sprintf("build the trees of %d commits", len(ids)), func(ctx context.Context) error {
		return p.fromPast(ctx, func() error { return p.buildTrees(ctx, ids) })
	})
}

// fromPast calls build, and once more when the bucket does not have what that needs and the log has
// gone on: what was read may have been given up since, for a checkpoint further on that has the
// tree. Which row says how far the log was read can be lost, too.
func (p *Page) fromPast(ctx context.Context, build func() error) error {
	at := p.ses.log.Position().Number
	err := build()
	if !errors.Is(err, base.ErrGone) {
		return err
	}
	if _, err := p.download(ctx); err != nil {
		return err
	}
	if p.ses.log.Position().Number == at {
		return err
	}
	return build()
}
