package seal

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
)

// Sum is the SHA-256 of all bytes of an object.
type Sum = [sha256.Size]byte

// Stream reads blocks of an object from front to back: those of a whole object, or of a part
// of an object. It takes the memory of a block and some frames. It must not be used concurrently.
//
// Each block is proved before it is returned. Only io.EOF proves that a whole object has no more
// and no fewer blocks. A caller that acts on a part must be able to undo that.
type Stream struct {
	r      *bufio.Reader
	o      *object
	plain  int64        // length of the stream of the whole object
	number int64        // of the next frame
	skip   int64        // bytes of the stream to skip before the first block
	left   int64        // bytes of the stream after them that are not opened yet
	whole  bool         // the blocks are all of the object's
	open   bytes.Buffer // of the stream, opened and not consumed yet
	at     int64        // offset of open in the stream
	rest   []byte       // of the present block, for Read
	named  *Sum         // nil if no hash is known
	hash   hash.Hash
	err    error // sticky
}

func newStream(r io.Reader, o *object, size int64) *Stream {
	return &Stream{r: bufio.NewReaderSize(r, FrameBytes), o: o, plain: StreamBytes(size)}
}

// NewStream reads the header of the object l, of size bytes, from r, and returns a Stream of
// all its blocks. named is the hash of the object according to the object that names it, so that a
// holder of the keys cannot replace the object. It is retained; nil if there is none.
//
// Errors: those of Open; those of r, with the label.
func (s *Sealer) NewStream(r io.Reader, size int64, l Label, named *Sum) (*Stream, error) {
	var sum hash.Hash
	if named != nil {
		sum = sha256.New()
		r = io.TeeReader(r, sum)
	}
	st := newStream(r, &object{label: l}, size)
	st.whole, st.left, st.named, st.hash = true, st.plain, named, sum
	head, err := st.peek(headerBytes)
	if err != nil {
		return nil, err
	}
	h, err := parseHeader(l, head)
	if err == nil {
		st.o, err = s.ring.Load().object(l, h)
	}
	if err != nil {
		return nil, err
	}
	if st.plain == 0 {
		return nil, l.corrupt("the length of an object", fmt.Sprint(size), nil)
	}
	_, err = st.r.Discard(headerBytes)
	return st, err
}

// NewPart returns a Stream of the blocks that fill n bytes, from off on, of the stream of an
// object. l and ref identify the object, which has size bytes. r begins with frame number first of
// the object: see Cover. So a part whose place is known costs one range request. Errors: as
// NewStream.
func (s *Sealer) NewPart(r io.Reader, size int64, l Label, ref Ref, first, off, n int64) (*Stream, error) {
	ring := s.ring.Load()
	o, err := ring.object(l, header{algorithm: ring.algorithm, keyIndex: ref.KeyIndex, id: ref.ID})
	if err != nil {
		return nil, err
	}
	st := newStream(r, o, size)
	st.number, st.skip, st.left, st.at = first, off-first*framePlain, n, off
	if off < 0 || n < 0 || st.skip < 0 || n > st.plain || off > st.plain-n {
		return nil, l.corrupt(fmt.Sprintf("a stream with %d bytes from %d on", n, off), fmt.Sprint(st.plain), nil)
	}
	return st, nil
}

// Ref returns the object's id and key index.
func (s *Stream) Ref() Ref { return s.o.ref() }

// Offset returns the offset in the stream of the next block.
func (s *Stream) Offset() int64 { return s.at }

// Next returns the plaintext of the next block, valid until the next call. After the last block of
// a whole object it reads the rest, and returns io.EOF if that is as it was sealed. Errors: as
// NewStream; they are sticky.
func (s *Stream) Next() ([]byte, error) {
	if s.err != nil {
		return nil, s.err
	}
	plain, err := s.next()
	s.err = err
	return plain, err
}

func (s *Stream) next() ([]byte, error) {
	if !s.whole && s.left+int64(s.open.Len()) == 0 {
		return nil, io.EOF
	}
	head, err := s.take(blockHead)
	if err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head)
	if n == 0 && s.whole {
		return nil, s.finish()
	}
	if n > 1+MaxBlockBytes {
		return nil, s.o.label.corrupt(fmt.Sprintf("a block of at most %d bytes", 1+MaxBlockBytes), fmt.Sprint(n), nil)
	}
	stored, err := s.take(int(n))
	if err != nil {
		return nil, err
	}
	plain, err := decodeContent(stored, MaxBlockBytes)
	if err == nil && len(plain) == 0 {
		err = errors.New("no plaintext")
	}
	if err != nil {
		return nil, s.o.label.corrupt("", "block", err)
	}
	return plain, nil
}

// take returns the next n bytes of the stream, valid until the next call.
func (s *Stream) take(n int) ([]byte, error) {
	for s.open.Len() < n {
		if s.left == 0 {
			return nil, s.o.label.corrupt(fmt.Sprintf("%d bytes at %d", n, s.at), "the end of the stream", nil)
		}
		if err := s.more(); err != nil {
			return nil, err
		}
	}
	s.at += int64(n)
	return s.open.Next(n), nil
}

// more opens a frame.
func (s *Stream) more() error {
	kind, n := byte(kindFrame), FrameBytes
	if s.number == (s.plain-1)/framePlain {
		kind, n = kindLast, int(s.plain-s.number*framePlain)+tagBytes
	}
	b, err := s.peek(n)
	if err != nil {
		return err
	}
	s.open.Grow(n)
	plain, err := s.o.aead.Open(s.open.AvailableBuffer(), nonce(kind, uint64(s.number)), b, s.o.ad)
	if err != nil {
		return s.o.label.corrupt("", fmt.Sprintf("frame %d: content, role, name or key differ from what was sealed", s.number), nil)
	}
	s.number++
	passed := min(s.skip, int64(len(plain)))
	s.skip -= passed
	plain = plain[passed:]
	plain = plain[:min(s.left, int64(len(plain)))]
	s.left -= int64(len(plain))
	s.open.Write(plain)
	_, err = s.r.Discard(n)
	return err
}

// peek returns the next n bytes of the object. io.EOF before them means that the object is cut off
// and damaged. Any other error of the underlying reader, also io.ErrUnexpectedEOF, means that the
// read was interrupted.
func (s *Stream) peek(n int) ([]byte, error) {
	b, err := s.r.Peek(n)
	switch {
	case err == nil:
		return b, nil
	case errors.Is(err, io.EOF):
		return nil, s.o.label.corrupt("more", fmt.Sprintf("the end after %d bytes", len(b)), nil)
	}
	return nil, fmt.Errorf("read sealed %s %s: %w", s.o.label.Role, printable(s.o.label.Name), err)
}

// finish proves the bytes after the blocks, and returns io.EOF.
func (s *Stream) finish() error {
	for s.at < s.plain {
		b, err := s.take(int(min(framePlain, s.plain-s.at)))
		if err != nil {
			return err
		}
		if !isZero(b) {
			return s.o.label.corrupt("", "padding that is not zero", nil)
		}
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
