package ledger_test

import (
	"context"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
	"github.com/ledgerd/ledger/cloudsync/bucket"
)

// TestStoreThatNeverAnswers connects with a store that takes requests and answers none, or whose
// opening does not end: each call ends by itself after a while, and with the caller's context
// before.
func TestStoreThatNeverAnswers(t *testing.T) {
	w := newCloudWorld(t)
	syncAll(t, w.device(w.options())) // what all bubbles share is made outside of them
	calls := map[string]func(ctx context.Context, t *testing.T, o *ledger.Options) error{
		"set": func(ctx context.Context, t *testing.T, o *ledger.Options) error {
			r, err := ledger.Open(t.Context(), "", o)
			must(t, err)
			_, err = r.SetCloud(ctx, w.cloud())
			return errors.Join(err, r.Close())
		},
		"clone": func(ctx context.Context, t *testing.T, o *ledger.Options) error {
			r, err := ledger.Clone(ctx, filepath.Join(t.TempDir(), "clone"), o, w.cloud())
			if err == nil {
				_, err = r.Sync(ctx)
				err = errors.Join(err, r.Close())
			}
			return err
		},
		"probe": func(ctx context.Context, _ *testing.T, o *ledger.Options) error {
			_, err := admin.ProbeCloud(ctx, "mem:x", "", o)
			return err
		},
		"sync": func(ctx context.Context, t *testing.T, o *ledger.Options) error {
			now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
			o.Now = func() time.Time { return now } // an app's own clock has no say in this
			good := w.options()
			open := o.Buckets["mem"]
			var late atomic.Bool
			o.Buckets["mem"] = func(ctx context.Context, url string, oo bucket.OpenOptions) (bucket.Bucket, error) {
				if late.Load() {
					return open(ctx, url, oo)
				}
				return good.Buckets["mem"](ctx, url, oo)
			}
			r, err := ledger.Open(t.Context(), "", o)
			must(t, err)
			_, err = r.SetCloud(t.Context(), w.cloud())
			must(t, err)
			late.Store(true)
			_, err = r.Sync(ctx)
			return errors.Join(err, r.Close())
		},
	}
	var stalled atomic.Bool
	stalled.Store(true)
	for what, opener := range map[string]bucket.Opener{
		"answers": func(context.Context, string, bucket.OpenOptions) (bucket.Bucket, error) {
			return deafBucket{w.bucket, &stalled}, nil
		},
		"opening": func(ctx context.Context, _ string, _ bucket.OpenOptions) (bucket.Bucket, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
	} {
		for name, call := range calls {
			t.Run(name+" without "+what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					o := w.options()
					o.Buckets["mem"] = opener
					begun := time.Now()
					if err := call(t.Context(), t, o); !errors.Is(err, ledger.ErrNetwork) {
						t.Errorf("%v", err)
					}
					if took := time.Since(begun); took < 30*time.Second || took > 20*time.Minute {
						t.Errorf("it took %v", took)
					}
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					begun = time.Now()
					if err := call(ctx, t, o); !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("whose caller leaves: %v", err)
					}
					if took := time.Since(begun); took > 5*time.Second {
						t.Errorf("it took %v until the caller could leave", took)
					}
				})
			})
		}
	}
}
