package seal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/ledgerd/ledger/internal/base"
)

// tailBytes is how much of the end of an object is read at first, in the hope that the whole table of contents is in it.
const tailBytes = 64 << 10

// Reader reads a framed object by ranges. It may be used concurrently if the reader below may.
type Reader struct {
	r      io.ReaderAt
	o      *object
	frames []Frame
	table  []byte
	plain  int64
}

// NewReader opens the framed object that l says, of size bytes, and proves its table of contents: one range of the
// last 64 KiB, and another one if the table is longer. It holds the table, which is at most 16 MiB sealed and, expanded, 24
// bytes for each frame.
//
// Errors: those of Open; of r with what was being read, and io.ErrUnexpectedEOF for a shorter answer than size promises.
func (s *Sealer) NewReader(r io.ReaderAt, size int64, l Label) (*Reader, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	const least = headerBytes + FrameOverhead + recordHead + 1 + tagBytes + trailerBytes
	if size < least {
		return nil, l.corrupt(fmt.Sprintf("at least %d bytes", least), fmt.Sprint(size), nil)
	}
	tail, err := readRange(r, l, max(0, size-tailBytes), int(min(size, tailBytes)))
	if err != nil {
		return nil, err
	}
	trailer := tail[len(tail)-trailerBytes:]
	o, err := s.openObject(l, trailer, shapeFramed)
	if errors.Is(err, base.ErrUnsupported) || errors.Is(err, ErrUnknownKey) {
		err = s.notCut(r, l, err)
	}
	if err != nil {
		return nil, err
	}
	n := int64(binary.BigEndian.Uint32(trailer[headerBytes:]))
	if n < recordHead+1+tagBytes || n > recordHead+maxTableContent+tagBytes || n > size-headerBytes-FrameOverhead-trailerBytes {
		return nil, l.corrupt("a table of contents", fmt.Sprintf("%d bytes of it", n), nil)
	}
	end := size - trailerBytes - n
	record := tail[:len(tail)-trailerBytes]
	if int64(len(record)) >= n {
		record = record[int64(len(record))-n:]
	} else if record, err = readRange(r, l, end, int(n)); err != nil {
		return nil, err
	}
	rd := &Reader{r: r, o: o}
	return rd, rd.parse(record, end)
}

// notCut returns newer, which says that the trailer is of a newer format or has a newer key, unless the head is good: then the end of the object is missing, or something else stands there.
func (s *Sealer) notCut(r io.ReaderAt, l Label, newer error) error {
	head, err := readRange(r, l, 0, headerBytes)
	if err != nil {
		return err
	}
	if _, err := s.openObject(l, head, shapeFramed); err == nil {
		return l.corrupt("a trailer", "something else at the end", nil)
	}
	return newer
}

// parse opens the record of the table of contents and reads it.
func (r *Reader) parse(record []byte, end int64) error {
	content, err := r.o.openRecord(nil, 0, record, maxTableContent-1, kindTable)
	if err != nil {
		return fmt.Errorf("open table of contents: %w", err)
	}
	frames, table, problem := parseContents(content, end)
	if problem != "" {
		return r.o.label.corrupt("", "table of contents with wrong "+problem, nil)
	}
	r.frames, r.table = frames, table
	for _, f := range frames {
		r.plain += int64(f.PlainBytes)
	}
	return nil
}

// Ref returns the object's id and key index.
func (r *Reader) Ref() Ref { return Ref{ID: r.o.id, KeyIndex: r.o.index} }

// Frames returns where the frames are. The slice is the Reader's.
func (r *Reader) Frames() []Frame { return r.frames }

// PlainBytes returns the length of the whole plaintext.
func (r *Reader) PlainBytes() int64 { return r.plain }

// Table returns what Writer.SetTable was given. The slice is the Reader's.
func (r *Reader) Table() []byte { return r.table }

// ReadFrame returns the plaintext of frame i, with one range; with frame 0 it reads and proves the object's header
// too. Errors: as NewReader; base.ErrInvalid when there is no such frame.
func (r *Reader) ReadFrame(i int) ([]byte, error) {
	if i < 0 || i >= len(r.frames) {
		return nil, fmt.Errorf("read frame %d of %d: %w", i, len(r.frames), base.ErrInvalid)
	}
	f, head := r.frames[i], 0
	if i == 0 {
		head = headerBytes
	}
	b, err := readRange(r.r, r.o.label, f.Offset-int64(head), head+f.SealedBytes)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(b[:head], r.o.header()[:head]) {
		return nil, r.o.label.corrupt("", "header differs from the one at the end", nil)
	}
	return r.openFrame(i, b[head:], b[head+recordHead:head+recordHead]) // in place
}

// OpenFrame is ReadFrame for who has the record already, from a range over several frames perhaps.
func (r *Reader) OpenFrame(i int, record []byte) ([]byte, error) {
	if i < 0 || i >= len(r.frames) {
		return nil, fmt.Errorf("open frame %d of %d: %w", i, len(r.frames), base.ErrInvalid)
	}
	return r.openFrame(i, record, nil)
}

// OpenFrameInPlace is OpenFrame for who does not need the record any more: see Sealer.OpenFrameInPlace.
func (r *Reader) OpenFrameInPlace(i int, record []byte) ([]byte, error) {
	if i < 0 || i >= len(r.frames) {
		return nil, fmt.Errorf("open frame %d of %d: %w", i, len(r.frames), base.ErrInvalid)
	}
	return r.openFrame(i, record, record[min(recordHead, len(record)):][:0])
}

// openFrame opens the record of a frame that there is. dst: as openRecord.
func (r *Reader) openFrame(i int, record, dst []byte) ([]byte, error) {
	kind := byte(kindFrame)
	if i == len(r.frames)-1 {
		kind = kindLast
	}
	plain, err := r.o.openRecord(dst, uint64(i), record, r.frames[i].PlainBytes, kind)
	if err != nil {
		return nil, fmt.Errorf("open frame %d: %w", i, err)
	}
	if len(plain) != r.frames[i].PlainBytes {
		return nil, r.o.label.corrupt(fmt.Sprintf("%d bytes in frame %d", r.frames[i].PlainBytes, i), fmt.Sprint(len(plain)), nil)
	}
	return plain, nil
}

// readRange reads n bytes at off.
func readRange(r io.ReaderAt, l Label, off int64, n int) ([]byte, error) {
	b := make([]byte, n)
	got, err := r.ReadAt(b, off)
	if got == n {
		return b, nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return nil, fmt.Errorf("read %d bytes at %d of sealed %s %s: %w", n, off, l.Role, printable(l.Name), err)
}
