package outgoing

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/ledgerd/ledger/cloudsync/bucket"
)

// parallelGets is how many objects are read at once.
const parallelGets = 8

// look returns the length of an object and its age by the bucket's clock; the age of one whose
// bucket does not say is greater than any.
func look(ctx context.Context, b bucket.Bucket, name string) (size int64, age time.Duration, err error) {
	o, err := b.Get(ctx, name, 0, 0)
	if err != nil {
		return 0, 0, err
	}
	if err := o.Body.Close(); err != nil {
		return 0, 0, err
	}
	age = math.MaxInt64
	if !o.ServerTime.IsZero() && !o.Created.IsZero() {
		age = o.ServerTime.Sub(o.Created)
	}
	return o.Size, age, nil
}

// each calls fn for 0 to n-1, several at a time, and returns the first error, after which no more
// are begun.
func each(ctx context.Context, n int, fn func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	slots := make(chan struct{}, parallelGets)
	for i := 0; i < n && ctx.Err() == nil; i++ {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if ctx.Err() == nil {
				if err := fn(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}
