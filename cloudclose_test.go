package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/mem"
)

// deafBucket answers nothing while it is stalled.
type deafBucket struct {
	bucket.Bucket
	stalled *atomic.Bool
}

func (b deafBucket) wait(ctx context.Context, op bucket.Op, name string) error {
	if !b.stalled.Load() {
		return nil
	}
	<-ctx.Done()
	return bucket.NewError(ctx, op, name, false, ctx.Err())
}

func (b deafBucket) Get(ctx context.Context, name string, off, n int64) (bucket.Object, error) {
	if err := b.wait(ctx, bucket.OpGet, name); err != nil {
		return bucket.Object{}, err
	}
	return b.Bucket.Get(ctx, name, off, n)
}

func (b deafBucket) PutIfAbsent(ctx context.Context, name string, size int64, content io.Reader) error {
	if err := b.wait(ctx, bucket.OpPut, name); err != nil {
		return err
	}
	return b.Bucket.PutIfAbsent(ctx, name, size, content)
}

// TestLeavingABucketThatHangs closes a repository with several pages that have something to tell to
// a bucket that does not answer any more, and unsets its cloud.
func TestLeavingABucketThatHangs(t *testing.T) {
	w := newCloudWorld(t)
	for name, leave := range map[string]func(ctx context.Context, r *ledger.Repository) error{
		"close": func(_ context.Context, r *ledger.Repository) error { return r.Close() },
		"unset": func(ctx context.Context, r *ledger.Repository) error { return errorOf(r.SetCloud(ctx, nil)) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var stalled atomic.Bool
				w := &cloudWorld{t: t, bucket: mem.New(mem.Options{}), key: w.key}
				w.wrap = func(b bucket.Bucket) bucket.Bucket { return deafBucket{b, &stalled} }
				r := w.device(w.options())
				for i := range 4 {
					put(t, page(t, r, "l", fmt.Sprint(i)), "k", "v")
				}
				syncAll(t, r)
				stalled.Store(true)
				begun := time.Now()
				must(t, leave(t.Context(), r))
				if took := time.Since(begun); took > 3*time.Second {
					t.Errorf("it took %s", took)
				}
			})
		})
	}
}

// TestSyncWhileTheCloudChanges has calls wait for a bucket while the cloud is set anew, and unset:
// the page is open, so they go on with what there is then.
func TestSyncWhileTheCloudChanges(t *testing.T) {
	w := newCloudWorld(t)
	var stalled atomic.Bool
	asked := make(chan struct{}, 1000)
	w.wrap = func(b bucket.Bucket) bucket.Bucket { return stalledBucket{b, &stalled, asked} }
	r := w.device(w.options())
	p := page(t, r, "l", "p")
	done := make(chan error, 1)
	begin := func(key string) {
		put(t, p, key, "v")
		stalled.Store(true)
		go func() { done <- p.Sync(t.Context()) }()
		<-asked
		stalled.Store(false)
	}
	begin("one")
	_, err := r.SetCloud(t.Context(), w.cloud())
	must(t, err)
	if err := <-done; err != nil || syncState(p).Unsynced != 0 {
		t.Errorf("sync while the cloud was set anew: %v, %+v", err, syncState(p))
	}
	must(t, errorOf(r.SetCloud(t.Context(), nil)))
	_, err = r.SetCloud(t.Context(), w.cloud())
	must(t, err)
	begin("two")
	must(t, errorOf(r.SetCloud(t.Context(), nil)))
	err = <-done
	wantErr(t, err, ledger.ErrNoCloud)
	if errors.Is(err, ledger.ErrClosed) {
		t.Errorf("the page is open: %v", err)
	}
}
