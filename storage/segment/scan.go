package segment

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// scanWindow is how much of a segment a scan holds in memory.
const scanWindow = 256 << 10

// window reads a file forwards through one buffer.
type window struct {
	r    io.ReaderAt
	size uint64 // nothing is read behind it
	off  uint64 // of buf
	buf  []byte
}

// at returns the n bytes at off, n at most scanWindow, or fewer at the end of the file. They are
// valid until the next call.
func (w *window) at(off uint64, n int) ([]byte, error) {
	if off >= w.size {
		return nil, nil
	}
	n = int(min(uint64(n), w.size-off))
	if off >= w.off && off+uint64(n) <= w.off+uint64(len(w.buf)) {
		return w.buf[off-w.off:][:n], nil
	}
	if w.buf == nil {
		w.buf = make([]byte, 0, min(uint64(scanWindow), w.size-off))
	}
	w.off = off
	w.buf = w.buf[:min(uint64(cap(w.buf)), w.size-off)]
	got, err := w.r.ReadAt(w.buf, int64(off))
	if got < len(w.buf) && err != nil && !errors.Is(err, io.EOF) {
		w.buf = w.buf[:0]
		return nil, err
	}
	w.buf = w.buf[:got]
	return w.buf[:min(n, got)], nil
}

// scanned is what a scan has found in a segment.
type scanned struct {
	id   uint32
	size uint64    // of the file
	from uint64    // where the scan began; what is before is known to be synced
	end  uint64    // of the last valid batch, of the header, or 0
	last BatchInfo // the last valid batch behind from; its number is 0 when there is none
	// proved is the offset of the last frame, up to which the segment itself proves to have been
	// synced (I2).
	proved uint64
}

// scanner scans segments of one page.
type scanner struct {
	page       [16]byte
	after      uint64      // numbers of batches are greater; the number of the Position
	named      func(e End) // called for every end in the list of a valid batch
	ends       []End
	retirement // what valid batches say together
}

// scan reads the segment id from the offset from, which is 0 or follows a batch or the header, up
// to the first invalid byte. The memory that it needs does not depend on the file. Errors are those
// of reading, of a header of something else, and of ctx; invalid bytes are no error.
func (s *scanner) scan(ctx context.Context, r io.ReaderAt, id uint32, size, from uint64) (scanned, error) {
	w := &window{r: r, size: size}
	out := scanned{id: id, size: size, from: from, end: from, proved: from}
	if from == 0 {
		whole, err := readHeader(io.NewSectionReader(r, 0, int64(size)), s.page, id)
		if err != nil {
			return out, err
		}
		if whole {
			out.end = headerBytes
		}
	}
	if out.end > 0 {
		if err := s.batches(ctx, w, &out); err != nil {
			return out, err
		}
	}
	if out.end == out.size {
		return out, nil
	}
	return out, s.lookBehind(ctx, w, &out)
}

// batches advances out over all valid batches.
func (s *scanner) batches(ctx context.Context, w *window, out *scanned) error {
	last := s.after
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		info, ok, err := s.batch(w, out, last)
		if err != nil || !ok {
			return err
		}
		last, out.last, out.end = info.Number, info, info.End
	}
}

// batch checks the batch at out.end, whose number must be greater than last.
func (s *scanner) batch(w *window, out *scanned, last uint64) (info BatchInfo, ok bool, err error) {
	start := out.end
	fail := func(err error) (BatchInfo, bool, error) {
		return info, false, fmt.Errorf("read segment %s at offset %d: %w", FileName(out.id), start, err)
	}
	b, err := w.at(start, frameBytes)
	if err != nil {
		return fail(err)
	}
	sum := seed(s.page, out.id, start)
	f, ok := parseFrame(b, sum)
	if !ok {
		return info, false, nil
	}
	out.proved = start // I2
	if f.number <= s.after {
		return info, false, fmt.Errorf("segment %s at offset %d holds batch %d, index reflects %d: %w",
			FileName(out.id), start, f.number, s.after, ErrIndexMismatch)
	}
	if f.number <= last {
		return info, false, corruptOrder(out.id, start, f.number, last)
	}
	if f.size() > out.size-start {
		return info, false, nil
	}
	sum = crc32.Update(sum, castagnoli, b)
	info = BatchInfo{Number: f.number, Segment: out.id, Start: start, End: start + f.size()}
	endsAt := start + frameBytes + uint64(f.recordsBytes)
	for off := start + frameBytes; off < endsAt; {
		if b, err = w.at(off, int(min(scanWindow, endsAt-off))); err != nil || len(b) == 0 {
			return fail(orShort(err))
		}
		sum = crc32.Update(sum, castagnoli, b)
		off += uint64(len(b))
	}
	ends, sum, err := s.readEnds(w, endsAt, int(f.ends), sum)
	if err != nil {
		return fail(err)
	}
	if b, err = w.at(info.End-crcBytes, crcBytes); err != nil || len(b) < crcBytes {
		return fail(orShort(err))
	}
	info.CRC = binary.BigEndian.Uint32(b)
	if info.CRC != sum {
		return info, false, nil
	}
	if s.ends, info.retirement, ok = parseEnds(s.ends[:0], ends); !ok {
		return info, false, corrupt(out.id, endsAt, fmt.Sprintf("a wrong list of ends in batch %d", f.number))
	}
	for _, e := range s.ends {
		s.named(e)
	}
	if info.reflect != 0 {
		s.retirement = s.with(info.retirement)
	}
	return info, true, nil
}

// readEnds returns the bytes of count ends at off, and the checksum continued over them.
func (s *scanner) readEnds(w *window, off uint64, count int, sum uint32) ([]byte, uint32, error) {
	all := make([]byte, 0, count*endBytes)
	for left := count * endBytes; left > 0; {
		b, err := w.at(off, min(left, scanWindow))
		if err != nil || len(b) == 0 {
			return nil, 0, orShort(err)
		}
		all = append(all, b...)
		left -= len(b)
		off += uint64(len(b))
	}
	return all, crc32.Update(sum, castagnoli, all), nil
}

// lookBehind looks for the frame of a batch behind the invalid bytes at out.end: where one is,
// everything before it was synced once (I2).
func (s *scanner) lookBehind(ctx context.Context, w *window, out *scanned) error {
	at, err := findFrame(ctx, s.page, out.id, out.end+1, out.size, max(s.after, out.last.Number), w.at)
	if err != nil {
		return fmt.Errorf("read segment %s: %w", FileName(out.id), err)
	}
	if at < out.size {
		out.proved = at
	}
	return nil
}

// findFrame returns the offset of the first frame from an offset on whose number is greater than
// last, or the size of the segment. read returns the bytes at an offset, valid until its next call.
func findFrame(ctx context.Context, page [16]byte, id uint32, from, size, last uint64, read func(off uint64, n int) ([]byte, error)) (uint64, error) {
	for off := from; off < size; off += scanWindow - frameBytes {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		b, err := read(off, int(min(scanWindow, size-off)))
		if err != nil {
			return 0, err
		}
		for i := 0; i+frameBytes <= len(b); i++ {
			next := bytes.Index(b[i:], []byte(batchMagic))
			if next < 0 || i+next+frameBytes > len(b) {
				break
			}
			i += next
			at := off + uint64(i)
			if f, ok := parseFrame(b[i:], seed(page, id, at)); ok && f.number > last {
				return at, nil
			}
		}
	}
	return size, nil
}

func corruptOrder(id uint32, start, number, last uint64) error {
	return corrupt(id, start, fmt.Sprintf("batch %d behind number %d", number, last))
}

// orShort makes a read without bytes and without an error one with an error: the file has become
// shorter.
func orShort(err error) error {
	if err == nil {
		return io.ErrUnexpectedEOF
	}
	return err
}
