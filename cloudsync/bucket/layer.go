package bucket

import (
	"context"
	"io"
)

// Layer is a Bucket in front of another one. Each call goes through Around, which gets the
// operation and a function that makes the call on a given Bucket. Errors are those of Around.
type Layer struct {
	Bucket
	Around func(ctx context.Context, op Op, name string, call func(context.Context, Bucket) error) error
}

// PutIfAbsent implements Bucket, as all methods do.
func (l *Layer) PutIfAbsent(ctx context.Context, name string, size int64, content io.Reader) error {
	return l.Around(ctx, OpPut, name, func(ctx context.Context, b Bucket) error { return b.PutIfAbsent(ctx, name, size, content) })
}

// Get implements Bucket.
func (l *Layer) Get(ctx context.Context, name string, off, n int64) (o Object, err error) {
	err = l.Around(ctx, OpGet, name, func(ctx context.Context, b Bucket) (err error) {
		o, err = b.Get(ctx, name, off, n)
		return err
	})
	return o, err
}

// List implements Bucket.
func (l *Layer) List(ctx context.Context, after, prefix string, limit int) (infos []Info, err error) {
	err = l.Around(ctx, OpList, prefix, func(ctx context.Context, b Bucket) (err error) {
		infos, err = b.List(ctx, after, prefix, limit)
		return err
	})
	return infos, err
}

// Delete implements Bucket.
func (l *Layer) Delete(ctx context.Context, name string) error {
	return l.Around(ctx, OpDelete, name, func(ctx context.Context, b Bucket) error { return b.Delete(ctx, name) })
}
