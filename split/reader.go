package split

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
)

// Reader reads an object from its pieces. It implements io.ReaderAt, io.ReadSeeker, io.WriterTo and io.Closer.
//
// A read touches the pieces that hold what is asked for, and the index pieces above them; it holds one piece of each
// level of the object at a time, whatever the size of the object. Every piece is checked against the index piece that
// lists it: a piece that is not what it must be gives a *base.CorruptError that names it. Other errors: those of the
// source and of the context, wrapped; base.ErrClosed after Close; *base.FormatError.
//
// ReadAt, Size and Close may be called concurrently with all methods; Read, Seek and WriteTo share a position and are
// for one goroutine at a time.
type Reader struct {
	ctx  context.Context // of the object: the io interfaces have no place for one
	src  Source
	root span
	pos  int64

	mu     sync.Mutex
	idle   *cursor // guarded by mu; nil while a read uses it
	closed bool    // guarded by mu
}

var (
	_ io.ReaderAt   = (*Reader)(nil)
	_ io.ReadSeeker = (*Reader)(nil)
	_ io.WriterTo   = (*Reader)(nil)
	_ io.Closer     = (*Reader)(nil)
)

// NewReader returns a reader of the object with the given root piece and size in bytes. ctx governs all its reads.
// It reads nothing yet.
func NewReader(ctx context.Context, src Source, root object.Digest, size uint64) *Reader {
	return &Reader{ctx: ctx, src: src, root: span{root, size, true}, idle: new(cursor)}
}

// Size returns the size of the object in bytes, as it was given to NewReader.
func (r *Reader) Size() int64 { return int64(min(r.root.size, math.MaxInt64)) }

// acquire returns a cursor for one read.
func (r *Reader) acquire() (*cursor, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, fmt.Errorf("read object %s: %w", r.root.digest, base.ErrClosed)
	}
	if r.root.size > math.MaxInt64 {
		return nil, corrupt(r.root.digest, "at most 2^63-1 bytes of content", sizeText(r.root.size))
	}
	c := r.idle
	if c == nil {
		c = new(cursor)
	}
	r.idle = nil
	return c, nil
}

// release gives a cursor back, for the next read to begin with.
func (r *Reader) release(c *cursor) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed {
		r.idle = c
	}
}

// ReadAt implements io.ReaderAt. A negative offset gives base.ErrInvalid.
func (r *Reader) ReadAt(b []byte, offset int64) (n int, err error) {
	c, err := r.acquire()
	if err != nil {
		return 0, err
	}
	defer r.release(c)
	if offset < 0 {
		return 0, fmt.Errorf("read object at offset %d: %w", offset, base.ErrInvalid)
	}
	for n < len(b) {
		at := uint64(offset) + uint64(n)
		if at >= r.root.size {
			return n, io.EOF
		}
		part, err := c.at(r.ctx, r.src, r.root, at)
		if err != nil {
			return n, err
		}
		n += copy(b[n:], part)
	}
	return n, nil
}

// Read implements io.Reader. It fills b unless the object ends or an error occurs before.
func (r *Reader) Read(b []byte) (n int, err error) {
	n, err = r.ReadAt(b, r.pos)
	r.pos += int64(n)
	if n > 0 && err == io.EOF {
		err = nil
	}
	return n, err
}

// Seek implements io.Seeker. A position behind the end is allowed, one before the beginning gives base.ErrInvalid.
func (r *Reader) Seek(offset int64, whence int) (int64, error) {
	var from int64
	switch whence {
	case io.SeekStart:
	case io.SeekCurrent:
		from = r.pos
	case io.SeekEnd:
		from = r.Size()
	default:
		return 0, fmt.Errorf("seek in object with whence %d: %w", whence, base.ErrInvalid)
	}
	if offset > math.MaxInt64-from || from+offset < 0 {
		return 0, fmt.Errorf("seek in object from %d by %d: %w", from, offset, base.ErrInvalid)
	}
	r.pos = from + offset
	return r.pos, nil
}

// WriteTo implements io.WriterTo: it writes all from the position of Read on, chunk by chunk, without copying.
func (r *Reader) WriteTo(w io.Writer) (n int64, err error) {
	c, err := r.acquire()
	if err != nil {
		return 0, err
	}
	defer r.release(c)
	if r.root.size == 0 {
		_, err := c.at(r.ctx, r.src, r.root, 0) // so that a root that is not the empty chunk is found out
		return 0, err
	}
	for uint64(r.pos) < r.root.size {
		part, err := c.at(r.ctx, r.src, r.root, uint64(r.pos))
		if err != nil {
			return n, err
		}
		m, err := w.Write(part)
		if m < 0 || m > len(part) || m < len(part) && err == nil {
			m, err = min(max(m, 0), len(part)), errors.Join(err, io.ErrShortWrite)
		}
		n += int64(m)
		r.pos += int64(m)
		if err != nil {
			return n, fmt.Errorf("write object at byte %d: %w", r.pos, err)
		}
	}
	return n, nil
}

// Close makes all further reads fail with base.ErrClosed. Reads under way go on. It returns nil, also when it is called
// again.
func (r *Reader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed, r.idle = true, nil
	return nil
}
