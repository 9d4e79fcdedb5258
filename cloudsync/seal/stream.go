package seal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Stream reads a framed object from front to end, with the memory of one frame and the table. It may not be used concurrently.
//
// Each frame is proved before it is given out; that there are no more and no fewer is proved when io.EOF comes, and
// not before: who acts on a part must be able to take it back.
type Stream struct {
	r      io.Reader
	o      *object
	frames []Frame
	at     int64
	table  []byte
	rest   []byte // of the present frame, for Read
	buf    []byte
	err    error // sticks
}

// NewStream reads the header of the framed object that l says from r, and returns a Stream of it. Errors: as NewReader.
func (s *Sealer) NewStream(r io.Reader, l Label) (*Stream, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	st := &Stream{r: r, o: &object{label: l}}
	b, err := st.take(headerBytes)
	if err != nil {
		return nil, err
	}
	if st.o, err = s.openObject(l, b, shapeFramed); err != nil {
		return nil, err
	}
	return st, nil
}

// Ref returns the object's id and key index.
func (s *Stream) Ref() Ref { return Ref{ID: s.o.id, KeyIndex: s.o.index} }

// Table returns what Writer.SetTable was given, once Next or Read has returned io.EOF; before, nil.
func (s *Stream) Table() []byte { return s.table }

// Next returns the plaintext of the next frame, which is the caller's. After the last one it reads the table of contents and
// whatever is behind, and returns io.EOF if all is as it was sealed. Errors: as NewReader; they stick.
func (s *Stream) Next() ([]byte, error) {
	if s.err != nil {
		return nil, s.err
	}
	plain, err := s.next()
	s.err = err
	return plain, err
}

func (s *Stream) next() ([]byte, error) {
	if s.buf != nil { // the last frame has been given out
		return nil, s.finish()
	}
	if len(s.frames) == MaxFrames {
		return nil, s.o.label.corrupt("", fmt.Sprintf("more than %d frames", MaxFrames), nil)
	}
	record, err := s.record(recordHead + maxContent + tagBytes)
	if err != nil {
		return nil, err
	}
	plain, err := s.o.openRecord(record[recordHead:recordHead], uint64(len(s.frames)), record, MaxFrameBytes, kindFrame, kindLast)
	if err != nil {
		return nil, fmt.Errorf("open frame %d: %w", len(s.frames), err)
	}
	s.frames = append(s.frames, Frame{Offset: s.at - int64(len(record)), SealedBytes: len(record), PlainBytes: len(plain)})
	if record[0] == kindLast {
		s.buf = record
	}
	return plain, nil
}

// finish compares the end of the object with what was read, and returns io.EOF.
func (s *Stream) finish() error {
	end := s.at
	record, err := s.record(recordHead + maxTableContent + tagBytes)
	if err != nil {
		return err
	}
	rd := &Reader{o: s.o}
	if err := rd.parse(record, end); err != nil {
		return err
	}
	for i, f := range rd.frames { // that they are no fewer follows from their end, which parse has compared
		if i >= len(s.frames) || f != s.frames[i] {
			return s.o.label.corrupt("", "table of contents that lists other frames", nil)
		}
	}
	trailer, err := s.take(trailerBytes)
	if err != nil {
		return err
	}
	want := binary.BigEndian.AppendUint32(bytes.Clone(s.o.header()), uint32(len(record)))
	if !bytes.Equal(trailer, want) {
		return s.o.label.corrupt("", "trailer differs", nil)
	}
	if n, err := io.ReadFull(s.r, make([]byte, 1)); n != 0 {
		return s.o.label.corrupt("", "bytes behind the end", nil)
	} else if !errors.Is(err, io.EOF) {
		return fmt.Errorf("read end of sealed %s %s: %w", s.o.label.Role, printable(s.o.label.Name), err)
	}
	s.table = rd.table
	return io.EOF
}

// Read implements io.Reader over the frames. Errors: as Next.
func (s *Stream) Read(p []byte) (int, error) {
	for len(s.rest) == 0 && len(p) > 0 {
		rest, err := s.Next()
		if err != nil {
			return 0, err
		}
		s.rest = rest
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

// record reads one record of at most limit bytes.
func (s *Stream) record(limit int) ([]byte, error) {
	head, err := s.take(recordHead)
	if err != nil {
		return nil, err
	}
	_, n := parseRecordHead(head)
	if n > limit {
		return nil, s.o.label.corrupt(fmt.Sprintf("a record of at most %d bytes", limit), fmt.Sprint(n), nil)
	}
	b := make([]byte, n)
	copy(b, head)
	return b, s.fill(b[recordHead:])
}

// take reads n bytes.
func (s *Stream) take(n int) ([]byte, error) {
	b := make([]byte, n)
	return b, s.fill(b)
}

// fill reads len(b) bytes. An object that ends before is damaged; any other error of the reader below, also
// io.ErrUnexpectedEOF, says that the reading broke off.
func (s *Stream) fill(b []byte) error {
	for got := 0; got < len(b); {
		n, err := s.r.Read(b[got:])
		got, s.at = got+n, s.at+int64(n)
		switch {
		case got == len(b):
		case errors.Is(err, io.EOF):
			return s.o.label.corrupt(fmt.Sprintf("%d bytes at %d", len(b), s.at-int64(got)), fmt.Sprintf("the end after %d", got), nil)
		case err != nil:
			return fmt.Errorf("read sealed %s %s: %w", s.o.label.Role, printable(s.o.label.Name), err)
		}
	}
	return nil
}
