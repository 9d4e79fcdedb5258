package seal

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
)

// Sum is the SHA-256 of all bytes of an object.
type Sum = [sha256.Size]byte

// Stream reads a framed object that has no table from front to end, with the memory of a block and
// some frames. It may not be used concurrently.
//
// Each block is proved before it is given out; that there are no more and no fewer is proved when
// io.EOF comes, and not before: who acts on a part must be able to take it back.
type Stream struct {
	r      *bufio.Reader
	o      *object
	number uint64
	last   bool   // the last frame has been read
	frame  []byte // memory of a frame
	memory []byte // memory of open
	open   []byte // of the stream, opened and not used yet
	at     int64  // where open begins in the stream
	rest   []byte // of the present block, for Read
	named  *Sum   // nil where nothing is known of it
	hash   hash.Hash
	err    error // sticks
}

// NewStream reads the header of the framed object that l says from r, and returns a Stream of it.
// named is what the object that names it says of it, so that who has the keys cannot put another
// one in its place. It is retained, and nil where nothing says it. Errors: as NewReader.
func (s *Sealer) NewStream(r io.Reader, l Label, named *Sum) (*Stream, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	var sum hash.Hash
	if named != nil {
		sum = sha256.New()
		r = io.TeeReader(r, sum)
	}
	// One byte more than a full frame and the trailer says that the frame is not the last one.
	st := &Stream{r: bufio.NewReaderSize(r, FrameBytes+headerBytes+1), o: &object{label: l}, named: named, hash: sum}
	head, err := st.r.Peek(headerBytes)
	if err != nil {
		return nil, st.broken(err, len(head))
	}
	if st.o, err = s.openObject(l, head, shapeFramed); err != nil {
		return nil, err
	}
	_, err = st.r.Discard(headerBytes)
	return st, err
}

// Ref returns the object's id and key index.
func (s *Stream) Ref() Ref { return Ref{ID: s.o.id, KeyIndex: s.o.index} }

// Next returns the plaintext of the next block, which is the caller's. After the last one it reads
// whatever is behind, and returns io.EOF if all is as it was sealed. Errors: as NewReader; they
// stick.
func (s *Stream) Next() ([]byte, error) {
	if s.err != nil {
		return nil, s.err
	}
	plain, err := s.next()
	s.err = err
	return plain, err
}

func (s *Stream) next() ([]byte, error) {
	if err := s.want(blockHead); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint32(s.open))
	if n == 0 {
		return nil, s.finish()
	}
	if n > 1+MaxBlockBytes {
		return nil, s.o.label.corrupt(fmt.Sprintf("a block of at most %d bytes", 1+MaxBlockBytes), fmt.Sprint(n), nil)
	}
	if err := s.want(blockHead + n); err != nil {
		return nil, err
	}
	block := append(make([]byte, 0, blockHead+n), s.open[:blockHead+n]...)
	s.pass(len(block))
	return OpenBlock(s.o.label, block)
}

// want opens frames until there are n bytes of the stream.
func (s *Stream) want(n int) error {
	for len(s.open) < n {
		if s.last {
			return s.o.label.corrupt("a block", "the end of the stream", nil)
		}
		if err := s.more(); err != nil {
			return err
		}
	}
	return nil
}

// pass goes on behind n bytes.
func (s *Stream) pass(n int) { s.open, s.at = s.open[n:], s.at+int64(n) }

// more opens a frame.
func (s *Stream) more() error {
	b, err := s.r.Peek(FrameBytes + headerBytes + 1)
	kind, n := byte(kindFrame), FrameBytes
	if err != nil {
		if !errors.Is(err, io.EOF) {
			return s.broken(err, len(b))
		}
		kind, n = kindLast, len(b)-headerBytes
		if n <= tagBytes || n > FrameBytes {
			return s.o.label.corrupt("a frame and a trailer", fmt.Sprintf("%d bytes at the end", len(b)), nil)
		}
		if string(b[n:]) != string(s.o.header()) {
			return s.o.label.corrupt("", "trailer differs", nil)
		}
		s.last = true
	}
	s.frame = append(s.frame[:0], b[:n]...)
	plain, err := s.o.openFrame(kind, s.number, s.frame)
	if err != nil {
		return err
	}
	s.number++
	if n := len(s.open) + len(plain); n > cap(s.open) {
		if cap(s.memory) < 2*n {
			s.memory = make([]byte, 0, 2*n)
		}
		s.open = append(s.memory[:0], s.open...)
	}
	s.open = append(s.open, plain...)
	if s.last {
		return nil
	}
	_, err = s.r.Discard(n)
	return err
}

// finish proves what stands behind the blocks, and returns io.EOF.
func (s *Stream) finish() error {
	padding := s.at + blockHead
	for {
		keep := footerBytes
		if !s.last {
			keep = 2 * footerBytes // more comes, of which nothing is known
		}
		if n := len(s.open) - keep; n > 0 {
			if !isZero(s.open[:n]) {
				return s.o.label.corrupt("", "padding that is not zero", nil)
			}
			s.pass(n)
		}
		if s.last {
			break
		}
		if err := s.more(); err != nil {
			return err
		}
	}
	if len(s.open) < footerBytes {
		return s.o.label.corrupt("a footer", "the end of the stream", nil)
	}
	plain := s.at + footerBytes
	f, err := s.o.parseFooter(s.open, plain)
	if err != nil {
		return err
	}
	if f.padding != padding || f.table != s.at {
		return s.o.label.corrupt("", "footer that differs from what is before it", nil)
	}
	if s.named == nil { // else all was read, up to the end
		return io.EOF
	}
	if got := Sum(s.hash.Sum(nil)); got != *s.named {
		return s.o.label.corrupt(fmt.Sprintf("the object with the hash %x", s.named[:8]), fmt.Sprintf("one with %x", got[:8]), nil)
	}
	return io.EOF
}

// Read implements io.Reader over the blocks. Errors: as Next.
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

// broken returns the error of a read that got some bytes. An object that ends before is damaged;
// any other error of the reader below, also io.ErrUnexpectedEOF, says that the reading broke off.
func (s *Stream) broken(err error, got int) error {
	if errors.Is(err, io.EOF) {
		return s.o.label.corrupt("more", fmt.Sprintf("the end after %d bytes", got), nil)
	}
	return fmt.Errorf("read sealed %s %s: %w", s.o.label.Role, printable(s.o.label.Name), err)
}
