package seal

import (
	"bytes"
	"encoding/binary"
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

// Reader reads a framed object that has a table. It may be used concurrently if the underlying
// reader may.
type Reader struct {
	r     io.ReaderAt
	o     *object
	size  int64
	foot  footer
	table []byte
}

// NewReader opens the framed object l, of size bytes, and proves its footer and table. It reads
// from r the last bytes of the object, then the frames of the footer, then those of the table,
// frame by frame. It holds the table, at most MaxTableBytes.
//
// Errors: those of Open; those of r, with the range; io.ErrUnexpectedEOF for an answer that is
// shorter than size promises.
func (s *Sealer) NewReader(r io.ReaderAt, size int64, l Label) (*Reader, error) {
	plain := StreamBytes(size)
	if plain == 0 {
		return nil, l.corrupt("the length of a framed object", fmt.Sprint(size), nil)
	}
	trailer := make([]byte, headerBytes)
	if n, err := r.ReadAt(trailer, size-headerBytes); n < headerBytes {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return nil, fmt.Errorf("read the end of sealed %s %s: %w", l.Role, printable(l.Name), err)
	}
	o, err := s.openObject(l, trailer, shapeFramed)
	if err != nil {
		return nil, err
	}
	rd := &Reader{r: r, o: o, size: size}
	b, err := rd.read(plain-footerBytes, footerBytes)
	if err != nil {
		return nil, err
	}
	if rd.foot, err = o.parseFooter(b, plain); err != nil {
		return nil, err
	}
	rd.table, err = rd.read(rd.foot.table, plain-footerBytes-rd.foot.table)
	return rd, err
}

// read returns n bytes of the stream from off on.
func (r *Reader) read(off, n int64) ([]byte, error) {
	st, err := r.Part(off, n)
	if err != nil {
		return nil, err
	}
	return st.take(int(n))
}

// Part returns a Stream of the blocks that fill n bytes of the object's stream from off on. Errors:
// as NewReader.
func (r *Reader) Part(off, n int64) (*Stream, error) {
	first, at, length := Cover(off, max(n, 1))
	return r.o.part(io.NewSectionReader(r.r, at, length), r.size, first, off, n)
}

// Whole returns a Stream of all blocks of the object, which sealed gives from its first byte on.
// The Stream also proves the object's head, and the bytes outside blocks.
func (r *Reader) Whole(sealed io.Reader) (*Stream, error) {
	st := newStream(sealed, r.o, r.size)
	st.whole, st.left, st.table = true, st.plain, int64(len(r.table))
	head, err := st.peek(headerBytes)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(head, r.o.header()) {
		return nil, r.o.label.corrupt("", "head differs from the one at the end", nil)
	}
	_, err = st.r.Discard(headerBytes)
	return st, err
}

// Ref returns the object's id and key index.
func (r *Reader) Ref() Ref { return r.o.ref() }

// Table returns the table set by Writer.SetTable. The Reader owns the slice.
func (r *Reader) Table() []byte { return r.table }

// BlockBytes returns where in the stream the blocks end: the sum of their stored lengths.
func (r *Reader) BlockBytes() int64 { return r.foot.padding - blockHead }

// errTooLong returns the error for writing more than fits.
func errTooLong(l Label, what string, n, most int) error {
	return fmt.Errorf("seal %s with a %s of %d bytes, limit %d: %w", l.Role, what, n, most, base.ErrTooLarge)
}
