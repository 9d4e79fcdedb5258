package wire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"

	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/internal/base"
)

// Stream is a kind of stream. It determines the records that the stream may have.
type Stream struct {
	name string
	// first is the type of its first record, 0 for any.
	first byte
	tags  []byte
}

// Body is the content of an entry.
var Body = Stream{"body of a log entry", tagSize,
	[]byte{tagSize, tagGone, tagPack, tagPiece, tagMissing, tagCommit, tagExplanation, tagTag, tagRetention}}

// Checkpoint is the state with which an epoch begins.
var Checkpoint = Stream{"checkpoint", tagBase, []byte{tagBase, tagRun, tagSnapshot, tagTag, tagRetention}}

// RunOf is a run of a checkpoint.
func RunOf(k RunKind) Stream { return Stream{"run of a checkpoint", byte(k), []byte{byte(k)}} }

// order verifies the order of records.
type order struct {
	s      Stream
	last   Record
	commit *Commit // the last one
}

// next returns an error if r must not follow.
func (o *order) next(r Record) error {
	t := r.tag()
	if !slices.Contains(o.s.tags, t) {
		return fmt.Errorf("a record of type %d does not belong there", t)
	}
	if err := o.follows(r, t); err != nil {
		return err
	}
	o.last = r
	if c, ok := r.(*Commit); ok {
		o.commit = c
	}
	return nil
}

func (o *order) follows(r Record, t byte) error {
	if o.last == nil {
		if o.s.first != t {
			return fmt.Errorf("it begins with a record of type %d", t)
		}
		return nil
	}
	l := o.last.tag()
	c, afterCommit := o.last.(*Commit)
	switch {
	case t == tagExplanation && (!afterCommit || len(c.Commit.Parents) < 2):
		return errors.New("an explanation is not behind a merge")
	case l == tagExplanation && t == tagCommit && r.compare(o.commit) > 0, l < t:
	case l > t || r.compare(o.last) <= 0:
		return fmt.Errorf("a record of type %d is out of order, or there twice", t)
	}
	return nil
}

// Writer writes a stream. A Writer serves one goroutine.
type Writer struct {
	w     io.Writer
	order order
	buf   []byte
	n     uint64
	err   error
	parts []seal.Part
}

// NewWriter returns a Writer of the records of s. Each record is one call of w.
func NewWriter(w io.Writer, s Stream) *Writer { return &Writer{w: w, order: order{s: s}} }

// Parts returns how a stream in memory is to be sealed: each record written by WriteCompressed is a
// part by itself, and so are the others between two of them.
func (w *Writer) Parts() []seal.Part { return w.parts }

// WriteCompressed is Write for a record that may be compressed.
func (w *Writer) WriteCompressed(r Record) error { return w.writePart(r, true) }

// Write adds a record, and retains it until the next one is added. It sets At of a Piece. Errors:
// base.ErrInvalid, also for a record out of order; base.ErrTooLarge; those of the underlying
// writer. They are sticky.
func (w *Writer) Write(r Record) error { return w.writePart(r, false) }

func (w *Writer) writePart(r Record, compress bool) error {
	if w.err != nil {
		return w.err
	}
	if w.err = w.write(r); w.err != nil {
		w.err = fmt.Errorf("write %s: %w", w.order.s.name, w.err)
		return w.err
	}
	if last := len(w.parts) - 1; last >= 0 && !compress && !w.parts[last].Compress {
		w.parts[last].To = int(w.n)
	} else {
		w.parts = append(w.parts, seal.Part{To: int(w.n), Compress: compress})
	}
	return nil
}

func (w *Writer) write(r Record) error {
	fields := &coder{where: "record", before: w.order.commit}
	if r.code(fields); fields.err != nil {
		return fields.err
	}
	if err := w.order.next(r); err != nil {
		return invalid("record", err)
	}
	if len(fields.b) > MaxRecordBytes {
		return fmt.Errorf("record of %d bytes, at most %d: %w", len(fields.b), MaxRecordBytes, base.ErrTooLarge)
	}
	w.buf = w.buf[:0]
	if w.n == 0 {
		w.buf = append(w.buf, version)
	}
	w.buf = appendSized(append(w.buf, r.tag()), fields.b)
	if p, ok := r.(*Piece); ok {
		p.At = w.n + uint64(len(w.buf)-len(p.Content))
	}
	n, err := w.w.Write(w.buf)
	w.n += uint64(n)
	return err
}

// Reader reads a stream. A Reader serves one goroutine.
type Reader struct {
	r     *bufio.Reader
	order order
	n     uint64
	count int
	err   error
}

// NewReader returns a Reader of r, to its end. It reads ahead.
func NewReader(r io.Reader, s Stream) *Reader {
	return &Reader{r: bufio.NewReader(r), order: order{s: s}}
}

// Next returns the next record, which the caller owns, and io.EOF after the last one. Other errors:
// *base.CorruptError, *base.FormatError, those of the underlying reader. They are sticky.
func (r *Reader) Next() (Record, error) {
	if r.err != nil {
		return nil, r.err
	}
	rec, err := r.next()
	if r.err = err; err != nil {
		return nil, err
	}
	r.count++
	return rec, nil
}

// All yields the records that are left. The last pair has the error, if there is one: see Next.
func (r *Reader) All() iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for {
			rec, err := r.Next()
			if err == io.EOF || !yield(rec, err) || err != nil {
				return
			}
		}
	}
}

func (r *Reader) next() (Record, error) {
	if r.n == 0 {
		v, err := r.readByte()
		if err != nil {
			return nil, r.cut(err)
		}
		if err := checkVersion(r.order.s.name, v); err != nil {
			return nil, err
		}
	}
	tag, err := r.readByte()
	if errors.Is(err, io.EOF) {
		if least := r.order.s.least(); r.count < least {
			return nil, r.corrupt(fmt.Errorf("%d records, at least %d", r.count, least))
		}
		return nil, io.EOF
	}
	if err != nil {
		return nil, err
	}
	if int(tag) >= len(newRecords) || newRecords[tag] == nil {
		return nil, r.corrupt(fmt.Errorf("a record of type %d", tag))
	}
	rec := newRecords[tag]()
	fields, err := r.fields()
	if err != nil {
		return nil, err
	}
	c := &coder{where: r.order.s.name, b: fields, reading: true, before: r.order.commit}
	rec.code(c)
	if err := c.end(); err != nil {
		return nil, err
	}
	if err := r.order.next(rec); err != nil {
		return nil, r.corrupt(err)
	}
	if p, ok := rec.(*Piece); ok {
		p.At = r.n - uint64(len(p.Content))
	}
	return rec, nil
}

// least returns the least number of records of a stream: a body changes something.
func (s Stream) least() int {
	if s.first == tagSize {
		return 2
	}
	return 1
}

// fields reads the length of a record, and as many bytes.
func (r *Reader) fields() ([]byte, error) {
	var short [binary.MaxVarintLen64]byte
	for n := 0; n < 4; n++ {
		b, err := r.readByte()
		if err != nil {
			return nil, r.cut(err)
		}
		if short[n] = b; b >= 0x80 {
			continue
		}
		size, _ := binary.Uvarint(short[:n+1])
		if n > 0 && b == 0 || size > MaxRecordBytes {
			break
		}
		fields := make([]byte, size)
		got, err := io.ReadFull(r.r, fields)
		r.n += uint64(got)
		if err != nil {
			return nil, r.cut(err)
		}
		return fields, nil
	}
	return nil, r.corrupt(errors.New("length of a record is none, or beyond its bound"))
}

func (r *Reader) readByte() (byte, error) {
	b, err := r.r.ReadByte()
	if err == nil {
		r.n++
	}
	return b, err
}

// cut returns the error for a stream that ends too early, or any other err itself.
func (r *Reader) cut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return r.corrupt(errors.New("it ends within a record"))
	}
	return err
}

func (r *Reader) corrupt(err error) error { return corrupt(r.order.s.name, err) }
