package bucket

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/clock"
)

// Rule says how errors of one class are retried.
type Rule struct {
	// Tries is the greatest number of tries, including the first.
	Tries int
	// First bounds the wait before the second try; each further wait may be twice as long.
	First time.Duration
	// Most bounds every wait.
	Most time.Duration
}

// RetryTable says how often, and after which waits, a failed call is retried:
//
//	class        tries   first wait   longest wait   why
//	busy           8        500 ms          30 s     stores allow one write a second for each
//	                                                 name, and slow down whom they find too fast
//	retryable      6        200 ms          10 s     most trouble passes within seconds
//	corrupt        2        200 ms          10 s     bytes change on the way, but a store that
//	                                                 answers nonsense twice will go on
//
// Other classes are not retried: waiting does not help. A wait is between half of its bound and the
// bound. The longest total wait of a call is 61.5 s for busy and 6.2 s for retryable; after that
// the caller decides.
func RetryTable(c Class) (Rule, bool) {
	switch c {
	case ClassBusy:
		return Rule{8, 500 * time.Millisecond, 30 * time.Second}, true
	case ClassRetryable:
		return Rule{6, 200 * time.Millisecond, 10 * time.Second}, true
	case ClassCorrupt:
		return Rule{2, 200 * time.Millisecond, 10 * time.Second}, true
	}
	return Rule{}, false
}

// Pause returns the wait after the given number of tries, from 1 on: between half of its bound and
// the bound, as jitter says, from 0 up to 1.
func (r Rule) Pause(tries int, jitter float64) time.Duration {
	bound := r.Wait(tries)
	return bound/2 + time.Duration(jitter*float64(bound-bound/2))
}

// Wait returns the bound of the wait after the given number of tries.
func (r Rule) Wait(tries int) time.Duration {
	d := r.First
	for i := 1; i < tries && d < r.Most; i++ {
		d *= 2
	}
	return min(d, r.Most)
}

// RetryOptions are the options of NewRetry. The zero value is useful.
type RetryOptions struct {
	// Clock makes the waits; nil: clock.System.
	Clock clock.Clock
	// Jitter returns numbers from 0 up to, but not including, 1; nil: from the system's source of
	// randomness. It may be called concurrently.
	Jitter func() float64
	// OnRetry, if not nil, is called before each wait. It may be called concurrently and should not
	// block.
	OnRetry func(err error, wait time.Duration)
}

func (o RetryOptions) withDefaults() RetryOptions {
	if o.Clock == nil {
		o.Clock = clock.System
	}
	if o.Jitter == nil {
		o.Jitter = func() float64 { return Jitter(rand.Reader) }
	}
	return o
}

// Jitter returns a number from 0 up to, but not including, 1 from a source of randomness, and the
// mean where that fails.
func Jitter(random io.Reader) float64 {
	var b [8]byte
	if _, err := io.ReadFull(random, b[:]); err != nil {
		return 0.5
	}
	return float64(binary.LittleEndian.Uint64(b[:])>>11) / (1 << 53)
}

// Retry is a Bucket that retries calls as RetryTable says. Its waits end with the context.
//
// A put is retried only if its content is an io.Seeker, from the content's initial position. If an
// earlier try may have landed, the error of a later one is marked Ambiguous too: such an ErrExists
// may be the caller's own. A get that breaks off within the body continues from there. If the
// object then has another length or creation time, the error is a *base.CorruptError, as objects
// never change.
type Retry struct {
	Layer
	o RetryOptions
}

// NewRetry returns a Retry in front of b.
func NewRetry(b Bucket, o RetryOptions) *Retry {
	r := &Retry{o: o.withDefaults()}
	r.Layer = Layer{b, func(ctx context.Context, _ Op, _ string, call func(context.Context, Bucket) error) error {
		return r.do(ctx, func() error { return call(ctx, b) })
	}}
	return r
}

// do calls fn until it succeeds or the table allows no more tries. It returns the last error.
func (r *Retry) do(ctx context.Context, fn func() error) error {
	for tries := 0; ; {
		err := fn()
		if err == nil {
			return nil
		}
		if err = r.again(ctx, &tries, err); err != nil {
			return err
		}
	}
}

// again waits after a try that ended with err, unless that was the last one. If ctx ends, it
// returns an error with the class and the mark of err.
func (r *Retry) again(ctx context.Context, tries *int, err error) error {
	rule, ok := RetryTable(ClassOf(err))
	if *tries++; !ok || *tries >= rule.Tries || ctx.Err() != nil {
		return err
	}
	d := rule.Pause(*tries, r.o.Jitter())
	if r.o.OnRetry != nil {
		r.o.OnRetry(err, d)
	}
	ch, release := r.o.Clock.After(d)
	defer release()
	select {
	case <-ch:
		return nil
	case <-ctx.Done():
		e, _ := errors.AsType[*Error](err)
		return &Error{Op: e.Op, Name: e.Name, Class: ClassCanceled, Status: e.Status, Ambiguous: Ambiguous(err),
			Err: fmt.Errorf("wait for try %d: %w after %w", *tries+1, context.Cause(ctx), err)}
	}
}

// PutIfAbsent implements Bucket.
func (r *Retry) PutIfAbsent(ctx context.Context, name string, size int64, content io.Reader) error {
	seeker, ok := content.(io.Seeker)
	if !ok {
		return r.Bucket.PutIfAbsent(ctx, name, size, content)
	}
	start, err := seeker.Seek(0, io.SeekCurrent)
	if err != nil { // it cannot seek, like a pipe that is a file
		return r.Bucket.PutIfAbsent(ctx, name, size, content)
	}
	first, landed := true, false
	err = r.do(ctx, func() error {
		if !first {
			if _, err := seeker.Seek(start, io.SeekStart); err != nil {
				return &Error{Op: OpPut, Name: name, Class: ClassOther, Err: fmt.Errorf("go back to the start of the content: %w", err)}
			}
		}
		first = false
		err := r.Bucket.PutIfAbsent(ctx, name, size, content)
		landed = landed || Ambiguous(err)
		return err
	})
	if err != nil && landed && !Ambiguous(err) {
		if e, ok := errors.AsType[*Error](err); ok {
			marked := *e
			marked.Ambiguous = true
			return &marked
		}
	}
	return err
}

// Get implements Bucket.
func (r *Retry) Get(ctx context.Context, name string, off, n int64) (o Object, err error) {
	if o, err = r.Layer.Get(ctx, name, off, n); err != nil {
		return Object{}, err
	}
	left, err := CheckRange(name, off, n, o.Size)
	if err != nil || o.Size < 0 {
		o.Body.Close()
		return Object{}, &Error{Op: OpGet, Name: name, Class: ClassCorrupt, Err: fmt.Errorf("get from %d of %d bytes", off, o.Size)}
	}
	o.Body = &retryBody{r: r, ctx: ctx, name: name, off: off, left: left, size: o.Size, created: o.Created, body: o.Body}
	return o, nil
}

// retryBody is the body of a get that continues after a break. Tries without a byte between them
// count together.
type retryBody struct {
	r       *Retry
	ctx     context.Context // that of Get, which bounds the body
	name    string
	off     int64 // of the next byte
	left    int64
	size    int64
	created time.Time
	body    io.ReadCloser // nil after an error
	tries   int           // since the last byte
	err     error         // final
}

func (b *retryBody) Read(p []byte) (int, error) {
	if b.err != nil || len(p) == 0 {
		return 0, b.err
	}
	if b.left == 0 {
		return 0, io.EOF
	}
	for {
		n, err := b.body.Read(p[:min(int64(len(p)), b.left)])
		b.off, b.left = b.off+int64(n), b.left-int64(n)
		switch {
		case n > 0:
			b.tries = 0
			return n, nil
		case err == io.EOF:
			err = io.ErrUnexpectedEOF
		case err == nil:
			continue
		}
		if b.err = b.recover(err); b.err != nil {
			return 0, b.err
		}
	}
}

// recover waits after err and opens the rest of the range, or returns the final error of the body.
func (b *retryBody) recover(err error) error {
	b.body.Close()
	b.body = nil
	for {
		if err = b.r.again(b.ctx, &b.tries, NewError(b.ctx, OpGet, b.name, false, err)); err != nil {
			return err
		}
		var o Object
		if o, err = b.r.Bucket.Get(b.ctx, b.name, b.off, b.left); err != nil {
			continue
		}
		if o.Size != b.size || !o.Created.Equal(b.created) {
			o.Body.Close()
			return &Error{Op: OpGet, Name: b.name, Class: ClassCorrupt, Err: &base.CorruptError{
				Where: "bucket", Key: b.name, Want: fmt.Sprintf("%d bytes of %s", b.size, b.created), Got: fmt.Sprintf("%d bytes of %s", o.Size, o.Created)}}
		}
		b.body = o.Body
		return nil
	}
}

// Close implements io.Closer.
func (b *retryBody) Close() error {
	if b.err == nil {
		b.err = fmt.Errorf("read body of %q: %w", b.name, base.ErrClosed)
	}
	if b.body == nil {
		return nil
	}
	body := b.body
	b.body = nil
	return body.Close()
}
