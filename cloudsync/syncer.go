package cloudsync

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
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
)

// Options say with which bucket and how.
type Options struct {
	// Bucket is the bare one: the Syncer counts, limits and retries. It is the caller's, to be
	// closed after the Syncer.
	Bucket bucket.Bucket
	// Keyring is that of the bucket, which Connect gives.
	Keyring *seal.Keyring
	// KeepKeys makes a ring durable that comes after Keyring, or after the last one that it was
	// given, before it is used; nil: none is kept. Its calls run one at a time.
	KeepKeys func(ring []byte) error
	// Key is that with which the device signs what it writes: kept with the repository, drawn anew
	// in a copied one. Without one the Syncer draws its own.
	Key seal.DeviceKey
	// Clock tells the time and makes all waits; nil: clock.System.
	Clock clock.Clock
	// Logger takes what happens in the background; nil: nothing is logged.
	Logger *slog.Logger
	// Random is the source of ids and of jitter; nil: the system's. It need not be safe for
	// concurrent use.
	Random io.Reader
	// Limits bound what is used.
	Limits Limits
	// MinPoll and MaxPoll bound the pause between two looks for new entries; 0: 2 seconds and 5
	// minutes.
	MinPoll, MaxPoll time.Duration
	// Stall is for how long the bucket may let nothing happen within a request, up to twice that,
	// before it is made again. 0: a minute by the system's clock, for ever by another one;
	// negative: for ever.
	Stall time.Duration
	// Paused begins in pause.
	Paused bool
	// Manual starts no goroutine that syncs by itself: only Sync does.
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
	o.Random = &lockedReader{r: o.Random}
	if o.MinPoll <= 0 {
		o.MinPoll = 2 * time.Second
	}
	if o.MaxPoll <= 0 {
		o.MaxPoll = 5 * time.Minute
	}
	o.MaxPoll = max(o.MinPoll, o.MaxPoll)
	return o
}

// Limits bound what sync uses; 0 means no bound. Bytes are those of bodies, while they stream; a
// second's worth may be saved up.
type Limits struct {
	UploadBytesPerSecond, DownloadBytesPerSecond int64
	RequestsPerSecond                            float64
}

// Syncer syncs the open pages of a repository with one bucket. Its methods are safe for concurrent
// use.
type Syncer struct {
	o      Options
	meter  *bucket.Meter
	gate   *gate
	b      bucket.Bucket // with retries; ends with Close
	sealer *seal.Sealer
	ctx    context.Context // ends with Close
	cancel context.CancelCauseFunc

	retries, entries, applied, checkpoints atomic.Int64

	keysTurn chan struct{} // held by who looks for rings, or puts one
	keysSeen time.Time     // when the newest was last the one that is known; guarded by keysTurn

	mu        sync.Mutex
	paused    bool                         // guarded by mu
	closed    bool                         // guarded by mu
	pages     map[*Page]bool               // guarded by mu
	changed   chan struct{}                // guarded by mu
	announced map[string]wire.Announcement // by name of the object; guarded by mu
}

// New returns a Syncer. It asks the bucket for nothing.
func New(o Options) *Syncer {
	o = o.withDefaults()
	s := &Syncer{o: o, sealer: seal.NewSealer(o.Keyring, o.Random), paused: o.Paused, pages: map[*Page]bool{}, changed: make(chan struct{}),
		keysTurn: make(chan struct{}, 1), announced: map[string]wire.Announcement{}}
	if !o.Key.IsZero() {
		s.sealer.SignAs(o.Key)
	}
	s.meter = bucket.NewMeter(o.Bucket)
	var b bucket.Bucket = s.meter
	if o.Stall > 0 {
		b = bucket.NewPatient(b, o.Clock, o.Stall)
	}
	s.gate = newGate(b, o.Clock, o.Limits)
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	retry := bucket.NewRetry(s.gate, bucket.RetryOptions{Clock: o.Clock, Jitter: s.random, OnRetry: func(error, time.Duration) { s.retries.Add(1) }})
	s.b = newScoped(retry, s.ctx)
	return s
}

// Bucket returns the bucket as the Syncer asks it: with Limits, retries and
// Metrics, until Close.
func (s *Syncer) Bucket() bucket.Bucket { return s.b }

// Close stops everything and waits, also for calls of its pages, which end with base.ErrClosed. It
// does not push what is not synced: that is Sync's. It is idempotent.
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

// Pause stops what is going on in the background and lets nothing begin, until Resume. Sync works
// all the same.
func (s *Syncer) Pause() { s.setPaused(true) }

// Resume ends a pause, and lets what has failed be tried again at once.
func (s *Syncer) Resume() { s.setPaused(false) }

func (s *Syncer) setPaused(paused bool) {
	s.mu.Lock()
	s.paused = paused
	s.mu.Unlock()
	for _, p := range s.openPages() {
		if paused {
			p.interrupt()
		}
		p.wake(!paused)
	}
	s.notify()
}

// Paused reports whether there is a pause.
func (s *Syncer) Paused() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.paused
}

// random returns a number from 0 up to, but not including, 1.
func (s *Syncer) random() float64 {
	var b [8]byte
	if _, err := io.ReadFull(s.o.Random, b[:]); err != nil {
		return 0.5 // jitter only: what needs randomness draws it where it can report the error
	}
	return float64(binary.LittleEndian.Uint64(b[:])>>11) / (1 << 53)
}

// newID returns a new random id.
func (s *Syncer) newID() (id epoch.ID) {
	if _, err := io.ReadFull(s.o.Random, id[:]); err != nil || id == (epoch.ID{}) {
		rand.Read(id[:]) // the system's source does not fail
	}
	return id
}

type lockedReader struct {
	mu sync.Mutex
	r  io.Reader // guarded by mu
}

func (l *lockedReader) Read(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.r.Read(p)
}

const (
	// maxAnnouncementBytes bounds a stored announcement: two names of ledgers at most, and the
	// seal.
	maxAnnouncementBytes = 64 << 10
	// announcementReaders is how many announcements are read at once.
	announcementReaders = 8
)

// Announced lists the pages that the bucket has, sorted by ledger and page. Announcements that are
// bad are left out: then there is an error that names them, matches base.ErrCorrupt or
// base.ErrUnsupported, and comes with the good ones. What was read once is not read again. Other
// errors: base.ErrClosed, those of the bucket.
func (s *Syncer) Announced(ctx context.Context) ([]wire.Announcement, error) {
	infos, err := listAll(ctx, s.b, wire.PagesPrefix, "")
	if err != nil {
		return nil, fmt.Errorf("list pages: %w", s.outward(err))
	}
	read := make([]wire.Announcement, len(infos))
	errs := make([]error, len(infos))
	err = bucket.InParallel(ctx, announcementReaders, len(infos), func(ctx context.Context, i int) error {
		read[i], errs[i] = s.announcement(ctx, infos[i].Name)
		if errs[i] == nil || errors.Is(errs[i], base.ErrNotFound) || errors.Is(errs[i], base.ErrCorrupt) || errors.Is(errs[i], base.ErrUnsupported) {
			return nil
		}
		return fmt.Errorf("read announcement %s: %w", infos[i].Name, errs[i])
	})
	if err != nil {
		return nil, s.outward(err)
	}
	found := map[base.Page]wire.Announcement{}
	var bad []error
	for i, err := range errs {
		switch {
		case err == nil:
			found[base.Page{Ledger: read[i].Ledger, ID: read[i].Page}] = read[i]
		case !errors.Is(err, base.ErrNotFound): // else deleted since
			bad = append(bad, damagedIf(fmt.Errorf("read announcement %s: %w", infos[i].Name, err)))
		}
	}
	var all []wire.Announcement
	for _, page := range slices.SortedFunc(maps.Keys(found), base.Page.Compare) {
		all = append(all, found[page])
	}
	return all, errors.Join(bad...)
}

// announcement returns the announcement of a name, from the bucket if it was not read yet.
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

// outward returns err as callers get it: base.ErrClosed when the Syncer was closed meanwhile.
func (s *Syncer) outward(err error) error {
	if err != nil && s.ctx.Err() != nil {
		return errClosed
	}
	return err
}

// listAll returns all objects below prefix behind after, in order. Errors: as bucket.Each.
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
