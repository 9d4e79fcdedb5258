package cloudlink

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"sync"
	"time"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/dir"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/turn"
)

// Openers returns the openers that the app has linked, and that of dir.
func Openers(linked map[string]bucket.Opener) bucket.Openers {
	all := bucket.Openers{"dir": openDir}
	maps.Copy(all, linked)
	return all
}

// errNoAnswer ends the opening of a bucket that takes too long.
var errNoAnswer = fmt.Errorf("the store does not answer: %w", base.ErrNetwork)

// openBucket opens a bucket within twice stall, since opening takes few requests.
func openBucket(ctx context.Context, openers bucket.Openers, url string, o bucket.OpenOptions, stall time.Duration) (bucket.Bucket, error) {
	bounded := ctx
	if stall > 0 {
		var cancel context.CancelFunc
		bounded, cancel = context.WithTimeoutCause(ctx, 2*stall, errNoAnswer)
		defer cancel()
	}
	b, err := openers.Open(bounded, url, o)
	if err != nil && ctx.Err() == nil && bounded.Err() != nil && !errors.Is(err, errNoAnswer) {
		err = fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	return b, err
}

// WithBucket opens a bucket and calls fn with it. A request without progress fails within twice
// bucket.DefaultStall. Errors: those of the opener and of fn.
func WithBucket(ctx context.Context, openers bucket.Openers, url string, o bucket.OpenOptions, fn func(bucket.Bucket) error) error {
	b, err := openBucket(ctx, openers, url, o, bucket.DefaultStall)
	if err != nil {
		return err
	}
	defer bucket.Close(b) // it was only read: an error loses nothing
	return fn(bucket.NewMeter(b, bucket.MeterOptions{Stall: bucket.DefaultStall}))
}

// openDir opens a bucket in a directory.
func openDir(ctx context.Context, url string, o bucket.OpenOptions) (bucket.Bucket, error) {
	return dir.Open(ctx, url[len("dir:"):], dir.Options{MustExist: o.MustExist})
}

// lateBucket opens its bucket at its first use. A missing network, disk or credential then fails a
// request, which is retried, and not the opening of the repository.
type lateBucket struct {
	bucket.Layer
	url  string
	open func(context.Context) (bucket.Bucket, error)
	turn turn.Lock

	mu     sync.Mutex
	b      bucket.Bucket // guarded by mu
	closed bool          // guarded by mu
}

func newLateBucket(url string, open func(context.Context) (bucket.Bucket, error)) *lateBucket {
	l := &lateBucket{url: url, open: open, turn: turn.New()}
	l.Around = func(ctx context.Context, op bucket.Op, name string, call func(context.Context, bucket.Bucket) error) error {
		b, err := l.get(ctx, op, name)
		if err != nil {
			return err
		}
		return call(ctx, b)
	}
	return l
}

func (l *lateBucket) opened() (bucket.Bucket, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b, l.closed
}

// get returns the opened bucket. The error is a *bucket.Error.
func (l *lateBucket) get(ctx context.Context, op bucket.Op, name string) (bucket.Bucket, error) {
	b, closed := l.opened()
	if b != nil && !closed {
		return b, nil
	}
	if l.turn.Take(ctx) != nil {
		return nil, &bucket.Error{Op: op, Name: name, Class: bucket.ClassCanceled, Err: context.Cause(ctx)}
	}
	defer l.turn.Give()
	errClosed := &bucket.Error{Op: op, Name: name, Class: bucket.ClassOther, Err: base.ErrClosed}
	if b, closed = l.opened(); closed {
		return nil, errClosed
	}
	if b != nil {
		return b, nil
	}
	b, err := l.open(ctx)
	if errors.Is(err, base.ErrNotFound) {
		// A missing disk may come back, so that this is no answer about the object.
		return nil, &bucket.Error{Op: op, Name: name, Class: bucket.ClassRetryable, Err: base.WithClass(errors.New(err.Error()), fs.ErrNotExist)}
	}
	if err != nil {
		return nil, bucket.NewError(ctx, op, name, false, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed { // while it was opened
		return nil, errors.Join(errClosed, bucket.Close(b))
	}
	l.b = b
	return b, nil
}

// String implements bucket.Bucket.
func (l *lateBucket) String() string { return l.url }

// Close closes the bucket, if it was opened. Later requests fail.
func (l *lateBucket) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	b := l.b
	l.b = nil
	return bucket.Close(b)
}
