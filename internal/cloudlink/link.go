package cloudlink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/clock"
	"github.com/ledgerd/ledger/internal/layout"
	"github.com/ledgerd/ledger/internal/presence"
	"github.com/ledgerd/ledger/internal/secret"
	"github.com/ledgerd/ledger/internal/turn"
	"github.com/ledgerd/ledger/storage"
)

// Options are the dependencies and settings of a Link. All fields are required unless their comment
// says otherwise.
type Options struct {
	// Disk finds the files, and Dir is the directory of the repository, "" in memory.
	Disk     layout.Dir
	Dir      string
	ReadOnly bool
	Clock    clock.Clock
	Logger   *slog.Logger
	// Openers open buckets. A request without progress fails after Stall to twice Stall; 0: never.
	Openers bucket.Openers
	Stall   time.Duration
	// Manual turns background sync off, Paused begins in pause. Zero limits mean none, zero pauses
	// those of cloudsync.
	Manual, Paused   bool
	Limits           cloudsync.Limits
	MinPoll, MaxPoll time.Duration
	// Rules returns the upload rules of a page that are not stored. It may be nil.
	Rules func(base.Page) []Rule
	// TakeSecret sets the bucket's secret as that by which values are cut.
	TakeSecret func(secret.Bytes) error
	// Name returns the human name of a page, "" when unknown.
	Name func(base.Page) (string, error)
	// Open returns the pages with an open store, and waits for those that are being opened.
	Open func() []*Page
	// Visit opens a page of this device and calls fn with it.
	Visit func(ctx context.Context, page base.Page, fn func(context.Context, *Page) error) error
	// Gone returns the pages that are known and not on this device. Fetch downloads one with fill,
	// unless that is in progress.
	Gone  func(context.Context) ([]presence.Gone, error)
	Fetch func(ctx context.Context, page base.Page, fill presence.Fill) error
	// Fresh returns the storage options for a page that is downloaded: it has no local record.
	Fresh func(base.Page) storage.Options
}

// Link is a repository's link to its cloud. It is safe for concurrent use.
type Link struct {
	o    Options
	turn turn.Lock // serializes connecting, setting, forgetting and reuploading

	writing sync.Mutex // held while the file or the record is written, and mu while their fields are

	mu     sync.Mutex
	file   *file         // guarded by mu; nil without a cloud; immutable, only replaced
	wanted *file         // guarded by mu; the cloud of the options, nil once the repository is its device
	conn   *Conn         // guarded by mu; nil while not connected
	record *syncRecord   // guarded by mu; stored from one run to the next
	err    error         // guarded by mu; why the last attempt to connect failed
	failed failure       // guarded by mu; of the last sync that reached no page
	pass   secret.Bytes  // guarded by mu; the passphrase, if the key is derived from one
	watch  chan struct{} // guarded by mu; closed at the next change of file, conn or err
}

// failure is the time and cause of a failure; zero: none.
type failure struct {
	err error
	at  time.Time
}

// New returns a link without a cloud; see Open. pass is the passphrase of the stored cloud. want,
// when not nil, is the cloud that the repository should join. Errors: those for an invalid want.
func New(o Options, pass secret.Bytes, want *Cloud) (*Link, error) {
	l := &Link{o: o, pass: pass, turn: turn.New(), record: &syncRecord{}, watch: make(chan struct{})}
	if want == nil {
		return l, nil
	}
	err := o.Openers.Check(want.URL)
	if err == nil {
		l.wanted, err = want.file()
	}
	if err != nil {
		return nil, err
	}
	if pass := want.pass(); !pass.IsZero() {
		l.pass = pass
	}
	return l, nil
}

// Open reads the stored cloud and, unless background sync is off, connects. A damaged file or a
// failed connection does not block the pages: Info reports it.
func (l *Link) Open(ctx context.Context) error {
	f, err := l.readFile()
	if errors.Is(err, base.ErrCorrupt) || errors.Is(err, base.ErrUnsupported) {
		l.o.Logger.Warn("what is remembered of the cloud cannot be read", "error", err)
		l.err = err
		if errors.Is(err, base.ErrUnsupported) { // does not overwrite the file of another version
			l.wanted = nil
		}
		return nil
	}
	if err != nil || f == nil {
		return err
	}
	if f, err = l.settleWanted(f); err != nil {
		return err
	}
	if !l.o.ReadOnly {
		if err := l.settleDevice(f); err != nil {
			return err
		}
	}
	l.file = f
	if w, err := f.ring(); err == nil {
		l.record = l.readRecord(w.BucketID.String())
	}
	if l.o.Manual || l.o.ReadOnly {
		return nil
	}
	if _, err := l.connectInTurn(ctx); err != nil {
		l.o.Logger.Warn("the cloud cannot be connected", "error", err)
	}
	return nil
}

// Close ends syncing. pages closes the pages meanwhile, so that all end their sync at once. No call
// may use the link afterwards.
func (l *Link) Close(pages func()) error {
	if _, conn := l.get(); conn != nil {
		_ = conn.Syncer.Close() // always nil
	}
	pages()
	return l.disconnect()
}

// Conn is the connection to a bucket whose keyring is open.
type Conn struct {
	// Syncer syncs pages with the bucket.
	Syncer *cloudsync.Syncer
	bucket *lateBucket
	saved  cloudsync.Metrics // guarded by Link.mu; the figures that are already in the record
}

// id returns the bucket's id.
func (c *Conn) id() seal.ID { return c.Syncer.Keyring().BucketID() }

// Has reports whether the repository is a device of a cloud.
func (l *Link) Has() bool {
	f, _ := l.get()
	return f != nil
}

// Connected returns the connection, nil when there is none.
func (l *Link) Connected() *Conn {
	_, conn := l.get()
	return conn
}

func (l *Link) get() (*file, *Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.file, l.conn
}

func (l *Link) passphrase() secret.Bytes {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pass
}

// Bucket returns the id of the bucket; ok is false without a cloud. It makes no request. Errors:
// why the file with the cloud cannot be used.
func (l *Link) Bucket() (id seal.ID, ok bool, err error) {
	l.mu.Lock()
	f, err := l.file, l.err
	l.mu.Unlock()
	if f == nil {
		return id, false, err
	}
	w, err := f.ring()
	if err != nil {
		return id, true, err
	}
	return w.BucketID, true, nil
}

// set changes guarded fields and wakes watchers.
func (l *Link) set(fn func(*Link)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fn(l)
	close(l.watch)
	l.watch = make(chan struct{})
}

// Take waits for the cloud's turn and returns release. Until release, no other caller can change
// the cloud.
func (l *Link) Take(ctx context.Context) (release func(), err error) {
	return l.turn.Give, l.turn.Take(ctx)
}

// Turn calls fn with the cloud's turn. When fn fails, even because of ctx, pages that were detached
// from a cloud continue with the stored one.
func (l *Link) Turn(ctx context.Context, fn func(context.Context) error) error {
	release, err := l.Take(ctx)
	if err != nil {
		return err
	}
	defer release()
	if err = fn(ctx); err != nil {
		if err := l.attachAll(context.WithoutCancel(ctx), false); err != nil {
			l.o.Logger.Warn("pages cannot be synced", "error", err)
		}
	}
	return err
}

// Connect returns the connection to the bucket, and makes it if there is none. It makes a request
// only if the repository has yet to become a device of the bucket; then errors are those of Set.
// Other errors: base.ErrNoCloud, base.ErrReadOnly, base.ErrWrongKey, base.ErrCorrupt, those of ctx
// and of reading the key file.
func (l *Link) Connect(ctx context.Context) (*Conn, error) {
	for {
		l.mu.Lock()
		conn, changed := l.conn, l.watch
		l.mu.Unlock()
		if conn != nil {
			return conn, nil
		}
		select {
		case l.turn <- struct{}{}:
			defer l.turn.Give()
			return l.connectInTurn(ctx)
		case <-changed: // the holder of the turn may have connected, and may wait for this caller
		case <-ctx.Done():
			return nil, fmt.Errorf("connect to the cloud: %w", ctx.Err())
		}
	}
}

// connectInTurn is Connect for a caller that holds the cloud's turn.
func (l *Link) connectInTurn(ctx context.Context) (*Conn, error) {
	l.mu.Lock()
	f, wanted, conn, broken := l.file, l.wanted, l.conn, l.err
	l.mu.Unlock()
	switch {
	case conn != nil:
		return conn, nil
	case f == nil && wanted != nil && !l.o.ReadOnly:
		if err := l.joinWanted(ctx, wanted); err != nil {
			return nil, fmt.Errorf("connect to the cloud %s: %w", wanted.url, err)
		}
		return l.connectInTurn(ctx)
	case f == nil && broken != nil:
		return nil, fmt.Errorf("connect to the cloud: %w", broken)
	case f == nil:
		return nil, fmt.Errorf("connect to the cloud: %w", base.ErrNoCloud)
	case l.o.ReadOnly:
		return nil, fmt.Errorf("connect to the cloud: the repository is open for reading: %w", base.ErrReadOnly)
	}
	conn, err := l.open(f)
	l.set(func(l *Link) { l.conn, l.err = conn, err })
	if err != nil {
		return nil, fmt.Errorf("connect to the cloud %s: %w", f.url, err)
	}
	return conn, nil
}

// open opens the stored keyring, and makes the syncer.
func (l *Link) open(f *file) (*Conn, error) {
	chain, err := f.chain()
	if err != nil {
		return nil, err
	}
	master, err := masterKey(f, l.passphrase(), chain)
	if err != nil {
		return nil, err
	}
	ring, err := chain.Open(master)
	if err != nil {
		return nil, keyError(err)
	}
	if err := l.o.TakeSecret(ring.ChunkingSecret()); err != nil { // Options.Mend has made a new secret
		return nil, err
	}
	b := newLateBucket(f.url, func(ctx context.Context) (bucket.Bucket, error) {
		return l.o.Openers.Open(ctx, f.url, bucket.OpenOptions{CredentialsFile: f.credentials, MustExist: true})
	})
	syncer := cloudsync.New(cloudsync.Options{
		Bucket: b, Keyring: ring, KeepKeys: l.keepRing, Key: f.key, Clock: l.o.Clock, Logger: l.o.Logger, Limits: l.o.Limits,
		MinPoll: l.o.MinPoll, MaxPoll: l.o.MaxPoll, Paused: l.o.Paused || f.paused, Manual: l.o.Manual, Stall: l.o.Stall,
	})
	return &Conn{bucket: b, Syncer: syncer}, nil
}

// keepRing stores a ring that follows the stored ones.
func (l *Link) keepRing(ring []byte) error {
	return l.changeFile(func(f *file) error {
		c, err := f.chain()
		if err != nil {
			return err
		}
		if c, err = c.Append(ring); err != nil {
			return err
		}
		f.keys = c.Rings()
		return nil
	})
}

// changeFile replaces the file `cloud` by a changed copy.
func (l *Link) changeFile(change func(*file) error) error {
	l.writing.Lock()
	defer l.writing.Unlock()
	f, _ := l.get()
	if f == nil {
		return base.ErrNoCloud
	}
	next := *f
	if err := change(&next); err != nil {
		return err
	}
	if err := l.writeFile(&next); err != nil {
		return err
	}
	l.set(func(l *Link) { l.file = &next })
	return nil
}

// disconnect ends the syncing of all pages and closes the link. The caller holds the cloud's turn.
func (l *Link) disconnect() error {
	_, conn := l.get()
	if conn == nil {
		return nil
	}
	errs := []error{conn.Syncer.Close()} // before the pages: it ends all of them at once
	for _, s := range l.o.Open() {
		errs = append(errs, s.end(false))
	}
	l.Remember()
	l.set(func(l *Link) { l.conn = nil })
	return errors.Join(append(errs, conn.bucket.Close())...)
}
