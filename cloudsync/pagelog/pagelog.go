package pagelog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/internal/base"
)

// Page is the page whose log it is. All calls come from the goroutine that called the Log. Each is
// durable when it returns nil, and has no effect when it does not.
type Page interface {
	// Apply makes an entry part of the page and moves the position to next. An error that matches
	// base.ErrCorrupt says that the entry is bad.
	Apply(ctx context.Context, e *Entry, next epoch.Position) error
	// Adopt takes the commits of an entry that another epoch does not know as unsynced, as far as
	// the page has what they build on.
	Adopt(ctx context.Context, e *Entry) error
	// Enter joins an epoch and moves the position to next. An error that matches ErrUnjoinable says
	// that the checkpoint, or what it needs, is missing or bad.
	Enter(ctx context.Context, x *Epoch, next epoch.Position) error
	// Keep moves the position to next, which has another Looked or K alone.
	Keep(ctx context.Context, next epoch.Position) error
	// Propose uploads what an epoch of the id x.ID is to have, and completes x, which has ID, Kind,
	// Parent, Base and BaseHash, and of a renewal Behind and Erased.
	Propose(ctx context.Context, x *epoch.Proposal, seen epoch.Looked) error
}

// Entry is an entry that was read.
type Entry struct {
	wire.Entry
	// Created is when the bucket got it.
	Created epoch.Time
}

// OpenBody opens the stream of the body of an entry, from its object where it is one. The caller
// reads it to io.EOF before it believes any of it, and closes it. Errors of opening and reading
// name the object, and match base.ErrCorrupt when it is bad or missing.
func OpenBody(ctx context.Context, b bucket.Bucket, s *seal.Sealer, n wire.Names, e *wire.Entry) (*wire.Reader, io.Closer, error) {
	if e.Closing != nil {
		return nil, nil, &base.CorruptError{Where: "log", Got: "a closing entry, which has no body"}
	}
	if e.Long == (epoch.ID{}) {
		return wire.NewReader(bytes.NewReader(e.Body), wire.Body), io.NopCloser(nil), nil
	}
	name := n.Pack(e.Epoch, e.Long)
	o, err := b.Get(ctx, name, 0, -1)
	if errors.Is(err, base.ErrNotFound) {
		err = &base.CorruptError{Where: name, Err: err}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read body of log entry %d: %w", e.Number, err)
	}
	stream, err := s.NewStream(o.Body, o.Size, n.LongBodyLabel(e.Epoch, e.Long), (*seal.Sum)(&e.LongHash))
	if err != nil {
		o.Body.Close()
		return nil, nil, fmt.Errorf("open %s: %w", name, err)
	}
	return wire.NewReader(named{stream, name}, wire.Body), o.Body, nil
}

// named is the stream of an object, which its errors name.
type named struct {
	r    io.Reader
	name string
}

func (n named) Read(p []byte) (int, error) {
	k, err := n.r.Read(p)
	if err != nil && err != io.EOF {
		err = fmt.Errorf("read %s: %w", n.name, err)
	}
	return k, err
}

// Epoch is an epoch of the bucket.
type Epoch struct {
	// K is its number: it is epochs/{K}.
	K uint64
	*epoch.Proposal
	// Sealed is its object, and Created is when the bucket got it.
	Sealed  []byte
	Created epoch.Time
}

// Options say where the log is.
type Options struct {
	Bucket bucket.Bucket // with retries
	Sealer *seal.Sealer
	Names  wire.Names
	Page   Page
	// NewID returns random ids, never zero.
	NewID func() epoch.ID
	// Tombstone is the object of the epoch that deleted the page, where the position says so.
	Tombstone []byte
	// Head is that of the entry at the position, as wire.Head.Bytes, nil where none was applied in
	// the epoch.
	Head []byte
}

// Log is the log of a page. Its calls run one at a time.
type Log struct {
	o  Options
	at epoch.Position
	// key is the index of the data key with which the entry at the position is sealed, or the
	// epoch, 0 where that is not known yet: see took.
	key uint32
	// ahead are entries that were read and not asked for yet.
	ahead map[uint64]fetched
	// hits is how many entries were there since the last that was not, and window how many the next
	// read fetches.
	hits, window int
	// newer says that an object that is of a newer version is damaged, for as long as Renew works
	// for a user who knows that.
	newer bool
	// bad says what is wrong with the object of the page's own epoch, as the last look found it.
	bad error
}

// New returns the Log of a page that is at a position. It makes no request.
func New(o Options, at epoch.Position) *Log {
	l := &Log{o: o, at: at, ahead: map[uint64]fetched{}, window: 1}
	if ref, err := wire.InspectHead(o.Names, at.Epoch, at.Number, o.Head); err == nil {
		l.key = ref.KeyIndex
	}
	return l
}

// Position returns the position of the page.
func (l *Log) Position() epoch.Position { return l.at }

// Errors, beside those of the bucket, of the Page and of the context.
var (
	// ErrWiped reports a bucket that has no epoch of the page any more.
	ErrWiped = errors.New("the bucket has lost all of the page")
	// ErrRolledBack reports a bucket that does not have the epoch of the device any more, but
	// others: it is another bucket, or an older state of it.
	ErrRolledBack = errors.New("the bucket is in another state than the device has seen")
	// ErrUnjoinable reports a checkpoint that is missing or bad, or that needs what is.
	ErrUnjoinable = errors.New("the checkpoint cannot be used")
	// ErrDeleted reports a page that was deleted for all devices.
	ErrDeleted = base.ErrDeleted
	// ErrContended reports a turn that others were faster than, again and again.
	ErrContended = fmt.Errorf("other devices append all the time: %w", base.ErrConflict)
)

// DamageError says which object of the bucket is missing or bad. It matches base.ErrCorrupt. The
// device needs a renewal; but one that matches seal.ErrUnknownKey may come of a keyring that is not
// the newest: the caller looks for a newer one first, and calls again.
type DamageError struct {
	Object string
	Err    error
}

// Error implements error.
func (e *DamageError) Error() string {
	return fmt.Sprintf("the bucket is damaged at %s: %v", e.Object, e.Err)
}

// Unwrap returns what is wrong.
func (e *DamageError) Unwrap() error { return e.Err }

// Is reports whether target is base.ErrCorrupt.
func (e *DamageError) Is(target error) bool { return target == base.ErrCorrupt }

var errMissing = errors.New("it is missing")

// timeOf returns a moment of the bucket, 0 for none.
func timeOf(t time.Time) epoch.Time {
	if t.IsZero() {
		return 0
	}
	return epoch.Time(t.UnixNano())
}

// fetched is an object that was read, or is not there.
type fetched struct {
	stored       []byte
	created, now epoch.Time
	missing      bool
	err          error
}

// fetch reads an object of at most limit bytes. err matches base.ErrCorrupt for a longer one.
func (l *Log) fetch(ctx context.Context, name string, limit int64) (f fetched) {
	stored, o, err := bucket.Read(ctx, l.o.Bucket, name, limit)
	if errors.Is(err, base.ErrNotFound) {
		return fetched{missing: true}
	}
	return fetched{stored: stored, created: timeOf(o.Created), now: timeOf(o.ServerTime), err: err}
}

// list calls each with the objects of the page behind after whose names begin with prefix, until it
// returns false.
func (l *Log) list(ctx context.Context, after, prefix string, each func(wire.Name) bool) error {
	err := bucket.Each(ctx, l.o.Bucket, after, prefix, func(info bucket.Info) bool {
		name, ok := l.o.Names.Parse(info.Name)
		return !ok || each(name)
	})
	if err != nil {
		return fmt.Errorf("list %s: %w", prefix, err)
	}
	return nil
}

// put stores an object. It reports whether the store has confirmed it, and when. An answer that is
// not plainly yes or no is no error: a read comes next.
func (l *Log) put(ctx context.Context, name string, content []byte) (stored bool, created epoch.Time, err error) {
	var at time.Time
	err = l.o.Bucket.PutIfAbsent(bucket.WithCreated(ctx, &at), name, int64(len(content)), bytes.NewReader(content))
	switch {
	case err == nil:
		return true, timeOf(at), nil
	case errors.Is(err, bucket.ErrExists), bucket.Ambiguous(err) && ctx.Err() == nil:
		return false, 0, nil
	}
	return false, 0, fmt.Errorf("upload %s: %w", name, err)
}
