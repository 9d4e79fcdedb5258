package session

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync/atomic"

	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/split"
)

// Origin is the source of an entry: a snapshot, a transaction, or a page. It decides whether values
// may still be read.
type Origin interface {
	// enter begins a call that must then leave, or fails with the reason.
	enter() error
	leave()
	// session returns the page; closing it ends reads that wait for the network.
	session() *Page
	// pieces returns the source of the pieces of values. The caller has entered.
	pieces() split.Source
	// find returns the entry of key. The caller has entered.
	find(ctx context.Context, key []byte) (fb.Entry, bool, error)
}

// Find returns the borrowed entry of key in an origin, and whether there is one. Errors:
// base.ErrClosed, base.ErrTxDone, base.ErrCorrupt.
func Find(ctx context.Context, from Origin, key []byte) (fb.Entry, bool, error) {
	if err := from.enter(); err != nil {
		return fb.Entry{}, false, err
	}
	defer from.leave()
	return from.find(ctx, key)
}

// Usable returns why entries of an origin can no longer be read, nil when they can.
func Usable(from Origin) error {
	if err := from.enter(); err != nil {
		return err
	}
	from.leave()
	return nil
}

// ownedBytes returns a copy of b, never nil.
func ownedBytes(b []byte) []byte { return append(make([]byte, 0, len(b)), b...) }

// ReadValue returns a copy of the value of e, which may be of any length. Errors:
// base.ErrNeedsFetch, base.ErrNetwork, base.ErrTooLarge (it does not fit into memory),
// base.ErrClosed, base.ErrTxDone, base.ErrCorrupt, those of ctx.
func ReadValue(ctx context.Context, from Origin, e *fb.Entry) ([]byte, error) {
	if e.Inline {
		return ownedBytes(e.Value), nil
	}
	if e.Size > math.MaxInt-bytes.MinRead {
		return nil, fmt.Errorf("read value of %d bytes into memory: %w", e.Size, base.ErrTooLarge)
	}
	buf := bytes.NewBuffer(make([]byte, 0, min(e.Size, 1<<20)))
	v := OpenValue(ctx, from, e)
	if _, err := v.WriteTo(buf); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// Value reads the value of one entry. It holds a few pieces in memory, whatever the value's size.
// It is for one goroutine at a time, except ReadAt, which may be called concurrently. It is valid
// while its snapshot or transaction is open, after a Diff its page: later reads fail with ErrClosed
// or ErrTxDone. A piece that is only in the cloud is fetched. Reads fail with ErrNeedsFetch when
// there is no cloud or the repository is read-only, with ErrNetwork when the cloud is unreachable,
// and with ErrCorrupt when a piece is damaged.
type Value struct {
	from   Origin
	size   int64
	closed atomic.Bool
	r      valueReader
}

// valueReader is a *bytes.Reader of an inline value, or a *split.Reader.
type valueReader interface {
	io.ReadSeeker
	io.ReaderAt
	io.WriterTo
}

var (
	_ io.ReadSeekCloser = (*Value)(nil)
	_ io.ReaderAt       = (*Value)(nil)
	_ io.WriterTo       = (*Value)(nil)
)

// OpenValue returns a reader of the value of e. ctx governs all its reads.
func OpenValue(ctx context.Context, from Origin, e *fb.Entry) *Value {
	v := &Value{from: from, size: int64(e.Size)}
	if e.Inline {
		v.r = bytes.NewReader(bytes.Clone(e.Value))
	} else {
		v.r = split.NewReader(ctx, Pieces{from}, e.Digest, e.Size)
	}
	return v
}

// Pieces reads pieces of values, each in a call of its own, so that Close waits for one piece at
// most.
type Pieces struct{ from Origin }

// PiecesOf returns the pieces of an origin.
func PiecesOf(from Origin) Pieces { return Pieces{from} }

// Piece implements split.Source.
func (p Pieces) Piece(ctx context.Context, d object.Digest) (b []byte, err error) {
	err = p.call(ctx, func(ctx context.Context, src split.Source) error {
		b, err = src.Piece(ctx, d)
		return err
	})
	return b, err
}

// Near implements split.Far.
func (p Pieces) Near(ctx context.Context, d object.Digest) (b []byte, err error) {
	err = p.call(ctx, func(ctx context.Context, src split.Source) error {
		if far, ok := src.(split.Far); ok {
			b, err = far.Near(ctx, d)
		} else {
			b, err = src.Piece(ctx, d)
		}
		return err
	})
	return b, err
}

// Bring implements split.Far.
func (p Pieces) Bring(ctx context.Context, ds []object.Digest) error {
	return p.call(ctx, func(ctx context.Context, src split.Source) error {
		if far, ok := src.(split.Far); ok {
			return far.Bring(ctx, ds)
		}
		return nil
	})
}

func (p Pieces) call(ctx context.Context, fn func(context.Context, split.Source) error) error {
	if err := p.from.enter(); err != nil {
		return err
	}
	defer p.from.leave()
	call := p.from.session().gate.Call(ctx)
	defer call.Release()
	err := fn(call, p.from.pieces())
	if err != nil && errors.Is(err, base.ErrCorrupt) {
		p.from.session().note(err)
	}
	return call.Explain(err)
}

// Size returns the length of the value in bytes.
func (v *Value) Size() int64 { return v.size }

// usable returns why the value can no longer be read.
func (v *Value) usable() error {
	if v.closed.Load() {
		return fmt.Errorf("read value: %w", base.ErrClosed)
	}
	return Usable(v.from)
}

// Read implements io.Reader.
func (v *Value) Read(b []byte) (int, error) {
	if err := v.usable(); err != nil {
		return 0, err
	}
	return v.r.Read(b)
}

// ReadAt implements io.ReaderAt. It reads only the pieces that overlap the range. Errors:
// ErrInvalid for a negative offset, and those of the type.
func (v *Value) ReadAt(b []byte, off int64) (int, error) {
	if err := v.usable(); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, fmt.Errorf("read value at offset %d: %w", off, base.ErrInvalid)
	}
	return v.r.ReadAt(b, off)
}

// Seek implements io.Seeker. A position after the end is allowed. Errors: ErrInvalid.
func (v *Value) Seek(offset int64, whence int) (int64, error) {
	n, err := v.r.Seek(offset, whence)
	if err != nil {
		return n, fmt.Errorf("seek in value: %v: %w", err, base.ErrInvalid)
	}
	return n, nil
}

// WriteTo implements io.WriterTo: it writes the rest of the value, piece by piece.
func (v *Value) WriteTo(w io.Writer) (int64, error) {
	if err := v.usable(); err != nil {
		return 0, err
	}
	return v.r.WriteTo(w)
}

// Close releases the value. It is idempotent and always returns nil.
func (v *Value) Close() error {
	v.closed.Store(true)
	return nil
}
