package pack

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/internal/base"
)

// The kinds of objects, as in errors of corruption.
const (
	kindPack  = "pack"
	kindEntry = "log entry"
)

// Damaged reports whether err says that an object of the bucket, from which pieces were read, is
// damaged, as opposed to damage of this device.
func Damaged(err error) bool {
	c, ok := errors.AsType[*base.CorruptError](err)
	return ok && (c.Where == kindPack || c.Where == kindEntry)
}

// ErrDamaged reports a missing or damaged object in the bucket. It comes with base.ErrCorrupt,
// base.ErrGone or base.ErrNotFound.
var ErrDamaged = errors.New("something in the bucket is missing or damaged")

// damagedError makes an error match ErrDamaged too.
type damagedError struct{ error }

func (e damagedError) Unwrap() error        { return e.error }
func (e damagedError) Is(target error) bool { return target == ErrDamaged }

// AsDamaged returns an error that matches ErrDamaged and all that err matches.
func AsDamaged(err error) error { return damagedError{err} }

// tell makes an error match ErrDamaged if it is about the bucket rather than this device.
func tell(err error) error {
	if Damaged(err) || errors.Is(err, base.ErrGone) && errors.Is(err, base.ErrNotFound) {
		return AsDamaged(err)
	}
	return err
}

// source is an object of the bucket for reading.
type source struct {
	b     bucket.Bucket
	kind  string // one of those above
	short string // id or number
	name  string
	label seal.Label // of a pack
}

// corrupt returns an error that names the object.
func (s *source) corrupt(want, got string) error {
	return &base.CorruptError{Where: s.kind, Key: s.short, Want: want, Got: got}
}

// wrap adds the object to err. Any corruption becomes that of the object.
func (s *source) wrap(err error) error {
	if err == nil {
		return nil
	}
	if c, ok := errors.AsType[*base.CorruptError](err); ok && c.Where == s.kind && c.Key == s.short {
		return err
	}
	if c, ok := err.(*base.CorruptError); ok && c.Key == s.name { // the object, by its name
		return &base.CorruptError{Where: s.kind, Key: s.short, Want: c.Want, Got: c.Got, Err: c.Err}
	}
	if errors.Is(err, base.ErrCorrupt) {
		return &base.CorruptError{Where: s.kind, Key: s.short, Err: err}
	}
	return fmt.Errorf("read %s %s: %w", s.kind, s.name, err)
}

// located adds the name of the object to an error about damage.
func (s *source) located(err error) error {
	if !Damaged(err) {
		return err
	}
	return fmt.Errorf("%s: %w", s.name, err)
}

// read is bucket.ReadRange for the object. It also returns the length of the object.
func (s *source) read(ctx context.Context, off, n, limit int64, buf []byte) (content []byte, size int64, err error) {
	content, o, err := bucket.ReadRange(ctx, s.b, s.name, off, n, limit, buf)
	if errors.Is(err, bucket.ErrRange) {
		err = s.corrupt(fmt.Sprintf("more than %d bytes", off), "fewer")
	}
	return content, o.Size, err
}

// The length of a pack alone determines how its beginning is read, so that the ranges reveal
// nothing about its content to the bucket's owner. The first range has a part of the stream that
// contains most tables or, with lists, most index pieces of LAZY values too. Each further range
// ends frontGrowth times as far.
const (
	tableShare, listShare = 128, 64
	frontGrowth           = 4
)

// front reads an object of a known size from its beginning.
type front struct {
	ctx  context.Context // of the one call that makes the front
	s    *source
	size int64
	next int64  // how much of the stream there is after the next range
	at   int64  // bytes read of the object
	rest []byte // of the last range
}

func newFront(ctx context.Context, s *source, size int64, lists bool) *front {
	share := int64(tableShare)
	if lists {
		share = listShare
	}
	return &front{ctx: ctx, s: s, size: size, next: tableRoom + seal.StreamBytes(size)/share}
}

// Read implements io.Reader.
func (f *front) Read(p []byte) (int, error) {
	if len(f.rest) == 0 {
		if f.at >= f.size {
			return 0, io.EOF
		}
		end := f.at
		for end == f.at { // ranges are whole frames: a short one may end where the last one did
			_, at, length := seal.Cover(0, f.next)
			end, f.next = min(at+length, f.size), f.next*frontGrowth
		}
		b, size, err := f.s.read(f.ctx, f.at, end-f.at, f.size, nil)
		if err == nil && size != f.size {
			err = f.s.corrupt(fmt.Sprintf("%d bytes", f.size), fmt.Sprint(size))
		}
		if err != nil {
			return 0, err
		}
		f.rest, f.at = b, end
	}
	n := copy(p, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}
