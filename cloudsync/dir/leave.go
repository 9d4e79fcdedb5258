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
	// clock. A call that ends within it returns its own result.
	patience = 500 * time.Millisecond
	// maxLeft bounds the calls that are abandoned on a disk that does not answer. Each takes a
	// thread of the system.
	maxLeft = 16
)

var (
	errHangs = fmt.Errorf("the disk does not answer: %w", base.ErrNetwork)
	errGone  = errors.New("the caller has left")
)

// held counts the abandoned calls.
type held struct{ n atomic.Int32 }

// await calls fn, which may block on the disk, in a goroutine, and returns its result. Soon after
// ctx ends, await abandons the goroutine and returns the cause of ctx: no context ends a system
// call. The goroutine ends when the disk answers, and then passes the result of fn to drop. If too
// many are abandoned, await does not call fn and returns errHangs.
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

// lent is caller-owned content. It is not used after the caller has left.
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

// takeBack ends all reading: no read is in progress after it returns, and none begins.
func (l *lent) takeBack() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.r = nil
}

// failed returns the *bucket.Error for an error of await. sent: see bucket.NewError.
func failed(ctx context.Context, op bucket.Op, name string, sent bool, err error) error {
	return bucket.NewError(ctx, op, name, sent && !errors.Is(err, errHangs), err)
}
