package cloudsync

import (
	"context"
	"io"

	"github.com/ledgerd/ledger/cloudsync/bucket"
)

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
