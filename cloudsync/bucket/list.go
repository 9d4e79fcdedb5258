package bucket

import (
	"context"
	"fmt"
	"io"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/ledgerd/ledger/internal/base"
)

const (
	// MaxListed bounds one listing, in which each object counts infoBytes and its name: some 150
	// 000 packs, which have 2 TiB.
	MaxListed = 32 << 20
	infoBytes = 128
)

// Walk proves that a listing advances and ends, whatever a store answers.
type Walk struct {
	// Prefix is the prefix of all names, and After what each must exceed. Next moves After, and the
	// caller may too.
	Prefix, After string
	bytes         int
}

// Next takes the next object. The error matches base.ErrCorrupt for a name that does not follow
// After or lacks Prefix, and beyond MaxListed.
func (w *Walk) Next(info Info) error {
	w.bytes += infoBytes + len(info.Name)
	if info.Name <= w.After || !strings.HasPrefix(info.Name, w.Prefix) || w.bytes > MaxListed {
		return &base.CorruptError{Where: "list", Key: w.Prefix, Want: fmt.Sprintf("names in order, at most %d bytes of them", MaxListed), Got: info.Name}
	}
	w.After = info.Name
	return nil
}

// Each calls fn with the objects of b whose names begin with prefix and are greater than after, in
// order, until fn returns false. Errors: as Walk.Next, after the objects before; those of b.
func Each(ctx context.Context, b Bucket, after, prefix string, fn func(Info) bool) error {
	w := Walk{Prefix: prefix, After: after}
	for {
		infos, err := b.List(ctx, w.After, prefix, MaxList)
		if err != nil {
			return err
		}
		for _, info := range infos {
			if err := w.Next(info); err != nil {
				return err
			}
			if !fn(info) {
				return nil
			}
		}
		if len(infos) < MaxList {
			return nil
		}
	}
}

// Read returns the content of an object of at most limit bytes, and the Object, whose Body is
// closed. Errors: *base.CorruptError for a longer one; as Bucket.Get.
func Read(ctx context.Context, b Bucket, name string, limit int64) ([]byte, Object, error) {
	return ReadRange(ctx, b, name, 0, -1, limit, nil)
}

// ReadRange is Read for n bytes from off on, or fewer if the object ends earlier; a negative n
// means all up to the end. The content is in buf if that is large enough.
func ReadRange(ctx context.Context, b Bucket, name string, off, n, limit int64, buf []byte) ([]byte, Object, error) {
	o, err := b.Get(ctx, name, off, n)
	if err != nil {
		return nil, o, err
	}
	defer o.Body.Close()
	if o.Size < off || o.Size > limit {
		return nil, o, &base.CorruptError{Where: "bucket", Key: name, Want: fmt.Sprintf("%d to %d bytes", off, limit), Got: fmt.Sprint(o.Size)}
	}
	if n < 0 || n > o.Size-off {
		n = o.Size - off
	}
	if int64(cap(buf)) < n {
		buf = make([]byte, n)
	}
	buf = buf[:n]
	if _, err := io.ReadFull(o.Body, buf); err != nil { // also a body that ends early: it was cut in transit
		return nil, o, NewError(ctx, OpGet, name, false, err)
	}
	return buf, o, nil
}

// InParallel calls fn with 0 to n-1, at most most calls at a time, and waits for all. It returns
// the first error. After an error no other call begins, and the context of the running calls ends.
func InParallel(ctx context.Context, most, n int, fn func(ctx context.Context, i int) error) error {
	g, within := errgroup.WithContext(ctx)
	g.SetLimit(most)
	for i := 0; i < n && within.Err() == nil; i++ {
		g.Go(func() error {
			if within.Err() != nil {
				return nil
			}
			return fn(within, i)
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	return context.Cause(ctx)
}
