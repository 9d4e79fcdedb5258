package bucket_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"runtime"
	"testing"
	"time"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/mem"
	"github.com/ledgerd/ledger/internal/base"
)

// dead is a bucket whose connections die: the first calls get no answer, and the first bodies end
// within.
type dead struct {
	bucket.Bucket
	calls, bodies int           // that die
	entered       chan struct{} // told when one hangs
}

func (d *dead) hang(ctx context.Context, left *int, op bucket.Op, name string) error {
	if *left == 0 {
		return nil
	}
	*left--
	d.entered <- struct{}{}
	<-ctx.Done()
	return bucket.NewError(ctx, op, name, true, ctx.Err())
}

func (d *dead) PutIfAbsent(ctx context.Context, name string, size int64, content io.Reader) error {
	if err := d.hang(ctx, &d.calls, bucket.OpPut, name); err != nil {
		return err
	}
	return d.Bucket.PutIfAbsent(ctx, name, size, content)
}

func (d *dead) Get(ctx context.Context, name string, off, n int64) (bucket.Object, error) {
	if err := d.hang(ctx, &d.calls, bucket.OpGet, name); err != nil {
		return bucket.Object{}, err
	}
	o, err := d.Bucket.Get(ctx, name, off, n)
	if err == nil && d.bodies > 0 {
		o.Body = &deadBody{ctx, d, o.Body, name, 3}
	}
	return o, err
}

func (d *dead) List(ctx context.Context, after, prefix string, limit int) ([]bucket.Info, error) {
	if err := d.hang(ctx, &d.calls, bucket.OpList, prefix); err != nil {
		return nil, err
	}
	return d.Bucket.List(ctx, after, prefix, limit)
}

func (d *dead) Delete(ctx context.Context, name string) error {
	if err := d.hang(ctx, &d.calls, bucket.OpDelete, name); err != nil {
		return err
	}
	return d.Bucket.Delete(ctx, name)
}

type deadBody struct {
	ctx context.Context
	d   *dead
	io.ReadCloser
	name string
	left int
}

func (b *deadBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, b.d.hang(b.ctx, &b.d.bodies, bucket.OpGet, b.name)
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// TestStalledConnections lets connections die without a sign: each call ends after a while, and is
// made again as the table says.
func TestStalledConnections(t *testing.T) {
	content := []byte("some content")
	for name, k := range map[string]struct {
		calls, bodies int
		do            func(ctx context.Context, b bucket.Bucket) error
	}{
		"put": {1, 0, func(ctx context.Context, b bucket.Bucket) error {
			return b.PutIfAbsent(ctx, "b", 3, bytes.NewReader([]byte("new")))
		}},
		"get":    {2, 0, func(ctx context.Context, b bucket.Bucket) error { return readIt(ctx, b, content) }},
		"body":   {0, 3, func(ctx context.Context, b bucket.Bucket) error { return readIt(ctx, b, content) }},
		"list":   {1, 0, func(ctx context.Context, b bucket.Bucket) error { _, err := b.List(ctx, "", "", 9); return err }},
		"delete": {1, 0, func(ctx context.Context, b bucket.Bucket) error { return b.Delete(ctx, "a") }},
	} {
		for _, retried := range []bool{false, true} {
			clk := mem.NewClock(start)
			inner := mem.New(mem.Options{Clock: mem.NewAutoClock(start)})
			if err := inner.PutIfAbsent(t.Context(), "a", int64(len(content)), bytes.NewReader(content)); err != nil {
				t.Fatal(err)
			}
			d := &dead{Bucket: inner, calls: k.calls, bodies: k.bodies, entered: make(chan struct{}, 9)}
			var b bucket.Bucket = bucket.NewMeter(d, bucket.MeterOptions{Clock: clk, Stall: time.Minute})
			if retried {
				b = bucket.NewRetry(b, bucket.RetryOptions{Clock: mem.NewAutoClock(start)})
			}
			done := make(chan error, 1)
			go func() { done <- k.do(t.Context(), b) }()
			err := passTime(clk, done)
			if !retried {
				e, ok := errors.AsType[*bucket.Error](err)
				if !ok || !errors.Is(err, base.ErrNetwork) || bucket.Ambiguous(err) != (name == "put" || name == "delete") || errors.Is(err, context.Canceled) {
					t.Errorf("%s: %v, %+v", name, err, e)
				}
			} else if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if clk.Timers() > 0 {
				t.Errorf("%s: %d timers are left", name, clk.Timers())
			}
		}
	}
}

// passTime moves the clock whenever somebody waits for it, until it is done.
func passTime(clk *mem.Clock, done chan error) error {
	for {
		select {
		case err := <-done:
			return err
		default:
		}
		if clk.Timers() > 0 {
			clk.Advance(time.Minute)
		}
		runtime.Gosched()
	}
}

func readIt(ctx context.Context, b bucket.Bucket, want []byte) error {
	o, err := b.Get(ctx, "a", 0, -1)
	if err != nil {
		return err
	}
	defer o.Body.Close()
	got, err := io.ReadAll(o.Body)
	if err == nil && !bytes.Equal(got, want) {
		err = errors.New("other content")
	}
	return err
}

// TestPatienceIsWithTheStore lets the caller take his time, with content that he gives and with
// what he reads.
func TestPatienceIsWithTheStore(t *testing.T) {
	clk := mem.NewClock(start)
	b := bucket.NewMeter(mem.New(mem.Options{Clock: mem.NewAutoClock(start)}), bucket.MeterOptions{Clock: clk, Stall: time.Minute})
	slow := func() {
		for range 5 { // each look of the watcher is followed by a new timer
			for clk.Timers() == 0 {
				runtime.Gosched()
			}
			clk.Advance(time.Minute)
		}
	}
	if err := b.PutIfAbsent(t.Context(), "a", 3, &slowReader{r: bytes.NewReader([]byte("abc")), wait: slow}); err != nil {
		t.Error(err)
	}
	o, err := b.Get(t.Context(), "a", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	slow()
	if got, err := io.ReadAll(o.Body); err != nil || string(got) != "abc" {
		t.Errorf("%q, %v", got, err)
	}
	if err := o.Body.Close(); err != nil {
		t.Error(err)
	}
}

type slowReader struct {
	r    io.Reader
	wait func()
}

func (r *slowReader) Read(p []byte) (int, error) {
	r.wait()
	return r.r.Read(p)
}
