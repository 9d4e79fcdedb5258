package cloudsync

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/internal/clock"
)

// sliceBytes is how much of a body passes a limiter at once.
const sliceBytes = 32 << 10

// limiter is a token bucket that fills at a rate. A call that takes more than there is leaves a
// debt and waits until it is paid, so that the mean rate holds for portions of any size.
type limiter struct {
	clock clock.Clock
	rate  float64 // tokens a second
	burst float64 // the most tokens that are saved up

	mu     sync.Mutex
	tokens float64   // guarded by mu
	last   time.Time // guarded by mu
}

// newLimiter returns nil, which limits nothing, for a rate that is not positive.
func newLimiter(c clock.Clock, rate, burst float64) *limiter {
	if !(rate > 0) {
		return nil
	}
	return &limiter{clock: c, rate: rate, burst: burst, tokens: burst, last: c.Now()}
}

// take takes n tokens and waits until they are paid, or ctx ends.
func (l *limiter) take(ctx context.Context, n float64) error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	now := l.clock.Now()
	l.tokens = min(l.burst, l.tokens+max(0, now.Sub(l.last).Seconds())*l.rate) - n
	l.last = now
	debt := -l.tokens
	l.mu.Unlock()
	if debt <= 0 {
		return nil
	}
	paid, release := l.clock.After(time.Duration(min(debt/l.rate, (24*time.Hour).Seconds()) * float64(time.Second)))
	defer release()
	select {
	case <-paid:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// give returns tokens that were taken and not used.
func (l *limiter) give(n float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tokens = min(l.burst, l.tokens+n)
}

// gate is a Bucket that enforces Limits. It stands below a Retry, so that every try is limited, and
// above a Meter, which counts requests really sent.
type gate struct {
	bucket.Layer
	requests, up, down *limiter
}

func newGate(b bucket.Bucket, c clock.Clock, l Limits) *gate {
	g := &gate{
		requests: newLimiter(c, l.RequestsPerSecond, max(1, l.RequestsPerSecond)),
		up:       newLimiter(c, float64(l.UploadBytesPerSecond), float64(l.UploadBytesPerSecond)),
		down:     newLimiter(c, float64(l.DownloadBytesPerSecond), float64(l.DownloadBytesPerSecond)),
	}
	g.Layer = bucket.Layer{Bucket: b, Around: func(ctx context.Context, op bucket.Op, name string, call func(context.Context, bucket.Bucket) error) error {
		if err := g.requests.take(ctx, 1); err != nil { // the caller's context ended before a request was made
			g.requests.give(1)
			return bucket.NewError(ctx, op, name, false, err)
		}
		return call(ctx, b)
	}}
	return g
}

// PutIfAbsent implements bucket.Bucket.
func (g *gate) PutIfAbsent(ctx context.Context, name string, size int64, content io.Reader) error {
	if g.up != nil {
		content = &limitedReader{ctx: ctx, l: g.up, r: content}
	}
	return g.Layer.PutIfAbsent(ctx, name, size, content)
}

// Get implements bucket.Bucket.
func (g *gate) Get(ctx context.Context, name string, off, n int64) (bucket.Object, error) {
	o, err := g.Layer.Get(ctx, name, off, n)
	if err == nil && g.down != nil {
		o.Body = &body{&limitedReader{ctx: ctx, l: g.down, r: o.Body}, o.Body.Close}
	}
	return o, err
}

// limitedReader reads at a limited rate.
type limitedReader struct {
	ctx context.Context // that of the call to which this body belongs
	l   *limiter
	r   io.Reader
}

func (r *limitedReader) Read(p []byte) (int, error) {
	n, err := r.r.Read(p[:min(len(p), sliceBytes)])
	if n > 0 {
		if waitErr := r.l.take(r.ctx, float64(n)); waitErr != nil {
			return n, waitErr
		}
	}
	return n, err
}

// body is what a Get returns.
type body struct {
	io.Reader
	close func() error
}

func (b *body) Close() error { return b.close() }

// scoped is a Bucket whose calls also end when a scope ends: that of the Syncer or of a page. So
// Close waits for no request.
type scoped struct {
	bucket.Layer
	scope context.Context
}

func newScoped(b bucket.Bucket, scope context.Context) *scoped {
	return &scoped{bucket.Layer{Bucket: b, Around: func(ctx context.Context, _ bucket.Op, _ string, call func(context.Context, bucket.Bucket) error) error {
		ctx, release := joined(ctx, scope)
		defer release()
		return call(ctx, b)
	}}, scope}
}

// Get implements bucket.Bucket.
func (s *scoped) Get(ctx context.Context, name string, off, n int64) (bucket.Object, error) {
	ctx, release := joined(ctx, s.scope)
	o, err := s.Bucket.Get(ctx, name, off, n)
	if err != nil {
		release()
		return o, err
	}
	closes := o.Body.Close
	o.Body = &body{o.Body, func() error {
		defer release()
		return closes()
	}}
	return o, nil
}

// joined returns a context that ends when either ends, with the cause of that one. release must be
// called.
func joined(ctx, scope context.Context) (both context.Context, release func()) {
	both, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(scope, func() { cancel(context.Cause(scope)) })
	return both, func() {
		stop()
		cancel(nil)
	}
}
