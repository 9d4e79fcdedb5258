package bucket

import (
	"bytes"
	"io"
	"sync/atomic"
)

// Lender is content of a put that lies in memory, so that who stores it need not copy it. What of
// this package stands between the caller of a put and the store is a Lender where the content is
// one.
type Lender interface {
	io.Reader
	// Lend returns the next n bytes, or fewer at the end, and goes on behind them. They must not be
	// changed, and are lent until done is called, once, which may be after the put has returned: a
	// store may have left a call to a disk that does not answer. Without ok nothing was lent or
	// passed over, and the content is to be read.
	Lend(n int) (b []byte, done func(), ok bool)
}

// Lend is r's Lend if r is a Lender.
func Lend(r io.Reader, n int) (b []byte, done func(), ok bool) {
	if l, is := r.(Lender); is {
		return l.Lend(n)
	}
	return nil, nil, false
}

// Content is a Lender of bytes that can be put again and again.
type Content struct {
	*bytes.Reader
	b    []byte
	lent atomic.Int32
}

// NewContent returns a Content of b, which must not be changed while it is put, and while it is
// lent.
func NewContent(b []byte) *Content { return &Content{Reader: bytes.NewReader(b), b: b} }

// Lend implements Lender.
func (c *Content) Lend(n int) ([]byte, func(), bool) {
	at := len(c.b) - c.Len()
	end := at + min(n, c.Len())
	if _, err := c.Seek(int64(end), io.SeekStart); err != nil {
		return nil, nil, false
	}
	c.lent.Add(1)
	return c.b[at:end:end], func() { c.lent.Add(-1) }, true
}

// IsLent reports whether a store still has some of the bytes. After a put that nobody goes on with,
// it does not begin to have any.
func (c *Content) IsLent() bool { return c.lent.Load() > 0 }

// Lend implements Lender.
func (e *exactReader) Lend(n int) ([]byte, func(), bool) {
	if e.err != nil {
		return nil, nil, false
	}
	b, done, ok := Lend(e.r, int(min(int64(n), e.left)))
	e.left -= int64(len(b))
	return b, done, ok
}

// Lend implements Lender.
func (c *countingReader) Lend(n int) ([]byte, func(), bool) {
	b, done, ok := Lend(c.r, n)
	counted := min(int64(len(b)), c.left)
	c.left -= counted
	c.total.Add(counted)
	return b, done, ok
}

// Lend implements Lender.
func (c *givenContent) Lend(n int) ([]byte, func(), bool) {
	c.w.leave()
	defer c.w.enter()
	return Lend(c.r, n)
}
