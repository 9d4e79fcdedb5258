package wire

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/object"
)

// Change is one change of a diff: a key that now has a value, or no longer has one.
type Change struct {
	Key     []byte
	Removed bool
	// Inline is the value itself if Object is zero, at most MaxInlineBytes. Its Size is 0 or
	// len(Inline) for a writer, and len(Inline) for a reader.
	Inline   []byte
	Object   object.Digest // root piece of the value, a chunk or an index
	Size     uint64
	Priority object.Priority
}

// MaxInlineBytes bounds an inline value in a diff. The tree checks the lower limit that the format
// of a page may have.
const MaxInlineBytes = 4096

// The layout of a change:
//
//	bytes   content
//	1..2    uvarint 4k + kind: k is the length of the key, 0 to limits.MaxKeyBytes; kind 0
//	        removed, 1 inline, 2 eager object, 3 lazy object
//	k       key, greater than the one before
//	        kind 1: length (uvarint, at most MaxInlineBytes) and value
//	        kind 2, 3: digest of the value's root piece (33), size (uvarint, 1 to 2^63-1)
const (
	changeRemoved = iota
	changeInline
	changeEager
	changeLazy

	// maxChangeBytes bounds a change: lengths of at most two bytes.
	maxChangeBytes = 2 + limits.MaxKeyBytes + 2 + MaxInlineBytes
)

const changesWhere = "diff"

// code codes a change. Slices that are read borrow the input.
func (x *Change) code(c *coder) {
	kind := uint64(changeInline)
	switch {
	case x.Removed:
		kind = changeRemoved
	case !x.Object.IsZero():
		kind = changeEager + uint64(x.Priority)
	}
	v := uint64(len(x.Key))<<2 | kind
	if c.number(&v, "length of a key", 0, limits.MaxKeyBytes<<2|3); c.reading {
		*x = Change{Key: c.bytes(v >> 2), Removed: v&3 == changeRemoved}
	} else {
		c.b = append(c.b, x.Key...)
	}
	switch v & 3 {
	case changeInline:
		if c.sized(&x.Inline, "length of an inline value", 0, MaxInlineBytes); c.reading {
			x.Size = uint64(len(x.Inline))
		}
	case changeEager, changeLazy:
		if c.reading {
			x.Priority = object.Priority(v&3 - changeEager)
		}
		c.digest(&x.Object)
		c.number(&x.Size, "size of a value", 1, math.MaxInt64)
		if !isValue(x.Object) {
			c.failf("value %s is no chunk and no index", x.Object.Short())
		}
	}
}

// fits reports whether the fields belong to one kind of change.
func (x *Change) fits() bool {
	switch {
	case x.Removed:
		return len(x.Inline) == 0 && x.Object.IsZero() && x.Size == 0 && x.Priority == object.Eager
	case x.Object.IsZero():
		return x.Priority == object.Eager && (x.Size == 0 || x.Size == uint64(len(x.Inline)))
	}
	return len(x.Inline) == 0 && x.Priority <= object.Lazy
}

// AppendChange appends the encoding of x to b. The caller ensures that keys ascend. Errors:
// base.ErrInvalid.
func AppendChange(b []byte, x *Change) ([]byte, error) {
	if !x.fits() {
		return b, invalid("change", errors.New("its fields are of several kinds"))
	}
	c := &coder{where: "change", b: b}
	x.code(c)
	return c.b, c.err
}

// ChangeWriter writes the changes of a diff, keys strictly ascending, to w. It buffers only one
// change.
type ChangeWriter struct {
	w       io.Writer
	n       int64
	begun   bool
	last    []byte // key of the last change
	scratch []byte
	err     error
}

// NewChangeWriter returns a writer of a diff. Each change becomes one call of w.
func NewChangeWriter(w io.Writer) *ChangeWriter { return &ChangeWriter{w: w} }

// Write adds a change, and retains nothing of it. Errors: base.ErrInvalid, also for a key that is
// not greater than the one before; those of the underlying writer. They are sticky.
func (w *ChangeWriter) Write(c *Change) error {
	if w.err != nil {
		return w.err
	}
	if w.begun && bytes.Compare(w.last, c.Key) >= 0 {
		w.err = invalid("change", errors.New("keys do not ascend"))
		return w.err
	}
	if w.scratch, w.err = AppendChange(w.scratch[:0], c); w.err != nil {
		return w.err
	}
	n, err := w.w.Write(w.scratch)
	if err == nil && n != len(w.scratch) {
		err = io.ErrShortWrite
	}
	if err != nil {
		w.err = fmt.Errorf("write change: %w", err)
		return w.err
	}
	w.n += int64(n)
	w.begun, w.last = true, append(w.last[:0], c.Key...)
	return nil
}

// Bytes returns how many bytes were passed to the underlying writer.
func (w *ChangeWriter) Bytes() int64 { return w.n }

// ChangeReader reads the changes of a diff until its end, limit bytes of r. Keys that do not
// ascend, and non-canonical bytes, give a *base.CorruptError. It holds at most 64 KiB.
type ChangeReader struct {
	in    *io.LimitedReader
	b     *bufio.Reader // of in
	begun bool
	last  []byte
	c     Change
	err   error
}

// heldBytes is how much a ChangeReader reads ahead.
const heldBytes = 64 << 10

// NewChangeReader reads a diff of limit bytes from r, and no further.
func NewChangeReader(r io.Reader, limit int64) *ChangeReader {
	in := &io.LimitedReader{R: r, N: limit}
	c := &ChangeReader{in: in, b: bufio.NewReaderSize(in, int(min(limit, heldBytes)))}
	if limit < 0 {
		c.err = corrupt(changesWhere, fmt.Errorf("%d bytes", limit))
	}
	return c
}

// ChangesOf reads the diff b.
func ChangesOf(b []byte) *ChangeReader { return NewChangeReader(bytes.NewReader(b), int64(len(b))) }

// Next returns the next change, valid until the next call, or io.EOF at the end. Errors:
// *base.CorruptError, those of the underlying reader. They are sticky.
func (r *ChangeReader) Next() (*Change, error) {
	if r.err == nil {
		r.err = r.next()
	}
	if r.err != nil {
		return nil, r.err
	}
	return &r.c, nil
}

func (r *ChangeReader) next() error {
	b, err := r.b.Peek(min(maxChangeBytes, r.b.Size()))
	switch {
	case err == io.EOF && r.in.N > 0, err == io.ErrUnexpectedEOF:
		return corrupt(changesWhere, errors.New("it ends early"))
	case err != nil && err != io.EOF:
		return fmt.Errorf("read %s: %w", changesWhere, err)
	case len(b) == 0:
		return io.EOF
	}
	c := &coder{where: changesWhere, b: b, reading: true}
	r.c.code(c)
	if c.refuse(r.begun && bytes.Compare(r.last, r.c.Key) >= 0, "keys do not ascend"); c.err != nil {
		return c.err
	}
	r.begun, r.last = true, append(r.last[:0], r.c.Key...)
	_, err = r.b.Discard(len(b) - len(c.b)) // the bytes stay until more are read
	return err
}
