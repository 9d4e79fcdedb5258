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

// DefaultStall is for how long, up to twice that, a store may let nothing happen when nobody says
// otherwise.
const DefaultStall = time.Minute

// Patient is a Bucket that ends a call, or the body of a get, when the store lets nothing happen
// for some time: a connection that is dead and not closed would be waited for until the system
// gives it up, which may take hours. What ends so is retryable, or ambiguous for a write. The time
// that the caller takes, to give content or before he reads on, does not count.
type Patient struct {
	Layer
	clock clock.Clock
	most  time.Duration
}

// NewPatient returns a Patient in front of b, for which nothing may happen for most to twice as
// long. It stands behind a Retry.
func NewPatient(b Bucket, c clock.Clock, most time.Duration) *Patient {
	p := &Patient{clock: c, most: most}
	p.Layer = Layer{b, func(ctx context.Context, op Op, name string, call func(context.Context, Bucket) error) error {
		w := p.begin(ctx)
		defer w.end()
		return w.explain(op, name, call(w.ctx, b))
	}}
	return p
}

// wait is one call under way, or one body.
type wait struct {
	p       *Patient
	outer   context.Context // of the caller
	ctx     context.Context // ends with that, and when nothing happens
	cancel  context.CancelCauseFunc
	waiting atomic.Bool // for the store
	moved   atomic.Bool // something has happened since the last look
	ended   chan struct{}
	watcher sync.WaitGroup
}

// begin begins to wait for the store. end must be called.
func (p *Patient) begin(ctx context.Context) *wait {
	w := &wait{p: p, outer: ctx, ended: make(chan struct{})}
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	w.enter()
	w.watcher.Go(w.watch)
	return w
}

// enter says that the store is waited for from now on, leave that it has done something.
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

// stalledError says for how long nothing has happened, at least.
type stalledError struct{ most time.Duration }

func (e *stalledError) Error() string {
	return fmt.Sprintf("the store has let nothing happen for %s", e.most)
}

func (e *stalledError) Is(target error) bool { return target == base.ErrNetwork }

// explain returns err, or what it means when it is the wait that has ended the call.
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

// givenContent is the content of a put, for which the store waits and not the caller.
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
