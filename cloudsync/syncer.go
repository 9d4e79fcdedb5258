package cloudsync

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/clock"
	"github.com/ledgerd/ledger/internal/turn"
)

// Options configure a Syncer.
type Options struct {
	// Bucket is the plain store: the Syncer counts, limits and retries. The caller owns it, and
	// closes it after the Syncer.
	Bucket bucket.Bucket
	// Keyring is the keyring of the bucket, as Connect returns it.
	Keyring *seal.Keyring
	// KeepKeys makes a ring durable before the Syncer uses it: the ring after Keyring, or after the
	// last one passed to KeepKeys. nil: no ring is kept. Its calls run one at a time.
	KeepKeys func(ring []byte) error
	// Key is the key with which the device signs its objects. It is kept with the repository, and
	// drawn again in a copied one. Without a key the Syncer draws one.
	Key seal.DeviceKey
	// Clock gives the time and makes all waits; nil: clock.System.
	Clock clock.Clock
	// Logger receives events of the background; nil: nothing is logged.
	Logger *slog.Logger
	// Random is the source of ids and of jitter; nil: the system's. It is safe for concurrent use.
	Random io.Reader
	// Limits bound the rates of requests and bytes.
	Limits Limits
	// MinPoll and MaxPoll bound the pause between two looks for new entries; 0: 2 seconds and 5
	// minutes.
	MinPoll, MaxPoll time.Duration
	// Stall is how long a request may make no progress before it is retried; it may take up to
	// twice that. 0: a minute by the system's clock, for ever by another one; negative: for ever.
	Stall time.Duration
	// Paused makes the Syncer begin paused.
	Paused bool
	// Manual starts no background sync: only Sync syncs.
	Manual bool
}

func (o Options) withDefaults() Options {
	if o.Clock == nil {
		o.Clock = clock.System
	}
	if o.Stall == 0 && o.Clock == clock.System {
		o.Stall = bucket.DefaultStall
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Random == nil {
		o.Random = rand.Reader
	}
	if o.MinPoll <= 0 {
		o.MinPoll = 2 * time.Second
	}
	if o.MaxPoll <= 0 {
		o.MaxPoll = 5 * time.Minute
	}
	o.MaxPoll = max(o.MinPoll, o.MaxPoll)
	return o
}

// Limits bound the rates of sync.
type Limits = bucket.Limits

// Syncer syncs the open pages of a repository with one bucket. Its methods are safe for concurrent
// use.
type Syncer struct {
	o      Options
	meter  *bucket.Meter
	b      bucket.Bucket // with retries; ends with Close
	sealer *seal.Sealer
	ctx    context.Context // ends with Close
	cancel context.CancelCauseFunc

	retries, entries, applied, checkpoints atomic.Int64

	keysTurn turn.Lock // held while the caller looks for rings or puts one
	keysSeen time.Time // when the newest ring was last verified to be the known one; guarded by keysTurn

	mu        sync.Mutex
	running   context.Context              // ends with a pause; guarded by mu
	pause     context.CancelCauseFunc      // guarded by mu
	closed    bool                         // guarded by mu
	pages     map[*Page]bool               // guarded by mu
	changed   chan struct{}                // guarded by mu
	announced map[string]wire.Announcement // by name of the object; guarded by mu
}

// New returns a Syncer. It makes no request.
func New(o Options) *Syncer {
	o = o.withDefaults()
	s := &Syncer{o: o, sealer: seal.NewSealer(o.Keyring, o.Random), pages: map[*Page]bool{}, changed: make(chan struct{}),
		keysTurn: turn.New(), announced: map[string]wire.Announcement{}}
	if !o.Key.IsZero() {
		s.sealer.SignAs(o.Key)
	}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.running, s.pause = context.WithCancelCause(context.Background())
	if o.Paused {
		s.pause(errPaused)
	}
	s.meter = bucket.NewMeter(o.Bucket, bucket.MeterOptions{Clock: o.Clock, Limits: o.Limits, Stall: o.Stall})
	retry := bucket.NewRetry(s.meter, bucket.RetryOptions{Clock: o.Clock, Jitter: s.random, OnRetry: func(error, time.Duration) { s.retries.Add(1) }})
	s.b = newScoped(retry, s.ctx)
	return s
}

// Bucket returns the bucket with Limits, retries and Metrics of the Syncer. It works until Close.
func (s *Syncer) Bucket() bucket.Bucket { return s.b }

// Close stops all work and waits, also for calls of its pages, which end with base.ErrClosed. It
// does not push unsynced commits; Sync does. It is idempotent.
func (s *Syncer) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	var wg sync.WaitGroup
	for _, p := range s.openPages() {
		wg.Go(func() { _ = p.Close() })
	}
	wg.Wait()
	s.cancel(errClosed)
	return nil
}

var errClosed = fmt.Errorf("sync: %w", base.ErrClosed)

func (s *Syncer) openPages() []*Page {
	s.mu.Lock()
	defer s.mu.Unlock()
	pages := make([]*Page, 0, len(s.pages))
	for p := range s.pages {
		pages = append(pages, p)
	}
	return pages
}

// Pause stops the work in the background and lets none begin until Resume. Sync works in a pause
// too.
func (s *Syncer) Pause() {
	s.mu.Lock()
	s.pause(errPaused)
	s.mu.Unlock()
	s.notify()
}

// Resume ends a pause and retries at once after failures.
func (s *Syncer) Resume() {
	s.mu.Lock()
	if s.running.Err() != nil {
		s.running, s.pause = context.WithCancelCause(context.Background())
	}
	s.mu.Unlock()
	for _, p := range s.openPages() {
		p.wake(true)
	}
	s.notify()
}

// Paused reports whether background sync is paused.
func (s *Syncer) Paused() bool { return s.unpaused().Err() != nil }

// unpaused returns a context that ends with the next pause.
func (s *Syncer) unpaused() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running
}

// random returns a number from 0 up to, but not including, 1.
func (s *Syncer) random() float64 { return bucket.Jitter(s.o.Random) }

// newID returns a new random id.
func (s *Syncer) newID() (id epoch.ID) {
	if _, err := io.ReadFull(s.o.Random, id[:]); err != nil || id == (epoch.ID{}) {
		rand.Read(id[:]) // the system's source does not fail
	}
	return id
}

const (
	// maxAnnouncementBytes bounds a stored announcement: two names of ledgers at most, and the
	// seal.
	maxAnnouncementBytes = 64 << 10
	// announcementReaders is how many announcements are read at once.
	announcementReaders = 8
)

// Announced lists the pages that the bucket has, sorted by ledger and page. It leaves bad
// announcements out: then it returns, with the good ones, an error that names them and matches
// base.ErrCorrupt or base.ErrUnsupported. It does not read an announcement twice. Other errors:
// base.ErrClosed, those of the bucket.
func (s *Syncer) Announced(ctx context.Context) ([]wire.Announcement, error) {
	infos, err := listAll(ctx, s.b, wire.PagesPrefix, "")
	if err != nil {
		return nil, fmt.Errorf("list pages: %w", s.outward(err))
	}
	read, bad := make([]*wire.Announcement, len(infos)), make([]error, len(infos))
	err = bucket.InParallel(ctx, announcementReaders, len(infos), func(ctx context.Context, i int) error {
		a, err := s.announcement(ctx, infos[i].Name)
		switch {
		case err == nil:
			read[i] = &a
		case errors.Is(err, base.ErrNotFound): // deleted since
		case errors.Is(err, base.ErrCorrupt), errors.Is(err, base.ErrUnsupported):
			bad[i] = damagedIf(fmt.Errorf("read announcement %s: %w", infos[i].Name, err))
		default:
			return fmt.Errorf("read announcement %s: %w", infos[i].Name, err)
		}
		return nil
	})
	if err != nil {
		return nil, s.outward(err)
	}
	var all []wire.Announcement
	for _, a := range read {
		if a != nil {
			all = append(all, *a)
		}
	}
	slices.SortFunc(all, func(a, b wire.Announcement) int {
		return base.Page{Ledger: a.Ledger, ID: a.Page}.Compare(base.Page{Ledger: b.Ledger, ID: b.Page})
	})
	return all, errors.Join(bad...)
}

// announcement returns the announcement of a name, from the bucket if it was not read before.
func (s *Syncer) announcement(ctx context.Context, name string) (wire.Announcement, error) {
	s.mu.Lock()
	a, ok := s.announced[name]
	s.mu.Unlock()
	if ok {
		return a, nil
	}
	stored, err := readAll(ctx, s.b, name, maxAnnouncementBytes)
	if err != nil {
		return a, err
	}
	if a, err = wire.OpenAnnouncement(s.sealer, name, stored); err != nil {
		return a, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.announced[name] = a
	return a, nil
}

// outward returns err as callers get it: base.ErrClosed after the Syncer was closed.
func (s *Syncer) outward(err error) error {
	if err != nil && s.ctx.Err() != nil {
		return errClosed
	}
	return err
}

// listAll returns all objects with prefix that follow after, in order. Errors: as bucket.Each.
func listAll(ctx context.Context, b bucket.Bucket, prefix, after string) (all []bucket.Info, err error) {
	err = bucket.Each(ctx, b, after, prefix, func(info bucket.Info) bool {
		all = append(all, info)
		return true
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}
