package cloudlog

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/protocol"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/clock"
)

// Ages of proofs, by the device's clock: they only decide how often something is looked at.
const (
	proofForAppend  = time.Hour
	proofForCatchUp = 6 * time.Hour
)

// defaultBatchBytes is used when Options.MaxBatchBytes is 0.
const defaultBatchBytes = 4 << 20

// Errors of a log. Each matches base.ErrConflict.
var (
	// ErrRemake says that a body must be made anew: what it relies on is condemned, or what it
	// condemns is relied on, or an earlier life of this device has appended a part of it.
	ErrRemake = fmt.Errorf("body must be made anew: %w", base.ErrConflict)
	// ErrRolledBack says that the bucket lacks what this device has read there, and no floor
	// explains it.
	ErrRolledBack = fmt.Errorf("bucket is in an older state than this device has seen: %w", base.ErrConflict)
	// ErrReplaced says that the bucket holds something else where this device has read.
	ErrReplaced = fmt.Errorf("bucket has another history than this device has seen: %w", base.ErrConflict)
	// ErrPassed says that the next entry was given up and deleted: the device begins with a
	// checkpoint.
	ErrPassed = fmt.Errorf("log no longer reaches back to where this device has read to: %w", base.ErrConflict)
	// ErrDeleted says that the page was deleted for all devices. It matches ErrPassed.
	ErrDeleted = base.WithClass(errors.New("another device has deleted the page for all"), ErrPassed)
)

// UnreadableError says that the log cannot be read on from an entry: it is missing though there are
// later ones, it cannot be opened, or it does not follow from the one before. It matches what Err
// matches.
type UnreadableError struct {
	// Number is that of the entry.
	Number uint64
	// Err says what is wrong, and names the object.
	Err error
}

// Error implements error.
func (e *UnreadableError) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong.
func (e *UnreadableError) Unwrap() error { return e.Err }

// Options say which log and with what. Clock is needed; it measures pauses and how old a proof of
// the position is, never anything on which safety rests.
type Options struct {
	// Bucket makes its calls again where that helps; see bucket.Retry.
	Bucket bucket.Bucket
	Sealer *seal.Sealer
	Names  format.PageNames
	Clock  clock.Clock
	// Jitter spreads pauses; nil: the system's randomness.
	Jitter func() uint64
	// At is where the device has read to; zero Number for a new one. At.Bucket is given back with
	// every position.
	At format.Position
	// Floor is the newest floor that was seen, and FloorSeen when by the bucket's clock it was
	// looked for the last time (zero: never).
	Floor     format.Floor
	FloorSeen time.Time
	// MaxBatchBytes bounds what is given to apply at once, but for its last entry; 0: 4 MiB.
	MaxBatchBytes int64
}

// Apply takes consecutive entries, in order, the first being the one behind the position, and makes
// them durable together with the position behind the last of them. The entries are its own. An
// error ends the call that it was given to, and the position stays where it was.
type Apply func(ctx context.Context, entries []*format.Entry, at format.Position) error

// Settle makes durable, together with the position a.Position, that the commits of a body are in
// the bucket. e is the body's entry. An error ends the Append, and the position stays where it was;
// the entry is read like any other later.
type Settle func(ctx context.Context, a Appended, e *format.Entry) error

// Log is a page's log. Its calls run one at a time.
type Log struct {
	o       Options
	machine *protocol.Machine
	proved  time.Time // by the device's clock, zero for never

	call // state of one call
}

// New returns the log. It asks the bucket for nothing.
func New(o Options) *Log {
	if o.MaxBatchBytes <= 0 {
		o.MaxBatchBytes = defaultBatchBytes
	}
	if o.Jitter == nil {
		o.Jitter = systemJitter
	}
	return &Log{o: o, machine: protocol.New(protocol.Options{
		At:       protocol.Position{Number: o.At.Number, Hash: protocol.Hash(o.At.Hash)},
		Floor:    protocol.Floor{K: o.Floor.K, Low: o.Floor.Low, Checkpoint: o.Floor.Checkpoint, Deleted: o.Floor.Deleted},
		Looked:   protocol.TimeOf(o.FloorSeen),
		MaxBatch: o.MaxBatchBytes,
	})}
}

func systemJitter() uint64 {
	var b [8]byte
	rand.Read(b[:])
	return binary.LittleEndian.Uint64(b[:])
}

// Position returns how far the log has been read and applied.
func (l *Log) Position() format.Position { return l.position(l.machine.Position()) }

func (l *Log) position(p protocol.Position) format.Position {
	return format.Position{Bucket: l.o.At.Bucket, Number: p.Number, Hash: format.Hash(p.Hash)}
}

// Floor returns the newest floor that was seen, and a time by the bucket's clock before it was
// looked for the last time; zero when that is not known. Calls that read or append look by
// themselves when it is needed, so both may have changed after any call.
func (l *Log) Floor() (format.Floor, time.Time) {
	f, looked := l.machine.Floor()
	return format.Floor{K: f.K, Low: f.Low, Checkpoint: f.Checkpoint, Deleted: f.Deleted}, looked.Time()
}

// Verify proves that the bucket is the one that the position belongs to: the entry at the position
// is there with its hash, or a floor explains that it is not and the entry behind it fits. It is
// called when sync begins; CatchUp and Append do it too when the last proof is old. At position 0
// there is nothing to prove, and it asks for nothing. Errors: ErrRolledBack, ErrReplaced,
// ErrPassed, ErrDeleted, base.ErrCorrupt, those of the bucket.
func (l *Log) Verify(ctx context.Context) error {
	_, err := l.run(ctx, "verify position", protocol.StartVerify{}, nil, nil, nil)
	return err
}

// CatchUp reads all entries behind the position that were there when it was called, and gives them
// to apply. It returns whether there were any; also with an error. first says that the device has
// never read the log, so that ranges are tried from the start. Errors: ErrRolledBack, ErrReplaced,
// ErrPassed, ErrDeleted, an *UnreadableError, which matches base.ErrCorrupt or base.ErrUnsupported,
// those of the bucket and of apply.
func (l *Log) CatchUp(ctx context.Context, first bool, apply Apply) (found bool, err error) {
	from := l.machine.Position().Number
	_, err = l.run(ctx, "catch up", protocol.StartCatchUp{First: first, Prove: l.old(proofForCatchUp)}, nil, apply, nil)
	return l.machine.Position().Number > from, err
}

// Appended says where a body has gone to.
type Appended struct {
	Position format.Position
	// Created is when the entry was created, by the bucket's clock.
	Created time.Time
	// Stored is the length of the entry's object in bytes, 0 when the entry was read and applied
	// before.
	Stored int
	// Lost counts the numbers that others took meanwhile.
	Lost int
}

// Append puts the body at the next number. Entries of others that come before are given to apply
// first. When one of them condemns what the body relies on or announces, or relies on what the body
// condemns, or is of this very device, which then does not remember it, Append returns ErrRemake:
// the body is to be made anew. A body that condemns must have been made at the present position.
// settle is called once the entry counts, before Append returns and before the position moves.
//
// After an error other than ErrRemake the body may be in the log all the same. Append may be called
// again with it: then it is found. When a CatchUp has read and applied it meanwhile, that Append
// returns where, and does not call settle. Errors: ErrRemake, those of CatchUp, those of settle,
// base.ErrNetwork also when others were faster again and again.
func (l *Log) Append(ctx context.Context, body *format.SealedBody, apply Apply, settle func(ctx context.Context, a Appended, e *format.Entry) error) (Appended, error) {
	b := protocol.Body{ID: protocol.ID(body.ID), Device: protocol.ID(body.Body.Device), Packs: packs(body.Body), Entries: reliesOn(body.Body)}
	b.Condemned, b.Below = condemned(body.Body)
	return l.run(ctx, "append to log", protocol.StartAppend{Body: b, Prove: l.old(proofForAppend)}, body, apply, settle)
}

// LookFloor looks for a newer floor than the last one seen and returns the newest, and a time by
// the bucket's clock before the look, zero when the bucket does not tell it. It costs two gets, and
// more when there are newer floors. Errors: ErrRolledBack when the last one seen is gone, those of
// the bucket, base.ErrCorrupt.
func (l *Log) LookFloor(ctx context.Context) (format.Floor, time.Time, error) {
	now, err := l.bucketTime(ctx)
	if err == nil {
		_, err = l.run(ctx, "look for the floor", protocol.StartLook{Now: protocol.TimeOf(now)}, nil, nil, nil)
	}
	if err != nil {
		return format.Floor{}, time.Time{}, err
	}
	f, looked := l.Floor()
	return f, looked, nil
}

// old reports whether the last proof of the position is older than age. A clock that was set back
// makes it old.
func (l *Log) old(age time.Duration) bool {
	if l.proved.IsZero() {
		return true
	}
	since := l.o.Clock.Now().Sub(l.proved)
	return since < 0 || since >= age
}
