package dir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/clock"
)

const (
	// patience is how long a call waits for the disk after its context has ended, by the machine's
	// clock: what ends within it has ended as it ends.
	patience = 500 * time.Millisecond
	// maxLeft bounds the calls that have been left to a disk that does not answer. Each takes a
	// thread of the system.
	maxLeft = 16
)

var (
	errHangs = fmt.Errorf("the disk does not answer: %w", base.ErrNetwork)
	errGone  = errors.New("the caller has left")
)

// held counts the calls that were left to the disk.
type held struct{ n atomic.Int32 }

// await calls fn, which may wait for the disk, in a goroutine, and returns what that does. When ctx
// ends it leaves it, soon after: no context ends a call of the system. The goroutine ends when the
// disk answers, and gives what fn has returned then to drop. The error is then the cause of ctx.
// When too many have been left, fn is not called and the error is errHangs.
func await[T any](ctx context.Context, h *held, fn func() (T, error), drop func(T)) (v T, err error) {
	if h.n.Load() >= maxLeft {
		return v, errHangs
	}
	type result struct {
		v   T
		err error
	}
	ended := make(chan result, 1)
	go func() {
		r := result{err: errGone} // for a goroutine that ends within fn
		defer func() { ended <- r }()
		r.v, r.err = fn()
	}()
	select {
	case r := <-ended:
		return r.v, r.err
	case <-ctx.Done():
	}
	timeout, release := clock.System.After(patience)
	defer release()
	select {
	case r := <-ended:
		return r.v, r.err
	case <-timeout:
	}
	h.n.Add(1)
	go func() {
		r := <-ended
		h.n.Add(-1)
		if r.err == nil && drop != nil {
			drop(r.v)
		}
	}()
	return v, context.Cause(ctx)
}

// lent is content of a caller who may leave: what he has lent is not touched any more then.
type lent struct {
	mu sync.Mutex
	r  io.Reader // guarded by mu; nil: the caller has left
}

// Read implements io.Reader.
func (l *lent) Read(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.r == nil {
		return 0, errGone
	}
	return l.r.Read(p)
}

// takeBack returns when nobody reads any more.
func (l *lent) takeBack() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.r = nil
}

// failed returns the *bucket.Error for an error of await. sent: see bucket.NewError.
func failed(ctx context.Context, op bucket.Op, name string, sent bool, err error) error {
	return bucket.NewError(ctx, op, name, sent && !errors.Is(err, errHangs), err)
}
