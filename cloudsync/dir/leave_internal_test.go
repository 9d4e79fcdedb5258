package dir

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/internal/base"
)

// hung returns a bucket with the object a, on a disk that does not answer from the given step on
// until release is closed.
func hung(t *testing.T, at string) (b *Bucket, entered, release chan struct{}) {
	t.Helper()
	b, err := Open(t.Context(), t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.PutIfAbsent(t.Context(), "a", 7, strings.NewReader("content")); err != nil {
		t.Fatal(err)
	}
	entered, release = make(chan struct{}, 100), make(chan struct{})
	b.hook(false, func(what string) error {
		if what == at {
			entered <- struct{}{}
			<-release
		}
		return nil
	})
	return b, entered, release
}

// settled waits until the disk has answered all that were left to it.
func (h *held) settled(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for h.n.Load() > 0 {
		short, stop := context.WithTimeout(ctx, time.Millisecond)
		<-short.Done()
		stop()
		if ctx.Err() != nil {
			t.Fatalf("%d calls are left", h.n.Load())
		}
	}
}

// TestDiskThatHangs lets the disk stop answering in the midst of each call: who leaves gets away,
// what he has lent is not touched any more, and the call ends when the disk answers.
func TestDiskThatHangs(t *testing.T) {
	put := func(ctx context.Context, b *Bucket) error {
		return b.PutIfAbsent(ctx, "b", 3, &ownReader{r: strings.NewReader("new")})
	}
	get := func(ctx context.Context, b *Bucket) error {
		o, err := b.Get(ctx, "a", 0, -1)
		if err != nil {
			return err
		}
		_, err = io.ReadAll(o.Body)
		return errors.Join(err, o.Body.Close())
	}
	for at, do := range map[string]func(ctx context.Context, b *Bucket) error{
		"create": put, "sync": put, "link": put, "syncdir": put, "get": get, "read": get,
		"list":   func(ctx context.Context, b *Bucket) error { _, err := b.List(ctx, "", "", 9); return err },
		"remove": func(ctx context.Context, b *Bucket) error { return b.Delete(ctx, "a") },
	} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			b, entered, release := hung(t, at)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- do(ctx, b) }()
			<-entered
			cancel()
			err := <-done
			if !errors.Is(err, context.Canceled) || bucket.ClassOf(err) != bucket.ClassCanceled {
				t.Errorf("%v", err)
			}
			if write := at != "get" && at != "read" && at != "list"; bucket.Ambiguous(err) != write {
				t.Errorf("a write that may land: %t, want %t", bucket.Ambiguous(err), write)
			}
			if n := b.held.n.Load(); n != 1 {
				t.Errorf("%d calls are left", n)
			}
			close(release)
			b.held.settled(t)
			if err := do(t.Context(), b); err != nil && !errors.Is(err, bucket.ErrExists) {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
}

// ownReader fails the test, by a race, when it is read after its owner took it back.
type ownReader struct {
	r    io.Reader
	used int
}

func (o *ownReader) Read(p []byte) (int, error) {
	o.used++
	return o.r.Read(p)
}

// TestFewAreLeft bounds what is left to a disk that hangs: then calls fail at once.
func TestFewAreLeft(t *testing.T) {
	b, entered, release := hung(t, "get")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, maxLeft)
	for range maxLeft {
		go func() {
			_, err := b.Get(ctx, "a", 0, -1)
			done <- err
		}()
		<-entered
	}
	cancel()
	for range maxLeft {
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	if err := b.PutIfAbsent(t.Context(), "b", 0, strings.NewReader("")); !errors.Is(err, base.ErrNetwork) || bucket.ClassOf(err) != bucket.ClassRetryable {
		t.Errorf("with %d calls left: %v", maxLeft, err)
	}
	close(release)
	b.held.settled(t)
	if err := b.PutIfAbsent(t.Context(), "b", 0, strings.NewReader("")); err != nil {
		t.Error(err)
	}
}

// TestLeftCallGivesBack drops what comes when nobody waits any more.
func TestLeftCallGivesBack(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var h held
	var dropped atomic.Int32
	release, gone := make(chan struct{}), make(chan struct{})
	_, err := await(ctx, &h, func() (int, error) { <-release; return 7, nil }, func(n int) { dropped.Store(int32(n)); close(gone) })
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	close(release)
	if <-gone; dropped.Load() != 7 {
		t.Errorf("dropped %d", dropped.Load())
	}
}
