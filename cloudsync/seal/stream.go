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

// Stream reads blocks of a framed object from front to back: those of a whole object that has no
// table, or of a part of an object. It takes the memory of a block and some frames. It must not be
// used concurrently.
//
// Each block is proved before it is returned. Only io.EOF proves that a whole object has no more
// and no fewer blocks. A caller that acts on a part must be able to undo that.
type Stream struct {
	r      *bufio.Reader
	o      *object
	plain  int64  // length of the stream of the whole object
	number int64  // of the next frame
	skip   int64  // bytes of the stream to skip before the first block
	left   int64  // bytes of the stream after them that are not opened yet
	whole  bool   // the blocks are all of the object's
	frame  []byte // memory of a frame
	memory []byte // memory of open
	open   []byte // of the stream, opened and not consumed yet
	at     int64  // offset of open in the stream
	rest   []byte // of the present block, for Read
	named  *Sum   // nil if no hash is known
	hash   hash.Hash
	err    error // sticky
}

// NewStream reads the header of the framed object l, of size bytes, from r, and returns a Stream of
// all its blocks. named is the hash of the object according to the object that names it, so that a
// holder of the keys cannot replace the object. It is retained; nil if there is none. Errors: as
// NewReader.
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

// NewPart returns a Stream of the blocks that fill n bytes, from off on, of the stream of an
// object. l and ref identify the object, which has size bytes. r begins with frame number first of
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

// Next returns the plaintext of the next block, which the caller owns. After the last block of a
// whole object it reads the rest, and returns io.EOF if that is as it was sealed. Errors: as
// NewReader; they are sticky.
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

// want opens frames until n bytes of the stream are open.
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

// pass skips n bytes.
func (s *Stream) pass(n int) { s.open, s.at = s.open[n:], s.at+int64(n) }

// more opens a frame, and proves the trailer after the last one of a whole object.
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

// finish proves the bytes after the blocks, and returns io.EOF.
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
	if s.named == nil { // with a hash, all was read up to the end
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

// broken returns the error of a read that got some bytes. io.EOF means that the object is cut off
// and damaged. Any other error of the underlying reader, also io.ErrUnexpectedEOF, means that the
// read was interrupted.
func (s *Stream) broken(err error, got int) error {
	if errors.Is(err, io.EOF) {
		return s.o.label.corrupt("more", fmt.Sprintf("the end after %d bytes", got), nil)
	}
	return fmt.Errorf("read sealed %s %s: %w", s.o.label.Role, printable(s.o.label.Name), err)
}
