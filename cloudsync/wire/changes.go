package wire

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"

	"github.com/ledgerd/ledger/btree"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/object"
)

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

// change codes a change. Slices that are read borrow the input.
func (c *coder) change(x *btree.Change) {
	e := &x.Entry
	kind := uint64(changeInline)
	switch {
	case x.Delete:
		kind = changeRemoved
	case !e.Inline:
		kind = changeEager + uint64(e.Priority)
	}
	c.refuse(kind > changeLazy, "a value with %s", e.Priority)
	v := uint64(len(e.Key))<<2 | kind
	if c.number(&v, "length of a key", 0, limits.MaxKeyBytes<<2|3); c.reading {
		*x = btree.Change{Delete: v&3 == changeRemoved, Entry: fb.Entry{Key: c.bytes(v >> 2), Inline: v&3 == changeInline}}
	} else {
		c.b = append(c.b, e.Key...)
	}
	switch v & 3 {
	case changeInline:
		if c.sized(&e.Value, "length of an inline value", 0, MaxInlineBytes); c.reading {
			e.Size = uint64(len(e.Value))
		}
	case changeEager, changeLazy:
		if c.reading {
			e.Priority = object.Priority(v&3 - changeEager)
		}
		c.digest(&e.Digest)
		c.number(&e.Size, "size of a value", 1, math.MaxInt64)
		if !isValue(e.Digest) {
			c.failf("value %s is no chunk and no index", e.Digest.Short())
		}
	}
}

// AppendChange appends the encoding of x to b. The caller ensures that keys ascend. Errors:
// base.ErrInvalid.
func AppendChange(b []byte, x *btree.Change) ([]byte, error) {
	c := &coder{where: "change", b: b}
	c.change(x)
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
func (w *ChangeWriter) Write(c *btree.Change) error {
	if w.err != nil {
		return w.err
	}
	if w.begun && bytes.Compare(w.last, c.Entry.Key) >= 0 {
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
	w.begun, w.last = true, append(w.last[:0], c.Entry.Key...)
	return nil
}

// Bytes returns how many bytes were passed to the underlying writer.
func (w *ChangeWriter) Bytes() int64 { return w.n }

// changeReader reads the changes of a diff.
type changeReader struct {
	in    *io.LimitedReader
	b     *bufio.Reader // of in
	begun bool
	last  []byte
	c     btree.Change
}

// heldBytes is how much ReadChanges reads ahead.
const heldBytes = 64 << 10

// ReadChanges yields the changes of a diff, which has limit bytes of r, and reads no further. A
// change is valid until the next one is requested. Keys that do not ascend, and non-canonical
// bytes, give a *base.CorruptError. Other errors are those of r. It holds at most 64 KiB.
func ReadChanges(r io.Reader, limit uint64) iter.Seq2[btree.Change, error] {
	return func(yield func(btree.Change, error) bool) {
		in := &io.LimitedReader{R: r, N: int64(limit)}
		c := changeReader{in: in, b: bufio.NewReaderSize(in, int(min(limit, heldBytes)))}
		for {
			err := c.next()
			if err == io.EOF || !yield(c.c, err) || err != nil {
				return
			}
		}
	}
}

// next reads the next change, or returns io.EOF at the end.
func (r *changeReader) next() error {
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
	c.change(&r.c)
	key := r.c.Entry.Key
	if c.refuse(r.begun && bytes.Compare(r.last, key) >= 0, "keys do not ascend"); c.err != nil {
		return c.err
	}
	r.begun, r.last = true, append(r.last[:0], key...)
	_, err = r.b.Discard(len(b) - len(c.b)) // the bytes stay until more are read
	return err
}
