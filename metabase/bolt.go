package metabase

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime/debug"
	"syscall"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/ordered"
)

// boltTree is the tree of a bbolt file in one transaction. bbolt panics on unexpected file
// contents. Each method turns such a panic into damage of the file: M5.
type boltTree struct {
	tx *bbolt.Tx
	f  *File
}

// bucket returns nil when the bucket is absent.
func (t boltTree) bucket(p place) *bbolt.Bucket {
	b := t.tx.Bucket(p.bucket)
	if b == nil || p.nested == nil {
		return b
	}
	return b.Bucket(p.nested)
}

func (t boltTree) get(ctx context.Context, p place, key []byte) (value []byte, ok bool, err error) {
	defer t.f.guard(&err)
	if err := ctx.Err(); err != nil {
		return nil, false, fmt.Errorf("read %s: %w", p, err)
	}
	b := t.bucket(p)
	if b == nil {
		return nil, false, nil
	}
	v := b.Get(key)
	return v, v != nil, nil
}

func (t boltTree) put(ctx context.Context, p place, key, value []byte) (err error) {
	defer t.f.guard(&err)
	err = ctx.Err()
	var b *bbolt.Bucket
	if err == nil {
		b, err = t.tx.CreateBucketIfNotExists(p.bucket)
	}
	if err == nil && p.nested != nil {
		b, err = b.CreateBucketIfNotExists(p.nested)
	}
	if err == nil {
		err = b.Put(key, append([]byte{}, value...)) // bbolt keeps the slice, and a nil value would read as absent
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", p, boltError(err))
	}
	return nil
}

func (t boltTree) delete(ctx context.Context, p place, key []byte) (err error) {
	defer t.f.guard(&err)
	err = ctx.Err()
	if b := t.bucket(p); b != nil && err == nil {
		err = b.Delete(key)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", p, boltError(err))
	}
	return nil
}

func (t boltTree) rows(ctx context.Context, p place, s span) iter.Seq2[ordered.Row, error] {
	return func(yield func(ordered.Row, error) bool) {
		err := t.walk(ctx, p, s, func(k, v []byte) bool { return v == nil || yield(ordered.Row{Key: k, Value: v}, nil) })
		if err != nil {
			yield(ordered.Row{}, fmt.Errorf("read %s: %w", p, err))
		}
	}
}

func (t boltTree) names(ctx context.Context, bucket, from []byte) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		err := t.walk(ctx, place{bucket: bucket}, span{from: from}, func(k, v []byte) bool { return v != nil || yield(k, nil) })
		if err != nil {
			yield(nil, fmt.Errorf("list buckets: %w", err))
		}
	}
}

// walk calls fn for the keys of s in a bucket, or in the root, until fn returns false.
func (t boltTree) walk(ctx context.Context, p place, s span, fn func(k, v []byte) bool) error {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // a sequence of iter.Pull runs on its own goroutine
	c, err := t.cursor(p)
	if err != nil || c == nil {
		return err
	}
	k, v, err := t.move(func() ([]byte, []byte) { return c.Seek(s.from) })
	for err == nil && k != nil && (s.to == nil || string(k) < string(s.to)) {
		if err := ctx.Err(); err != nil || !fn(k, v) {
			return err
		}
		k, v, err = t.move(c.Next)
	}
	return err
}

// cursor returns nil when the bucket is absent.
func (t boltTree) cursor(p place) (c *bbolt.Cursor, err error) {
	defer t.f.guard(&err)
	if p.bucket == nil {
		return t.tx.Cursor(), nil
	}
	b := t.bucket(p)
	if b == nil {
		return nil, nil
	}
	return b.Cursor(), nil
}

// move moves a cursor and turns a panic of bbolt into damage.
func (t boltTree) move(to func() (k, v []byte)) (k, v []byte, err error) {
	defer t.f.guard(&err)
	k, v = to()
	return k, v, nil
}

func (t boltTree) drop(ctx context.Context, p place) (err error) {
	defer t.f.guard(&err)
	err = ctx.Err()
	if err == nil {
		if p.nested == nil {
			err = t.tx.DeleteBucket(p.bucket)
		} else if b := t.tx.Bucket(p.bucket); b != nil {
			err = b.DeleteBucket(p.nested)
		}
	}
	if err != nil && !errors.Is(err, berrors.ErrBucketNotFound) {
		return fmt.Errorf("drop %s: %w", p, boltError(err))
	}
	return nil
}

// boltError adds to an error of bbolt the sentinel that callers test for.
func boltError(err error) error {
	for _, e := range []struct{ from, to error }{
		{berrors.ErrKeyTooLarge, base.ErrTooLarge}, {berrors.ErrValueTooLarge, base.ErrTooLarge}, {berrors.ErrKeyRequired, base.ErrInvalid},
		{berrors.ErrBucketNameRequired, base.ErrInvalid}, {berrors.ErrIncompatibleValue, base.ErrCorrupt}, {syscall.ENOSPC, base.ErrNoSpace},
	} {
		if errors.Is(err, e.from) {
			return fmt.Errorf("%w: %w", e.to, err)
		}
	}
	return err
}
