package seal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/ledgerd/ledger/internal/base"
)

// Sizes of framed objects. They are part of the format.
const (
	// FrameBytes is the sealed length of each frame. Only the last frame may be shorter.
	FrameBytes = 16 << 10
	// framePlain is the plaintext of a full frame.
	framePlain = FrameBytes - tagBytes
	// MaxBlockBytes is the greatest plaintext of a block.
	MaxBlockBytes = 1 << 20
	// BlockOverhead is by how many bytes a stored block exceeds its plaintext, unless compression
	// makes it shorter.
	BlockOverhead = blockHead + 1
	blockHead     = 4
	// footerBytes is the length of the end of the stream: the offsets of padding and table, 8 bytes
	// each.
	footerBytes = 16
	// leastPlain is the shortest stream: the mark after the blocks, and the footer.
	leastPlain = blockHead + footerBytes
)

// Block is a part of the stream of a framed object: plaintext that is compressed by itself.
type Block struct {
	// Offset is the offset of its head in the stream, and StoredBytes its length there, including
	// the head.
	Offset      int64
	StoredBytes int
}

// ObjectBytes returns the length of a framed object whose stream has so many bytes.
func ObjectBytes(plain int64) int64 {
	return 2*headerBytes + plain + tagBytes*((plain+framePlain-1)/framePlain)
}

// StreamBytes returns the length of the stream of an object of size bytes, or 0 if no object has
// that length.
func StreamBytes(size int64) int64 {
	sealed := size - 2*headerBytes
	if sealed <= 0 {
		return 0
	}
	plain := sealed / FrameBytes * framePlain
	if rest := sealed % FrameBytes; rest > tagBytes {
		plain += rest - tagBytes
	} else if rest > 0 {
		return 0
	}
	if plain < leastPlain {
		return 0
	}
	return plain
}

// Cover returns which frames hold n bytes of a stream from off on, n at least 1: the number of the
// first frame, its offset in the object, and the sealed length of all of them. The object may end
// earlier.
func Cover(off, n int64) (first, at, length int64) {
	first = off / framePlain
	last := (off + n - 1) / framePlain
	return first, headerBytes + first*FrameBytes, (last - first + 1) * FrameBytes
}

// Frames opens consecutive frames one after the other, in place.
type Frames struct {
	o      *object
	size   int64
	first  int64 // number of the first frame
	last   int64 // number of the object's last frame
	number int64 // of the next frame
	buf    []byte
	plain  int // how much of the beginning of buf is plaintext
	sealed int // where in buf the next frame begins
}

// OpenFrames opens frames, from number first on, of the object of size bytes that l and ref
// identify. sealed begins with the first of them and has whole frames. Frames owns it from then on,
// and ignores bytes after the object's last frame. So a part of an object whose place is known
// costs one range request. Errors: as Open.
func (s *Sealer) OpenFrames(l Label, ref Ref, size, first int64, sealed []byte) (*Frames, error) {
	o, err := s.refObject(l, ref)
	if err != nil {
		return nil, err
	}
	return o.frames(size, first, sealed)
}

// refObject derives the key of the framed object that l and ref identify.
func (s *Sealer) refObject(l Label, ref Ref) (*object, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	ring := s.ring.Load()
	return ring.object(l, header{algorithm: ring.algorithm, shape: shapeFramed, keyIndex: ref.KeyIndex, id: ref.ID})
}

func (o *object) frames(size, first int64, sealed []byte) (*Frames, error) {
	plain := StreamBytes(size)
	if plain == 0 {
		return nil, o.label.corrupt("the length of a framed object", fmt.Sprint(size), nil)
	}
	if most := size - 2*headerBytes - first*FrameBytes; int64(len(sealed)) > most {
		sealed = sealed[:max(0, most)]
	}
	return &Frames{o: o, size: size, first: first, number: first, last: (plain - 1) / framePlain, buf: sealed}, nil
}

// ObjectBytes returns the length of the object.
func (f *Frames) ObjectBytes() int64 { return f.size }

// Offset returns the offset of the plaintext in the stream.
func (f *Frames) Offset() int64 { return f.first * framePlain }

// Plain returns the plaintext of all opened frames. It stays valid while more frames are opened.
func (f *Frames) Plain() []byte { return f.buf[:f.plain:f.plain] }

// Next opens the next frame. It returns io.EOF if there is none left. Errors: as Open.
func (f *Frames) Next() error {
	n := min(FrameBytes, len(f.buf)-f.sealed)
	if n == 0 {
		return io.EOF
	}
	kind := byte(kindFrame)
	if f.number == f.last {
		kind = kindLast
	} else if n < FrameBytes {
		return f.o.label.corrupt(fmt.Sprintf("frame %d of %d bytes", f.number, FrameBytes), fmt.Sprint(n), nil)
	}
	plain, err := f.o.openFrame(kind, uint64(f.number), f.buf[f.sealed:f.sealed+n:f.sealed+n])
	if err != nil {
		return err
	}
	f.plain += copy(f.buf[f.plain:], plain)
	f.sealed, f.number = f.sealed+n, f.number+1
	return nil
}

// OpenTo opens frames until the plaintext reaches byte end of the stream. Errors: as Open, also for
// frames that end before.
func (f *Frames) OpenTo(end int64) error {
	for f.Offset()+int64(f.plain) < end {
		err := f.Next()
		if err == io.EOF {
			err = f.o.label.corrupt(fmt.Sprintf("a stream of at least %d bytes", end), fmt.Sprint(f.Offset()+int64(f.plain)), nil)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// openFrame opens a frame in place.
func (o *object) openFrame(kind byte, number uint64, sealed []byte) ([]byte, error) {
	plain, err := o.aead.Open(sealed[:0], nonce(kind, number), sealed, o.ad)
	if err != nil {
		return nil, o.label.corrupt("", fmt.Sprintf("frame %d: content, role, name or key differ from what was sealed", number), nil)
	}
	return plain, nil
}

// OpenBlock returns the plaintext of a block of the object l. stored is the whole block, including
// its head. The plaintext may share memory with it. Errors: *base.CorruptError.
func OpenBlock(l Label, stored []byte) ([]byte, error) {
	if len(stored) < blockHead || uint64(binary.BigEndian.Uint32(stored)) != uint64(len(stored)-blockHead) {
		return nil, l.corrupt(fmt.Sprintf("a block of %d bytes", len(stored)), "another length in its head", nil)
	}
	plain, err := decodeContent(stored[blockHead:], MaxBlockBytes)
	if err == nil && len(plain) == 0 {
		err = errors.New("no plaintext")
	}
	if err != nil {
		return nil, l.corrupt("", "block", err)
	}
	return plain, nil
}

// footer describes the end of a stream: four zeros end the blocks, at padding; zeros follow up to
// table; then the table and the footer.
type footer struct{ padding, table int64 }

func (f footer) append(b []byte) []byte {
	b = binary.BigEndian.AppendUint64(b, uint64(f.padding))
	return binary.BigEndian.AppendUint64(b, uint64(f.table))
}

// parseFooter reads the footer of a stream of plain bytes, and verifies that the stream has exactly
// the length that its padding requires.
func (o *object) parseFooter(b []byte, plain int64) (f footer, err error) {
	padding, table := binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])
	end := uint64(plain - footerBytes)
	if table > end || padding > table || padding < blockHead || end-table > MaxTableBytes {
		return f, o.label.corrupt("", fmt.Sprintf("footer with padding at %d and a table at %d of %d bytes", padding, table, plain), nil)
	}
	f = footer{padding: int64(padding), table: int64(table)}
	if want := Padme(plain - (f.table - f.padding)); want != plain {
		return f, o.label.corrupt(fmt.Sprintf("a stream of %d bytes", want), fmt.Sprint(plain), nil)
	}
	return f, nil
}

// isZero reports whether all bytes are zero.
func isZero(b []byte) bool { return len(bytes.TrimLeft(b, "\x00")) == 0 }

// Reader reads a framed object by ranges. It may be used concurrently if the underlying reader may.
type Reader struct {
	r     io.ReaderAt
	o     *object
	size  int64
	foot  footer
	table []byte
}

// NewReader opens the framed object l, of size bytes, and proves its footer and table. It reads one
// range of the last one or two frames, and another one if the table is longer. It holds the table,
// at most MaxTableBytes.
//
// Errors: those of Open; those of r, with the range; io.ErrUnexpectedEOF for an answer that is
// shorter than size promises.
func (s *Sealer) NewReader(r io.ReaderAt, size int64, l Label) (*Reader, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	plain := StreamBytes(size)
	if plain == 0 {
		return nil, s.oddLength(r, size, l)
	}
	first, at, _ := Cover(plain-footerBytes, footerBytes)
	tail, err := readRange(r, l, at, int(size-at))
	if err != nil {
		return nil, err
	}
	o, err := s.openObject(l, tail[len(tail)-headerBytes:], shapeFramed)
	if err != nil {
		return nil, s.notCut(r, l, err)
	}
	rd := &Reader{r: r, o: o, size: size}
	f, err := o.frames(size, first, tail)
	if err != nil {
		return nil, err
	}
	b, err := f.part(plain-footerBytes, footerBytes)
	if err != nil {
		return nil, err
	}
	if rd.foot, err = o.parseFooter(b, plain); err != nil {
		return nil, err
	}
	rd.table, err = rd.read(rd.foot.table, plain-footerBytes-rd.foot.table)
	return rd, err
}

// oddLength returns the error for an object with a length that no framed object has: that of its
// head, if the head is bad.
func (s *Sealer) oddLength(r io.ReaderAt, size int64, l Label) error {
	if size >= headerBytes {
		head, err := readRange(r, l, 0, headerBytes)
		if err == nil {
			_, err = s.openObject(l, head, shapeFramed)
		}
		if err != nil {
			return err
		}
	}
	return l.corrupt("the length of a framed object", fmt.Sprint(size), nil)
}

// notCut returns err, the error of a trailer, unless the head is good. With a good head the end of
// the object is missing or replaced.
func (s *Sealer) notCut(r io.ReaderAt, l Label, err error) error {
	head, readErr := readRange(r, l, 0, headerBytes)
	if readErr != nil {
		return readErr
	}
	if _, headErr := s.openObject(l, head, shapeFramed); headErr == nil {
		return l.corrupt("a trailer", "something else at the end", nil)
	}
	return err
}

// read returns n bytes of the stream from off on, with one range.
func (r *Reader) read(off, n int64) ([]byte, error) {
	if n == 0 {
		return nil, nil
	}
	f, err := r.Frames(off, n)
	if err != nil {
		return nil, err
	}
	return f.part(off, n)
}

// Frames reads the frames that hold n bytes of the stream, at least 1, from off on, with one range.
// Errors: as NewReader.
func (r *Reader) Frames(off, n int64) (*Frames, error) {
	first, at, length := Cover(off, n)
	sealed, err := readRange(r.r, r.o.label, at, int(min(length, r.size-headerBytes-at)))
	if err != nil {
		return nil, err
	}
	return r.o.frames(r.size, first, sealed)
}

// part returns n bytes of the stream from off on.
func (f *Frames) part(off, n int64) ([]byte, error) {
	if err := f.OpenTo(off + n); err != nil {
		return nil, err
	}
	return f.Plain()[off-f.Offset():][:n:n], nil
}

// Ref returns the object's id and key index.
func (r *Reader) Ref() Ref { return r.o.ref() }

// Table returns the table set by Writer.SetTable. The Reader owns the slice.
func (r *Reader) Table() []byte { return r.table }

// BlockBytes returns where in the stream the blocks end: the sum of their stored lengths.
func (r *Reader) BlockBytes() int64 { return r.foot.padding - blockHead }

// Whole returns the frames of the object, given all of it; the Frames own sealed from then on. It
// proves the object's head.
func (r *Reader) Whole(sealed []byte) (*Frames, error) {
	if int64(len(sealed)) != r.size || !bytes.Equal(sealed[:headerBytes], r.o.header()) {
		return nil, r.o.label.corrupt("", "head differs from the one at the end", nil)
	}
	return r.o.frames(r.size, 0, sealed[headerBytes:])
}

// ProvePadding verifies the bytes outside blocks in the opened stream of the whole object.
func (r *Reader) ProvePadding(stream []byte) error {
	if !isZero(stream[r.foot.padding-blockHead : r.foot.table]) {
		return r.o.label.corrupt("", "padding that is not zero", nil)
	}
	return nil
}

// readRange reads n bytes at off.
func readRange(r io.ReaderAt, l Label, off int64, n int) ([]byte, error) {
	b := make([]byte, n)
	got, err := r.ReadAt(b, off)
	if got == n {
		return b, nil
	}
	if err == nil || err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return nil, fmt.Errorf("read %d bytes at %d of sealed %s %s: %w", n, off, l.Role, printable(l.Name), err)
}

// errTooLong returns the error for writing more than fits.
func errTooLong(l Label, what string, n, most int) error {
	return fmt.Errorf("seal %s with a %s of %d bytes, limit %d: %w", l.Role, what, n, most, base.ErrTooLarge)
}
