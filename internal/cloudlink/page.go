package cloudlink

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/turn"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// PageOptions name the page of a Page and have its callbacks, which may be called on any goroutine.
type PageOptions struct {
	Page  base.Page
	Name  string // the human name, "" when there is none
	Store *storage.Store
	// Arrived, InUse, Collect and Merge are as in cloudsync.PageOptions.
	Arrived func()
	InUse   func() []commit.ID
	Collect func(context.Context) error
	Merge   func(context.Context) error
}

// Page is the cloud state of an open page. It is safe for concurrent use.
type Page struct {
	PageOptions
	link *Link

	turn  turn.Lock       // guards the following fields
	sync  *cloudsync.Page // nil while it is not synced
	conn  *Conn           // the connection with which it is synced
	ended bool            // it is closing
}

// Page returns the cloud state of a page. End must be called before the store is closed.
func (l *Link) Page(o PageOptions) *Page {
	return &Page{PageOptions: o, link: l, turn: turn.New()}
}

// Begin starts to sync a page whose store was just opened. Without a connection, the next round of
// a Keeper or the first read of missing data connects and starts the sync.
func (s *Page) Begin(ctx context.Context) {
	f, conn := s.link.get()
	switch {
	case f == nil || s.link.o.ReadOnly:
	case conn == nil:
		s.Store.SetFetcher(lateFetcher{s})
	default:
		if _, err := s.attach(ctx, conn, false); err != nil && !errors.Is(err, base.ErrClosed) {
			s.link.o.Logger.Warn("a page cannot be synced", "ledger", s.Page.Ledger, "page", hexOf(s.Page.ID), "error", err)
		}
	}
}

// lateFetcher connects to the cloud when a missing piece is read.
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

// Synced returns the syncer of the page; it connects and starts if necessary. Errors: those of
// connect, cloudsync.ErrBucketReplaced.
func (s *Page) Synced(ctx context.Context) (*cloudsync.Page, error) {
	return s.synced(ctx, false)
}

// synced is Synced; anyhow: see attach.
func (s *Page) synced(ctx context.Context, anyhow bool) (*cloudsync.Page, error) {
	conn, err := s.link.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return s.attach(ctx, conn, anyhow)
}

// attach starts to sync the page with the bucket of conn. A page that was synced with another
// bucket first forgets it, if that loses no data; anyhow attaches the page in any case.
func (s *Page) attach(ctx context.Context, conn *Conn, anyhow bool) (*cloudsync.Page, error) {
	if err := s.turn.Take(ctx); err != nil {
		return nil, fmt.Errorf("begin to sync: %w", err)
	}
	defer s.turn.Give()
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

// forgetOther resets the sync state of a page that was synced with another bucket.
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

// opened returns the sync options of a page, whether apps may use it yet or not.
func (l *Link) opened(p base.Page, name string, store *storage.Store) cloudsync.PageOptions {
	return cloudsync.PageOptions{
		Store: store, Ledger: p.Ledger, Name: name,
		Plain: l.keysUnder(p, func(r Rule) bool { return r.CompressionOff }),
		Again: l.keysUnder(p, func(r Rule) bool { return r.DedupOff }),
	}
}

// End ends the syncing of the page for good, before its store closes.
func (s *Page) End() error { return s.end(true) }

// end ends the syncing of the page; ever means for good.
func (s *Page) end(ever bool) error {
	s.turn.Wait() // held only while a page begins or ends its sync
	defer s.turn.Give()
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

// changesOfCloud is how often a call starts again because of a change of cloud.
const changesOfCloud = 3

// Do calls fn with the syncer of the page; it connects and starts if necessary. It calls fn again
// when the cloud was changed or removed meanwhile. Errors: those of Connect,
// cloudsync.ErrBucketReplaced, those of fn.
func (s *Page) Do(ctx context.Context, fn func(context.Context, *cloudsync.Page) error) error {
	for n := 0; ; n++ {
		synced, err := s.Synced(ctx)
		if err == nil {
			err = fn(ctx, synced)
		}
		if n == changesOfCloud || !errors.Is(err, base.ErrClosed) || ctx.Err() != nil {
			return err
		}
		// The page is still open; its syncing ended because the cloud is being changed.
		release, err := s.link.Take(ctx)
		if err != nil {
			return err
		}
		release()
	}
}

// Reupload uploads the page to the present bucket, whatever its former bucket. It returns the
// number of pieces that are neither on this device nor in the bucket.
func (s *Page) Reupload(ctx context.Context) (missing int, err error) {
	synced, err := s.synced(ctx, true)
	if err != nil {
		return 0, err
	}
	return synced.Reupload(ctx)
}

// State returns the state of sync of the page.
func (s *Page) State(ctx context.Context) (out cloudsync.PageState) {
	s.turn.Wait() // see end
	defer s.turn.Give()
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
	if unsynced, err := s.Store.Unsynced(ctx); err == nil { // otherwise the page is closing, or damaged, which its readers report
		out.SetUnsynced(ctx, s.Store, unsynced)
	}
	return out
}

// Remembered returns State with the stored results of earlier runs. unsynced are the commits that
// the bucket does not have. Errors: those of the store.
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
	rec := s.link.record.page(s.Page)
	if rec.Success.After(out.LastSuccess) {
		out.LastSuccess = rec.Success
	}
	if at.At.Deleted {
		out.Upload, out.Download = cloudsync.NeedsUser, cloudsync.NeedsUser
		out.UploadErr, out.DownloadErr = cloudsync.ErrDeleted, cloudsync.ErrDeleted
	}
	if out.UploadErr == nil && out.DownloadErr == nil {
		if rec.UpErr != "" {
			out.Upload, out.UploadErr = max(rec.Up, cloudsync.Failing), errors.New(rec.UpErr)
		}
		if rec.DownErr != "" {
			out.Download, out.DownloadErr = max(rec.Down, cloudsync.Failing), errors.New(rec.DownErr)
		}
	}
	return out, nil
}

// explain adds to a state without an error the error that stops the sync of all pages.
func (l *Link) explain(s *cloudsync.PageState) {
	if s.UploadErr != nil || s.DownloadErr != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.err
	if err == nil && s.LastSuccess.Before(l.failed.at) {
		err = l.failed.err
	}
	if err != nil {
		activity := activityOf(err)
		s.Upload, s.Download, s.UploadErr, s.DownloadErr = activity, activity, err, err
	}
}

// activityOf is cloudsync.ActivityOf for an error that stops the sync of all pages. Without an
// answer of the bucket it is about the key or the file `cloud`: only the user can help.
func activityOf(err error) cloudsync.Activity {
	if _, asked := errors.AsType[*bucket.Error](err); asked || errors.Is(err, base.ErrNetwork) {
		return cloudsync.ActivityOf(err)
	}
	return cloudsync.NeedsUser
}
