package segment

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/ledgerd/ledger/internal/base"
)

// scanWindow is how much of a segment a scan reads at once.
const scanWindow = 256 << 10

// window reads a file forwards through one buffer.
type window struct {
	r    io.ReaderAt
	size uint64 // nothing is read beyond it
	off  uint64 // of buf
	buf  []byte
}

// at returns the n bytes at off, or fewer at the end of the file. They are valid until the next
// call.
func (w *window) at(off uint64, n int) ([]byte, error) {
	if off >= w.size {
		return nil, nil
	}
	n = int(min(uint64(n), w.size-off))
	if off >= w.off && off+uint64(n) <= w.off+uint64(len(w.buf)) {
		return w.buf[off-w.off:][:n], nil
	}
	want := int(min(uint64(max(n, scanWindow)), w.size-off))
	w.off, w.buf = off, slices.Grow(w.buf[:0], want)[:want]
	got, err := w.r.ReadAt(w.buf, int64(off))
	w.buf = w.buf[:got]
	if got < want && err != nil && !errors.Is(err, io.EOF) {
		w.buf = w.buf[:0]
		return nil, err
	}
	return w.buf[:min(n, got)], nil
}

// scan reads the batches of one segment in order. It holds one of them in memory.
type scan struct {
	window
	page  [16]byte
	id    uint32
	next  uint64 // offset of the next batch
	last  uint64 // number of the last frame
	batch batch  // the last one
}

// step decodes the batch at next and moves past it. It does not move when the bytes there are no
// valid batch: damage says why, and f is the frame there, if any. err is an error of reading.
func (s *scan) step() (f frame, damage, err error) {
	b, err := s.at(s.next, frameBytes)
	if err != nil {
		return f, nil, s.failed(err)
	}
	f, ok := parseFrame(b, seed(s.page, s.id, s.next))
	switch {
	case !ok:
		return frame{}, corrupt(s.id, s.next, "no frame of a batch"), nil
	case f.number <= s.last:
		return f, corruptOrder(s.id, s.next, f.number, s.last), nil
	}
	s.last = f.number
	s.batch.whole = false
	if f.size() > s.size-s.next {
		return f, corrupt(s.id, s.next, fmt.Sprintf("batch %d is longer than the file", f.number)), nil
	}
	if b, err = s.at(s.next, int(f.size())); err != nil || uint64(len(b)) < f.size() {
		return f, nil, s.failed(cmp.Or(err, io.ErrUnexpectedEOF)) // the file has become shorter
	}
	if err := s.batch.decode(b, s.page, s.id, s.next); err != nil {
		return f, err, nil
	}
	s.next += f.size()
	return f, nil, nil
}

func (s *scan) failed(err error) error {
	return fmt.Errorf("read segment %s at offset %d: %w", FileName(s.id), s.next, err)
}

// findFrame returns the offset of the first frame at or after an offset whose number is greater
// than last, or the size of the segment.
func (s *scan) findFrame(ctx context.Context, from uint64) (uint64, error) {
	for off := from; off < s.size; off += scanWindow - frameBytes {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		b, err := s.at(off, scanWindow)
		if err != nil {
			return 0, fmt.Errorf("read segment %s: %w", FileName(s.id), err)
		}
		for i := 0; i+frameBytes <= len(b); i++ {
			next := bytes.Index(b[i:], []byte(batchMagic))
			if next < 0 || i+next+frameBytes > len(b) {
				break
			}
			i += next
			at := off + uint64(i)
			if f, ok := parseFrame(b[i:], seed(s.page, s.id, at)); ok && f.number > s.last {
				return at, nil
			}
		}
	}
	return s.size, nil
}

// scanned is the result of a scan of a segment.
type scanned struct {
	id   uint32
	size uint64    // of the file
	from uint64    // where the scan began; the bytes before it are synced
	end  uint64    // of the last valid batch before any invalid bytes, of the header, or 0
	last BatchInfo // the batch that ends there; its number is 0 when there is none after from
	// number is that of the last frame.
	number  uint64
	batches []extent // valid batches after from
	invalid []region // the other bytes after from
}

// region is a part of a segment that is no valid batch.
type region struct {
	start, end uint64
	f          frame // of the batch, valid, if framed
	framed     bool
	prev, next uint64 // numbers of the frames around it, 0 for none
	number     uint64
	got        string
}

// scan reads a segment from sc.from on, which is 0 or follows a batch or the header. It records the
// ends that frames and batches name. Errors are those of reading, of a header of something else,
// and of ctx. Invalid bytes are no error, unless they cannot be a torn tail. In a salvage, neither
// these nor another header are.
func (op *opener) scan(ctx context.Context, sc *scanned) (err error) {
	file, err := op.o.FS.OpenRead(filepath.Join(op.o.Dir, FileName(sc.id)))
	if err != nil {
		return fmt.Errorf("open segment: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	after := op.from.Number
	x := &scan{window: window{r: file, size: sc.size}, page: op.o.Page, id: sc.id, next: sc.from, last: after}
	if sc.from == 0 {
		whole, err := readHeader(io.NewSectionReader(file, 0, int64(sc.size)), op.o.Page, sc.id)
		if err != nil && !(op.salvages && errors.Is(err, base.ErrCorrupt)) {
			return err
		}
		if x.next = headerBytes; whole && err == nil {
			sc.end = headerBytes
		} else if err := op.noHeader(ctx, x, sc); err != nil {
			return err
		}
	}
	for x.next < sc.size {
		if err := ctx.Err(); err != nil {
			return err
		}
		g := region{start: x.next, prev: x.last}
		f, damage, err := x.step()
		if err != nil {
			return err
		}
		framed := f.number > g.prev
		switch {
		case f.number != 0 && f.number <= after:
			return fmt.Errorf("segment %s at offset %d holds batch %d, index reflects %d: %w",
				FileName(sc.id), g.start, f.number, after, ErrIndexMismatch)
		case damage != nil && !op.salvages && f.number != 0 && (!framed || x.batch.whole):
			return damage
		case framed:
			g.f, g.framed, g.number = f, true, f.number
			op.name(End{sc.id, g.start}) // I2
			if n := len(sc.invalid); n > 0 && sc.invalid[n-1].end == g.start {
				sc.invalid[n-1].next = f.number
			}
			g.end = min(g.start+f.size(), sc.size)
		default:
			if g.end, err = x.findFrame(ctx, g.start+1); err != nil {
				return err
			}
		}
		if damage == nil {
			damage = op.verified(&x.batch)
		}
		if x.next = g.end; damage == nil {
			op.keep(sc, &x.batch)
			continue
		}
		if g.got = "no frame of a batch"; framed {
			g.got = gotOf(damage)
		}
		sc.invalid = append(sc.invalid, g)
	}
	sc.number = x.last
	return nil
}

// noHeader records a segment without a header, and goes to the first frame.
func (op *opener) noHeader(ctx context.Context, x *scan, sc *scanned) (err error) {
	x.next, err = x.findFrame(ctx, 1)
	sc.invalid = []region{{end: x.next, got: "no header of a segment"}}
	return err
}

// keep records a valid batch.
func (op *opener) keep(sc *scanned, b *batch) {
	for _, e := range b.ends {
		op.name(e)
	}
	if b.info.reflect != 0 {
		op.found = op.found.with(b.info.retirement)
	}
	if len(sc.invalid) == 0 {
		sc.last, sc.end = b.info, b.info.End
	}
	if n := len(sc.batches); n > 0 && sc.batches[n-1].to == b.info.Start {
		sc.batches[n-1].to = b.info.End
	} else {
		sc.batches = append(sc.batches, extent{sc.id, b.info.Start, b.info.End})
	}
	if op.salvages {
		op.numbers = append(op.numbers, b.info.Number)
	}
}

func (op *opener) name(e End) { op.named[e.Segment] = max(op.named[e.Segment], e.Offset) }

// verified returns an error for a batch with a record that fails verify.
func (op *opener) verified(b *batch) error {
	for _, rec := range b.recs {
		if op.verify != nil && !op.verify(rec) {
			return corrupt(rec.Place.Segment, rec.Place.Offset, fmt.Sprintf("batch %d with a record that is not what it says, at offset %d", b.info.Number, rec.Place.Offset))
		}
	}
	return nil
}

func gotOf(err error) string {
	if c, ok := errors.AsType[*base.CorruptError](err); ok {
		return c.Got
	}
	return err.Error()
}

func corruptOrder(id uint32, start, number, last uint64) error {
	return corrupt(id, start, fmt.Sprintf("batch %d behind number %d", number, last))
}
