package pack

import (
	"context"

	"golang.org/x/sync/semaphore"
)

// budget bounds memory that several readers share: a reader that needs more waits, in order, until
// others release some.
type budget struct {
	limit int64
	free  *semaphore.Weighted
}

func newBudget(limit int64) budget { return budget{limit, semaphore.NewWeighted(limit)} }

// take waits for n bytes, or for the whole budget if n is more, and returns the function that
// releases them. The error is that of ctx.
func (b *budget) take(ctx context.Context, n int64) (release func(), err error) {
	n = min(n, b.limit)
	if err := b.free.Acquire(ctx, n); err != nil {
		return nil, context.Cause(ctx)
	}
	return func() { b.free.Release(n) }, nil
}
