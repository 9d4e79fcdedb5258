package pagelog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/internal/base"
)

// Page is the page whose log it is. All calls are made on the goroutine that called the Log. A call
// is durable when it returns nil, and has no effect when it returns an error.
type Page interface {
	// Apply applies an entry to the page and moves the position to next. An error that matches
	// base.ErrCorrupt says that the entry is bad.
	Apply(ctx context.Context, e *Entry, next epoch.Position) error
	// Adopt takes the commits of an entry that another epoch lacks as unsynced, as far as the page
	// has what they build on.
	Adopt(ctx context.Context, e *Entry) error
	// Enter joins an epoch and moves the position to next. An error that matches ErrUnjoinable says
	// that the checkpoint, or an object that it needs, is missing or bad.
	Enter(ctx context.Context, x *Epoch, next epoch.Position) error
	// Keep moves the position to next, which differs only in Looked or K.
	Keep(ctx context.Context, next epoch.Position) error
	// Propose uploads the objects of the epoch with the id x.ID, and completes x. x has ID, Kind,
	// Parent, Base and BaseHash; for a renewal also Behind and Erased.
	Propose(ctx context.Context, x *epoch.Proposal, seen epoch.Looked) error
}

// Entry is an entry that was read.
type Entry struct {
	wire.Entry
	// Created is when the bucket received it.
	Created epoch.Time
}

// Epoch is an epoch of the bucket.
type Epoch struct {
	// K is its number: the epoch is epochs/{K}.
	K uint64
	*epoch.Proposal
	// Sealed is its object. Created is when the bucket received it.
	Sealed  []byte
	Created epoch.Time
}

// Options configure a Log.
type Options struct {
	Bucket bucket.Bucket // with retries
	Sealer *seal.Sealer
	Names  wire.Names
	Page   Page
	// NewID returns random ids, never zero.
	NewID func() epoch.ID
	// KeyIndex is the index of the data key of the entry at the position, 0 if none was applied in
	// the epoch.
	KeyIndex uint32
}

// Log is the log of a page. Its calls run one at a time.
type Log struct {
	o  Options
	at epoch.Position
	// key is the index of the data key of the entry at the position, or of the epoch; 0 while
	// unknown: see tooOld.
	key uint32
	// ahead are entries that were read ahead.
	ahead map[uint64]fetched
	// hits is how many entries were found since the last miss. window is how many the next read
	// fetches.
	hits, window int
	// newer says that objects of a newer version count as damaged, while Renew runs with the user's
	// confirmation of damage.
	newer bool
	// bad is the error of the page's own epoch at the last look.
	bad error
}

// New returns the Log of a page that is at a position. It makes no request.
func New(o Options, at epoch.Position) *Log {
	return &Log{o: o, at: at, key: o.KeyIndex, ahead: map[uint64]fetched{}, window: 1}
}

// Position returns the position of the page.
func (l *Log) Position() epoch.Position { return l.at }

// These are errors beside those of the bucket, of the Page and of the context.
var (
	// ErrWiped reports a bucket that has no epoch of the page any more.
	ErrWiped = errors.New("the bucket has lost all of the page")
	// ErrRolledBack reports a bucket that has epochs, but no longer the device's: it is another
	// bucket, or an older state.
	ErrRolledBack = errors.New("the epoch of this device is not there")
	// ErrUnjoinable reports a checkpoint that is missing or bad, or that needs an object that is.
	ErrUnjoinable = errors.New("the checkpoint cannot be used")
	// ErrDeleted reports a page that was deleted for all devices.
	ErrDeleted = base.ErrDeleted
	// ErrContended reports a turn in which other devices were faster again and again.
	ErrContended = fmt.Errorf("other devices append all the time: %w", base.ErrConflict)
)

// DamageError names an object of the bucket that is missing or bad. It matches base.ErrCorrupt. The
// device needs a renewal. An error that matches seal.ErrUnknownKey may be due to an old keyring:
// the caller first looks for a newer keyring, and calls again.
type DamageError struct {
	Object string
	Err    error
}

// Error implements error.
func (e *DamageError) Error() string {
	return fmt.Sprintf("the bucket is damaged at %s: %v", e.Object, e.Err)
}

// Unwrap returns the cause.
func (e *DamageError) Unwrap() error { return e.Err }

// Is reports whether target is base.ErrCorrupt.
func (e *DamageError) Is(target error) bool { return target == base.ErrCorrupt }

var (
	errMissing = errors.New("it is missing")
	errOther   = errors.New("it is another entry than the one that was there")
)

// timeOf returns a time of the bucket's clock, 0 for none.
func timeOf(t time.Time) epoch.Time {
	if t.IsZero() {
		return 0
	}
	return epoch.Time(t.UnixNano())
}

// fetched is the result of reading an object.
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

// list calls each with the objects of the page after the name after, whose names begin with prefix,
// until it returns false.
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

// put stores an object. It reports whether and when the store has confirmed it. An ambiguous answer
// is not an error: the caller reads next.
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
