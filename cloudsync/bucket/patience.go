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

// Patient is a Bucket that ends a call, or the body of a get, when the store makes no progress for
// some time. Without it, a call on a connection that is dead and not closed would wait until the
// system gives the connection up, perhaps for hours. The resulting error is retryable, or ambiguous
// for a write. Time that the caller takes, to supply content or before it reads on, does not count.
type Patient struct {
	Layer
	clock clock.Clock
	most  time.Duration
}

// NewPatient returns a Patient in front of b. It ends a call after most to 2*most without progress.
// A Retry stands in front of it.
func NewPatient(b Bucket, c clock.Clock, most time.Duration) *Patient {
	p := &Patient{clock: c, most: most}
	p.Layer = Layer{b, func(ctx context.Context, op Op, name string, call func(context.Context, Bucket) error) error {
		w := p.begin(ctx)
		defer w.end()
		return w.explain(op, name, call(w.ctx, b))
	}}
	return p
}

// wait is one call in flight, or one body.
type wait struct {
	p       *Patient
	outer   context.Context // of the caller
	ctx     context.Context // ends with outer, and without progress
	cancel  context.CancelCauseFunc
	waiting atomic.Bool // for the store
	moved   atomic.Bool // there was progress since the last look
	ended   chan struct{}
	watcher sync.WaitGroup
}

// begin begins a wait for the store. end must be called.
func (p *Patient) begin(ctx context.Context) *wait {
	w := &wait{p: p, outer: ctx, ended: make(chan struct{})}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	w.enter()
	w.watcher.Go(w.watch)
	return w
}

// enter records that a wait for the store begins, leave that the store has made progress.
func (w *wait) enter() {
	w.moved.Store(true)
	w.waiting.Store(true)
}

func (w *wait) leave() { w.waiting.Store(false) }

func (w *wait) end() {
	close(w.ended)
	w.watcher.Wait()
	w.cancel(nil)
}

func (w *wait) watch() {
	for {
		due, release := w.p.clock.After(w.p.most)
		select {
		case <-due:
			release()
		case <-w.ended:
			release()
			return
		}
		if !w.moved.Swap(false) && w.waiting.Load() {
			w.cancel(&stalledError{w.p.most})
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
func (w *wait) explain(op Op, name string, err error) error {
	stalled, ok := context.Cause(w.ctx).(*stalledError)
	if err == nil || err == io.EOF || !ok || w.outer.Err() != nil {
		return err
	}
	class, write := ClassRetryable, op == OpPut || op == OpDelete
	if write {
		class = ClassAmbiguous
	}
	return &Error{Op: op, Name: name, Class: class, Ambiguous: write, Err: stalled}
}

// PutIfAbsent implements Bucket.
func (p *Patient) PutIfAbsent(ctx context.Context, name string, size int64, content io.Reader) error {
	w := p.begin(ctx)
	defer w.end()
	return w.explain(OpPut, name, p.Bucket.PutIfAbsent(w.ctx, name, size, &givenContent{w, content}))
}

// givenContent is the content of a put. While it is read, the store waits for the caller.
type givenContent struct {
	w *wait
	r io.Reader
}

func (c *givenContent) Read(b []byte) (int, error) {
	c.w.leave()
	defer c.w.enter()
	return c.r.Read(b)
}

// Get implements Bucket.
func (p *Patient) Get(ctx context.Context, name string, off, n int64) (Object, error) {
	w := p.begin(ctx)
	o, err := p.Bucket.Get(w.ctx, name, off, n)
	if err != nil {
		err = w.explain(OpGet, name, err)
		w.end()
		return o, err
	}
	w.leave()
	o.Body = &patientBody{w: w, name: name, body: o.Body}
	return o, nil
}

// patientBody is the body of a get.
type patientBody struct {
	w      *wait
	name   string
	body   io.ReadCloser
	closed sync.Once
}

func (b *patientBody) Read(p []byte) (int, error) {
	b.w.enter()
	defer b.w.leave()
	n, err := b.body.Read(p)
	return n, b.w.explain(OpGet, b.name, err)
}

// Close implements io.Closer.
func (b *patientBody) Close() error {
	err := b.body.Close()
	b.closed.Do(b.w.end)
	return err
}
