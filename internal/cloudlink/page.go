package cloudlink

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// PageOptions say of which page a Page is, and what is called for it. The functions may be called
// on any goroutine.
type PageOptions struct {
	Page  base.Page
	Name  string // the human name, "" when there is none
	Store *storage.Store
	// Arrived, InUse, Collect and Merge are as in cloudsync.PageOptions.
	Arrived func()
	InUse   func() []commit.ID
	Collect func(context.Context) error
	Merge   func(context.Context, []commit.ID) error
}

// Page is what an open page has of the cloud. It is safe for concurrent use.
type Page struct {
	PageOptions
	link *Link

	turn  chan struct{}   // holds one token: guards what follows
	sync  *cloudsync.Page // nil while it is not synced
	conn  *Conn           // with which it is synced
	ended bool            // it is about to close
}

// Page returns what a page has of the cloud. End must be called before the store is closed.
func (l *Link) Page(o PageOptions) *Page {
	return &Page{PageOptions: o, link: l, turn: make(chan struct{}, 1)}
}

// Begin begins to sync a page of which the store was opened, or has the first read of what is not
// here do so.
func (s *Page) Begin(ctx context.Context) {
	f, conn := s.link.get()
	switch {
	case f == nil || s.link.o.ReadOnly:
	case conn == nil:
		s.Store.SetFetcher(lateFetcher{s})
	default:
		if _, err := s.attach(ctx, conn, false); err != nil {
			s.link.o.Logger.Warn("a page cannot be synced", "ledger", s.Page.Ledger, "page", hexOf(s.Page.ID), "error", err)
		}
	}
}

// lateFetcher connects to the cloud when a piece is read that is not here.
type lateFetcher struct{ s *Page }

// Fetch implements storage.Fetcher.
func (f lateFetcher) Fetch(ctx context.Context, d object.Digest, _ storage.CloudPlace) ([]byte, error) {
	if _, err := f.FetchAll(ctx, []object.Digest{d}); err != nil {
		return nil, err
	}
	return f.s.Store.Piece(ctx, d)
}

// FetchAll implements storage.Fetcher.
func (f lateFetcher) FetchAll(ctx context.Context, ds []object.Digest) (int64, error) {
	synced, err := f.s.Synced(ctx)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", base.ErrNeedsFetch, err)
	}
	return synced.Fetch(ctx, ds)
}

// Synced returns what syncs the page, connecting and beginning where that is needed. Errors: those
// of connect, cloudsync.ErrBucketReplaced.
func (s *Page) Synced(ctx context.Context) (*cloudsync.Page, error) {
	conn, err := s.link.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return s.attach(ctx, conn, false)
}

// syncedInTurn is Synced for who has the cloud's turn.
func (s *Page) syncedInTurn(ctx context.Context) (*cloudsync.Page, error) {
	conn, err := s.link.connectInTurn(ctx)
	if err != nil {
		return nil, err
	}
	return s.attach(ctx, conn, true)
}

// attach begins to sync the page with the bucket of conn. A page that has been synced with another
// bucket forgets that first, when nothing is lost by it; anyhow says that it is wanted whatever it
// has been synced with.
func (s *Page) attach(ctx context.Context, conn *Conn, anyhow bool) (*cloudsync.Page, error) {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("begin to sync: %w", ctx.Err())
	}
	if s.sync != nil && s.conn == conn {
		return s.sync, nil
	}
	if s.ended {
		return nil, fmt.Errorf("page: %w", base.ErrClosed)
	}
	if s.sync != nil {
		if err := s.sync.Close(); err != nil {
			return nil, err
		}
		s.sync = nil
	}
	if !anyhow {
		if err := s.forgetOther(ctx, conn.id()); err != nil {
			return nil, err
		}
	}
	s.sync, s.conn = conn.Syncer.OpenPage(s.syncOptions()), conn
	return s.sync, nil
}

// forgetOther makes a page that has been synced with another bucket one that has not.
func (s *Page) forgetOther(ctx context.Context, id seal.ID) error {
	was, other, err := s.otherBucket(ctx, id)
	if err != nil || !other {
		return err
	}
	if err := s.Store.ForgetCloud(ctx, true); err != nil {
		return fmt.Errorf("the page was synced with bucket %s, and the present one is %s: %w: %w", hexOf(was), hexOf(id), cloudsync.ErrBucketReplaced, err)
	}
	return nil
}

func (s *Page) syncOptions() cloudsync.PageOptions {
	o := s.link.opened(s.Page, s.Name, s.Store)
	o.Arrived, o.InUse, o.Collect, o.Merge = s.Arrived, s.InUse, s.Collect, s.Merge
	return o
}

// opened says how a page is synced, whether apps may use it yet or not.
func (l *Link) opened(p base.Page, name string, store *storage.Store) cloudsync.PageOptions {
	return cloudsync.PageOptions{
		Store: store, Ledger: p.Ledger, Name: name,
		Plain: l.keysUnder(p, func(r Rule) bool { return r.CompressionOff }),
		Again: l.keysUnder(p, func(r Rule) bool { return r.DedupOff }),
	}
}

// End ends the syncing of the page, for good: its store is about to close.
func (s *Page) End() error { return s.end(true) }

// end ends the syncing of the page, for now or for good.
func (s *Page) end(ever bool) error {
	s.turn <- struct{}{} // it is never held for longer than a page takes to begin or end
	defer func() { <-s.turn }()
	s.ended = s.ended || ever
	if s.sync == nil {
		return nil
	}
	conn := s.conn
	state := s.sync.State()
	err := s.sync.Close()
	if !ever {
		s.Store.SetFetcher(lateFetcher{s})
	}
	s.link.mu.Lock()
	if conn != nil && s.link.conn == conn {
		s.link.record.note(&state)
	}
	s.link.mu.Unlock()
	s.sync, s.conn = nil, nil
	return err
}

// changesOfCloud is how often a call begins anew because the cloud is changed.
const changesOfCloud = 3

// Do calls fn with what syncs the page, connecting and beginning where that is needed. It calls fn
// again when the cloud was changed meanwhile for another, or for none. Errors: those of Connect,
// cloudsync.ErrBucketReplaced, those of fn.
func (s *Page) Do(ctx context.Context, fn func(context.Context, *cloudsync.Page) error) error {
	try := func() error {
		synced, err := s.Synced(ctx)
		if err != nil {
			return err
		}
		return fn(ctx, synced)
	}
	err := try()
	for n := 0; n < changesOfCloud && errors.Is(err, base.ErrClosed) && ctx.Err() == nil; n++ {
		// Not the page has ended, but its syncing with a cloud that is being changed.
		release, turnErr := s.link.Take(ctx)
		if turnErr != nil {
			return turnErr
		}
		release()
		err = try()
	}
	return err
}

// Reupload has the page in the present bucket, whatever it has been synced with. It returns how
// many pieces are neither here nor there.
func (s *Page) Reupload(ctx context.Context) (missing int, err error) {
	conn, err := s.link.Connect(ctx)
	if err != nil {
		return 0, err
	}
	synced, err := s.attach(ctx, conn, true)
	if err != nil {
		return 0, err
	}
	return synced.Reupload(ctx)
}

// State returns the state of sync of the page.
func (s *Page) State(ctx context.Context) (out cloudsync.PageState) {
	s.turn <- struct{}{} // see end
	defer func() { <-s.turn }()
	if s.sync == nil {
		out = s.unattachedState(ctx)
	} else {
		out = s.sync.State()
	}
	s.link.explain(&out)
	return out
}

// unattachedState returns the state of a page that is not being synced.
func (s *Page) unattachedState(ctx context.Context) cloudsync.PageState {
	out := cloudsync.PageState{Ledger: s.Page.Ledger, Name: s.Name, Page: s.Page.ID}
	f, _ := s.link.get()
	if f == nil {
		return out
	}
	out.Paused = f.paused
	if unsynced, err := s.Store.Unsynced(ctx); err == nil { // else the page is being closed, or damaged: who reads it is told
		out.SetUnsynced(ctx, s.Store, unsynced)
	}
	return out
}

// Remembered returns State together with what is remembered of earlier runs, of which unsynced are
// the commits that the bucket does not have. Errors: those of the store.
func (s *Page) Remembered(ctx context.Context, unsynced []commit.ID) (cloudsync.PageState, error) {
	out := s.State(ctx)
	f, _ := s.link.get()
	if f == nil {
		return out, nil
	}
	out.Paused = out.Paused || f.paused
	out.SetUnsynced(ctx, s.Store, unsynced)
	at, err := cloudsync.StandingOf(ctx, s.Store)
	if err != nil {
		return out, fmt.Errorf("read the position in the cloud: %w", err)
	}
	out.Position = at.At.Number
	if at.EntryTime != 0 {
		out.ServerTime = time.Unix(0, int64(at.EntryTime)).UTC()
	}
	s.link.mu.Lock()
	defer s.link.mu.Unlock()
	if rec := s.link.record.find(s.Page.Ledger, s.Page.ID); rec != nil {
		if rec.Success.After(out.LastSuccess) {
			out.LastSuccess = rec.Success
		}
		if rec.Err != "" && out.UploadErr == nil && out.DownloadErr == nil {
			out.Upload, out.UploadErr = cloudsync.Failing, errors.New(rec.Err)
		}
	}
	return out, nil
}

// explain adds to a state that says no error what keeps all pages from being synced.
func (l *Link) explain(s *cloudsync.PageState) {
	if s.UploadErr != nil || s.DownloadErr != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	err, activity := l.err, cloudsync.NeedsUser // a key or a file that is not as it should be
	if err != nil && l.wanted != nil {
		activity = cloudsync.ActivityOf(err) // also a network that is not there
	}
	if err == nil && l.failed.err != nil && s.LastSuccess.Before(l.failed.at) {
		err, activity = l.failed.err, cloudsync.ActivityOf(l.failed.err)
	}
	if err != nil {
		s.Upload, s.Download, s.UploadErr, s.DownloadErr = activity, activity, err, err
	}
}
