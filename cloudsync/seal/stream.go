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

// Stream reads blocks of a framed object from front to back, with the memory of a block and some
// frames: those of a whole object that has no table, or those of a part of one. It may not be used
// concurrently.
//
// Each block is proved before it is given out. That a whole object has no more and no fewer is
// proved when io.EOF comes, and not before: a caller that acts on a part must be able to take it
// back.
type Stream struct {
	r      *bufio.Reader
	o      *object
	plain  int64  // length of the stream of the whole object
	number int64  // of the next frame
	skip   int64  // bytes of the stream before the first block that are still to come
	left   int64  // bytes of the stream behind them that are not opened yet
	whole  bool   // the blocks are all that the object has
	frame  []byte // memory of a frame
	memory []byte // memory of open
	open   []byte // of the stream, opened and not used yet
	at     int64  // where open begins in the stream
	rest   []byte // of the present block, for Read
	named  *Sum   // nil where nothing is known of it
	hash   hash.Hash
	err    error // sticks
}

// NewStream reads the header of the framed object that l says, of size bytes, from r, and returns a
// Stream of all its blocks. named is what the object that names it says of it, so that a holder of
// the keys cannot put another one in its place. It is retained, and nil where nothing says it.
// Errors: as NewReader.
func (s *Sealer) NewStream(r io.Reader, size int64, l Label, named *Sum) (*Stream, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	var sum hash.Hash
	if named != nil {
		sum = sha256.New()
		r = io.TeeReader(r, sum)
	}
	st := &Stream{r: newFrameReader(r), o: &object{label: l}, whole: true, named: named, hash: sum}
	head, err := st.r.Peek(headerBytes)
	if err != nil {
		return nil, st.broken(err, len(head))
	}
	if st.o, err = s.openObject(l, head, shapeFramed); err != nil {
		return nil, err
	}
	if st.plain = StreamBytes(size); st.plain == 0 {
		return nil, l.corrupt("the length of a framed object", fmt.Sprint(size), nil)
	}
	st.left = st.plain
	_, err = st.r.Discard(headerBytes)
	return st, err
}

// NewPart returns a Stream of some blocks of the framed object that l and ref say, which has size
// bytes: of those that fill n bytes of its stream, from off on. r begins with frame number first of
// the object: see Cover. Errors: as NewReader.
func (s *Sealer) NewPart(r io.Reader, size int64, l Label, ref Ref, first, off, n int64) (*Stream, error) {
	o, err := s.refObject(l, ref)
	if err != nil {
		return nil, err
	}
	st := &Stream{r: newFrameReader(r), o: o, plain: StreamBytes(size), number: first, skip: off - first*framePlain, left: n, at: off}
	if off < 0 || n < 0 || st.skip < 0 || n > st.plain || off > st.plain-n {
		return nil, l.corrupt(fmt.Sprintf("a stream with %d bytes from %d on", n, off), fmt.Sprint(st.plain), nil)
	}
	return st, nil
}

// newFrameReader returns r with room for a frame and a trailer.
func newFrameReader(r io.Reader) *bufio.Reader { return bufio.NewReaderSize(r, FrameBytes+headerBytes) }

// Next returns the plaintext of the next block, which is the caller's. Behind the last one of a
// whole object it reads what follows, and returns io.EOF if all is as it was sealed. Errors: as
// NewReader; they stick.
func (s *Stream) Next() ([]byte, error) {
	if s.err != nil {
		return nil, s.err
	}
	plain, err := s.next()
	s.err = err
	return plain, err
}

func (s *Stream) next() ([]byte, error) {
	if !s.whole && s.left+int64(len(s.open)) == 0 {
		return nil, io.EOF
	}
	if err := s.want(blockHead); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint32(s.open))
	if n == 0 && s.whole {
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
		if s.left == 0 {
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

// more opens a frame, and proves the trailer behind the last one of a whole object.
func (s *Stream) more() error {
	kind, n, behind := byte(kindFrame), FrameBytes, 0
	if s.number == (s.plain-1)/framePlain {
		if kind, n = kindLast, int(s.plain-s.number*framePlain)+tagBytes; s.whole {
			behind = headerBytes
		}
	}
	b, err := s.r.Peek(n + behind)
	if err != nil {
		return s.broken(err, len(b))
	}
	if behind > 0 && string(b[n:]) != string(s.o.header()) {
		return s.o.label.corrupt("", "trailer differs", nil)
	}
	s.frame = append(s.frame[:0], b[:n]...)
	plain, err := s.o.openFrame(kind, uint64(s.number), s.frame)
	if err != nil {
		return err
	}
	s.number++
	passed := min(s.skip, int64(len(plain)))
	s.skip -= passed
	plain = plain[passed:]
	plain = plain[:min(s.left, int64(len(plain)))]
	s.left -= int64(len(plain))
	if n := len(s.open) + len(plain); n > cap(s.open) {
		if cap(s.memory) < 2*n {
			s.memory = make([]byte, 0, 2*n)
		}
		s.open = append(s.memory[:0], s.open...)
	}
	s.open = append(s.open, plain...)
	_, err = s.r.Discard(n)
	return err
}

// finish proves what stands behind the blocks, and returns io.EOF.
func (s *Stream) finish() error {
	padding := s.at + blockHead
	for s.left > 0 || len(s.open) > footerBytes {
		if n := len(s.open) - int(max(0, footerBytes-s.left)); n > 0 {
			if !isZero(s.open[:n]) {
				return s.o.label.corrupt("", "padding that is not zero", nil)
			}
			s.pass(n)
		}
		if s.left > 0 {
			if err := s.more(); err != nil {
				return err
			}
		}
	}
	if len(s.open) < footerBytes {
		return s.o.label.corrupt("a footer", "the end of the stream", nil)
	}
	f, err := s.o.parseFooter(s.open, s.plain)
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
