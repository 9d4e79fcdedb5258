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
	c := &call[T]{done: make(chan struct{})}
	go c.run(h, fn, drop)
	select {
	case <-c.done:
		return c.v, c.err
	case <-ctx.Done():
	}
	timeout, release := clock.System.After(patience)
	defer release()
	select {
	case <-c.done:
		return c.v, c.err
	case <-timeout:
	}
	if c.leave(h) {
		return v, context.Cause(ctx)
	}
	return c.v, c.err
}

// call is what await has begun.
type call[T any] struct {
	done chan struct{} // closed when v and err are there
	v    T
	err  error

	mu    sync.Mutex
	ended bool // guarded by mu
	left  bool // guarded by mu
}

func (c *call[T]) run(h *held, fn func() (T, error), drop func(T)) {
	c.err = errGone // for a goroutine that ends within fn
	defer func() {
		c.mu.Lock()
		c.ended = true
		left := c.left
		c.mu.Unlock()
		if left {
			h.n.Add(-1)
			if c.err == nil && drop != nil {
				drop(c.v)
			}
		}
		close(c.done)
	}()
	c.v, c.err = fn()
}

// leave leaves the call, unless it has ended.
func (c *call[T]) leave(h *held) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return false
	}
	c.left = true
	h.n.Add(1)
	return true
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

// Lend implements bucket.Lender. What is lent stays so when the caller leaves.
func (l *lent) Lend(n int) ([]byte, func(), bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.r == nil {
		return nil, nil, false
	}
	return bucket.Lend(l.r, n)
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
