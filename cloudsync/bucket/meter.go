package bucket

import (
	"context"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/clock"
)

// DefaultStall is the default time without progress after which a call ends, within up to twice
// that.
const DefaultStall = time.Minute

// Counts are counts of requests and bytes.
type Counts struct {
	// A counts requests of class A: puts and lists.
	A int64
	// B counts requests of class B: gets.
	B int64
	// Free counts requests that cost nothing: deletes.
	Free int64
	// Up is the number of bytes of content sent, including refused and failed puts.
	Up int64
	// Down is the number of bytes of bodies read.
	Down int64
}

// MeterOptions are the options of NewMeter. With the zero value a Meter only counts.
type MeterOptions struct {
	// Clock gives the time and makes all waits; nil: clock.System.
	Clock clock.Clock
	// Limits bound the rates of requests and bytes.
	Limits Limits
	// Stall is how long a call may go without progress: it ends after Stall to twice Stall. 0, or
	// less: for ever.
	Stall time.Duration
}

// Meter is a Bucket that makes each call of another one once. It stands below a Retry, so that it
// sees every try.
//
// It counts the requests, also failed ones, and refused arguments, though these are never sent. It
// limits their rates. It ends a call, or the body of a get, when the store makes no progress for
// some time. Without that, a call on a connection that is dead and not closed would wait until the
// system gives the connection up, perhaps for hours. The resulting error is retryable, or ambiguous
// for a write. Time that the caller takes, to supply content or before it reads on, does not count.
type Meter struct {
	Layer
	o                  MeterOptions
	requests, up, down *limiter

	a, get, free, sent, read atomic.Int64
}

// NewMeter returns a Meter in front of b.
func NewMeter(b Bucket, o MeterOptions) *Meter {
	if o.Clock == nil {
		o.Clock = clock.System
	}
	m := &Meter{
		o:        o,
		requests: newLimiter(o.Clock, o.Limits.RequestsPerSecond),
		up:       newLimiter(o.Clock, float64(o.Limits.UploadBytesPerSecond)),
		down:     newLimiter(o.Clock, float64(o.Limits.DownloadBytesPerSecond)),
	}
	m.Layer = Layer{b, func(ctx context.Context, op Op, name string, call func(context.Context, Bucket) error) error {
		w, err := m.begin(ctx, op, name)
		if err != nil {
			return err
		}
		defer w.end()
		return w.explain(call(w.ctx, b))
	}}
	return m
}

// Counts returns the counts so far. Each number is exact, but with calls in flight they are not of
// one moment.
func (m *Meter) Counts() Counts {
	return Counts{A: m.a.Load(), B: m.get.Load(), Free: m.free.Load(), Up: m.sent.Load(), Down: m.read.Load()}
}

// PutIfAbsent implements Bucket.
func (m *Meter) PutIfAbsent(ctx context.Context, name string, size int64, content io.Reader) error {
	w, err := m.begin(ctx, OpPut, name)
	if err != nil {
		return err
	}
	defer w.end()
	return w.explain(m.Bucket.PutIfAbsent(w.ctx, name, size, &givenContent{w, content, size}))
}

// Get implements Bucket.
func (m *Meter) Get(ctx context.Context, name string, off, n int64) (Object, error) {
	w, err := m.begin(ctx, OpGet, name)
	if err != nil {
		return Object{}, err
	}
	o, err := m.Bucket.Get(w.ctx, name, off, n)
	if err != nil {
		err = w.explain(err)
		w.end()
		return o, err
	}
	w.leave()
	o.Body = &takenBody{w, o.Body}
	return o, nil
}

// wait is one call in flight, or one body.
type wait struct {
	m       *Meter
	op      Op
	name    string
	outer   context.Context // of the caller
	ctx     context.Context // ends with outer, and without progress
	cancel  context.CancelCauseFunc
	waiting atomic.Bool // for the store
	moved   atomic.Bool // there was progress since the last look
	watcher sync.WaitGroup
}

// begin counts a call when the limit lets it pass, and begins the wait for the store. end must be
// called.
func (m *Meter) begin(ctx context.Context, op Op, name string) (*wait, error) {
	if err := m.requests.take(ctx, 1); err != nil { // the caller's context ended before a request was made
		m.requests.pay(-1)
		return nil, NewError(ctx, op, name, false, err)
	}
	switch op {
	case OpGet:
		m.get.Add(1)
	case OpDelete:
		m.free.Add(1)
	default:
		m.a.Add(1)
	}
	w := &wait{m: m, op: op, name: name, outer: ctx}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	w.enter()
	if m.o.Stall > 0 {
		w.watcher.Go(w.watch)
	}
	return w, nil
}

// enter records that a wait for the store begins, leave that the store has made progress.
func (w *wait) enter() {
	w.moved.Store(true)
	w.waiting.Store(true)
}

func (w *wait) leave() { w.waiting.Store(false) }

// end ends the wait. It may be called more than once.
func (w *wait) end() {
	w.cancel(nil)
	w.watcher.Wait()
}

func (w *wait) watch() {
	for {
		due, release := w.m.o.Clock.After(w.m.o.Stall)
		select {
		case <-due:
			release()
		case <-w.ctx.Done():
			release()
			return
		}
		if !w.moved.Swap(false) && w.waiting.Load() {
			w.cancel(&stalledError{w.m.o.Stall})
			return
		}
	}
}

// stalledError gives the least time without progress.
type stalledError struct{ most time.Duration }

func (e *stalledError) Error() string {
	return fmt.Sprintf("the store has let nothing happen for %s", e.most)
}

func (e *stalledError) Is(target error) bool { return target == base.ErrNetwork }

// explain returns err, or the stall if that has ended the call.
func (w *wait) explain(err error) error {
	stalled, ok := context.Cause(w.ctx).(*stalledError)
	if err == nil || err == io.EOF || !ok || w.outer.Err() != nil {
		return err
	}
	return NewError(w.outer, w.op, w.name, true, stalled)
}

// givenContent is the content of a put. While it is read, the store waits for the caller.
type givenContent struct {
	w    *wait
	r    io.Reader
	left int64 // further bytes are not sent
}

// Read implements io.Reader.
func (c *givenContent) Read(p []byte) (int, error) {
	c.w.leave()
	defer c.w.enter()
	n, err := c.r.Read(c.w.m.up.part(p))
	sent := min(int64(n), c.left)
	c.left -= sent
	c.w.m.sent.Add(sent)
	if waitErr := c.w.m.up.take(c.w.outer, n); waitErr != nil {
		return n, waitErr
	}
	return n, err
}

// takenBody is the body of a get. While it is not read, the store waits for the caller.
type takenBody struct {
	w *wait
	io.ReadCloser
}

// Read implements io.Reader.
func (b *takenBody) Read(p []byte) (int, error) {
	b.w.enter()
	n, err := b.ReadCloser.Read(b.w.m.down.part(p))
	b.w.leave()
	b.w.m.read.Add(int64(n))
	if waitErr := b.w.m.down.take(b.w.outer, n); waitErr != nil {
		return n, waitErr
	}
	return n, b.w.explain(err)
}

// Close implements io.Closer.
func (b *takenBody) Close() error {
	defer b.w.end()
	return b.ReadCloser.Close()
}
