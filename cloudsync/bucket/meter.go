package bucket

import (
	"context"
	"io"
	"sync/atomic"
)

// Counts are counts of requests and bytes.
type Counts struct {
	// A counts requests of class A: puts and lists.
	A int64
	// B counts requests of class B: gets.
	B int64
	// Free counts requests that cost nothing: deletes.
	Free int64
	// Up is the number of bytes of content sent, including refused and failed puts.
	Up int64
	// Down is the number of bytes of bodies read.
	Down int64
}

// Meter is a Bucket that counts the requests to another. It counts failed requests, and also
// refused arguments, though these are never sent. It stands below a Retry, so that every try
// counts.
type Meter struct {
	Layer
	a, get, free, up, dn atomic.Int64
}

// NewMeter returns a Meter in front of b.
func NewMeter(b Bucket) *Meter {
	m := &Meter{}
	m.Layer = Layer{b, func(ctx context.Context, op Op, _ string, call func(context.Context, Bucket) error) error {
		switch op {
		case OpGet:
			m.get.Add(1)
		case OpDelete:
			m.free.Add(1)
		default:
			m.a.Add(1)
		}
		return call(ctx, b)
	}}
	return m
}

// Counts returns the counts so far. Each number is exact, but with calls in flight they are not of
// one moment.
func (m *Meter) Counts() Counts {
	return Counts{A: m.a.Load(), B: m.get.Load(), Free: m.free.Load(), Up: m.up.Load(), Down: m.dn.Load()}
}

// PutIfAbsent implements Bucket.
func (m *Meter) PutIfAbsent(ctx context.Context, name string, size int64, content io.Reader) error {
	return m.Layer.PutIfAbsent(ctx, name, size, &countingReader{content, &m.up, size})
}

// Get implements Bucket.
func (m *Meter) Get(ctx context.Context, name string, off, n int64) (Object, error) {
	o, err := m.Layer.Get(ctx, name, off, n)
	if err == nil {
		o.Body = &countingBody{o.Body, &m.dn}
	}
	return o, err
}

// countingReader counts the bytes read, without those beyond size.
type countingReader struct {
	r     io.Reader
	total *atomic.Int64
	left  int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	counted := min(int64(n), c.left)
	c.left -= counted
	c.total.Add(counted)
	return n, err
}

type countingBody struct {
	io.ReadCloser
	total *atomic.Int64
}

func (c *countingBody) Read(p []byte) (int, error) {
	n, err := c.ReadCloser.Read(p)
	c.total.Add(int64(n))
	return n, err
}
