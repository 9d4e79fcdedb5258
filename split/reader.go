package split

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync/atomic"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
)

// Reader reads an object from its pieces. It implements io.ReaderAt, io.ReadSeeker and io.WriterTo.
//
// A read needs the pieces that hold the requested bytes, and the index pieces above them. It holds
// one piece of each level at a time, for an object of any size. From a Far source, a longer read
// brings its missing pieces at once; a sequential read brings as much more as it has read so far,
// at most 16 MiB. Every piece is checked against the index piece that lists it: an invalid piece
// gives a *base.CorruptError that names it. Other errors: those of the source and of the context,
// wrapped; *base.FormatError.
//
// ReadAt and Size may run concurrently with all methods; Read, Seek and WriteTo share a position
// and are for one goroutine at a time.
type Reader struct {
	ctx  context.Context // of the object: the io interfaces have no place for one
	src  Source
	root span
	pos  int64
	run  int64                  // bytes that Read has read before pos without a Seek
	idle atomic.Pointer[cursor] // nil while a read uses it
}

var (
	_ io.ReaderAt   = (*Reader)(nil)
	_ io.ReadSeeker = (*Reader)(nil)
	_ io.WriterTo   = (*Reader)(nil)
)

// NewReader returns a reader of the object with the given root piece and size in bytes. ctx governs
// all its reads. NewReader itself reads nothing.
func NewReader(ctx context.Context, src Source, root object.Digest, size uint64) *Reader {
	return &Reader{ctx: ctx, src: src, root: span{root, size, true}}
}

// Size returns the size of the object in bytes, as passed to NewReader.
func (r *Reader) Size() int64 { return int64(min(r.root.size, math.MaxInt64)) }

// acquire returns a cursor for one read, which then returns it to idle.
func (r *Reader) acquire() (*cursor, error) {
	if r.root.size > math.MaxInt64 {
		return nil, corrupt(r.root.digest, "at most 2^63-1 bytes of content", sizeText(r.root.size))
	}
	c := r.idle.Swap(nil)
	if c == nil {
		c = new(cursor)
	}
	return c, nil
}

// Lengths of reads from a Far source.
const (
	// leastBrought is the length from which on a read brings its missing pieces at once. For less,
	// Piece brings each piece with its neighbours, which serve the following reads.
	leastBrought = 256 << 10
	// mostBrought is the most that is brought at once.
	mostBrought = 16 << 20
)

// ReadAt implements io.ReaderAt. A negative offset gives base.ErrInvalid.
func (r *Reader) ReadAt(b []byte, offset int64) (n int, err error) {
	return r.readAt(b, offset, 0)
}

// readAt is ReadAt for a caller that is likely to read ahead bytes more.
func (r *Reader) readAt(b []byte, offset, ahead int64) (n int, err error) {
	c, err := r.acquire()
	if err != nil {
		return 0, err
	}
	defer r.idle.Store(c)
	if offset < 0 {
		return 0, fmt.Errorf("read object at offset %d: %w", offset, base.ErrInvalid)
	}
	s := r.stretch(uint64(offset), uint64(len(b))+uint64(ahead))
	for n < len(b) {
		at := uint64(offset) + uint64(n)
		if at >= r.root.size {
			return n, io.EOF
		}
		part, err := s.part(c, at)
		if err != nil {
			return n, err
		}
		n += copy(b[n:], part)
	}
	return n, nil
}

// stretch is a part of an object that is read sequentially.
type stretch struct {
	r       *Reader
	far     Far // nil: pieces are brought one by one
	near    Source
	end     uint64
	brought uint64 // up to where
}

// stretch returns the stretch of n bytes at offset.
func (r *Reader) stretch(offset, n uint64) stretch {
	s := stretch{r: r, end: r.root.size}
	if n < s.end && offset < s.end-n {
		s.end = offset + n
	}
	if n >= leastBrought {
		if s.far, _ = r.src.(Far); s.far != nil {
			s.near = near{s.far}
		}
	}
	return s
}

// part is cursor.at that first brings the missing pieces of the stretch.
func (s *stretch) part(c *cursor, at uint64) ([]byte, error) {
	r := s.r
	if s.far == nil || at < s.brought {
		return c.at(r.ctx, r.src, r.root, at)
	}
	part, err := c.at(r.ctx, s.near, r.root, at)
	if !errors.Is(err, base.ErrNeedsFetch) {
		return part, err
	}
	s.brought = at + min(s.end-at, mostBrought)
	if err := Bring(r.ctx, s.far, Part{r.root.digest, r.root.size, at, s.brought}); err != nil {
		return nil, fmt.Errorf("bring bytes %d to %d: %w", at, s.brought, err)
	}
	return c.at(r.ctx, r.src, r.root, at)
}

// Part is the bytes From to To, exclusive, of the object with the given root piece and size.
type Part struct {
	Root           object.Digest
	Size, From, To uint64
}

// Bring brings the pieces that hold parts of objects: the index pieces level by level, and then all
// chunks, some of which upper levels may list. It holds the digests of all of them. Errors: those
// of the source and of ctx, *base.CorruptError, *base.FormatError.
func Bring(ctx context.Context, src Far, parts ...Part) error {
	type placed struct {
		span
		start uint64
		part  *Part
	}
	var level []placed
	for i := range parts {
		p := &parts[i]
		level = append(level, placed{span{p.Root, p.Size, true}, 0, p})
	}
	var chunks []object.Digest
	for depth := 0; len(level) > 0; depth++ {
		if depth > maxDepth {
			return tooDeep(level[0].part.Root)
		}
		indexes := level[:0]
		var ds []object.Digest
		for _, p := range level {
			if !p.digest.Kind().IsIndex() {
				chunks = append(chunks, p.digest)
				continue
			}
			indexes, ds = append(indexes, p), append(ds, p.digest)
		}
		if err := src.Bring(ctx, ds); err != nil {
			return err
		}
		level = nil
		for _, p := range indexes {
			_, x, err := load(ctx, src, p.span)
			if err != nil {
				return err
			}
			for i, start := 0, p.start; i < x.Len() && start < p.part.To; i++ {
				child := childSpan(x, i, p.last)
				if child.size < MinChunkBytes && !child.last {
					return corrupt(child.digest, "at least 4 KiB of content", sizeText(child.size))
				}
				if start+child.size > p.part.From {
					level = append(level, placed{child, start, p.part})
				}
				start += child.size
			}
		}
	}
	return src.Bring(ctx, chunks)
}

// Read implements io.Reader. It fills b unless the object ends or an error occurs before.
func (r *Reader) Read(b []byte) (n int, err error) {
	n, err = r.readAt(b, r.pos, r.run)
	r.pos, r.run = r.pos+int64(n), min(r.run+int64(n), mostBrought)
	if n > 0 && err == io.EOF {
		err = nil
	}
	return n, err
}

// Seek implements io.Seeker. A position after the end is allowed, one before the beginning gives
// base.ErrInvalid.
func (r *Reader) Seek(offset int64, whence int) (int64, error) {
	var from int64
	switch whence {
	case io.SeekStart:
	case io.SeekCurrent:
		from = r.pos
	case io.SeekEnd:
		from = r.Size()
	default:
		return 0, fmt.Errorf("seek in object with whence %d: %w", whence, base.ErrInvalid)
	}
	if offset > math.MaxInt64-from || from+offset < 0 {
		return 0, fmt.Errorf("seek in object from %d by %d: %w", from, offset, base.ErrInvalid)
	}
	if from+offset != r.pos {
		r.pos, r.run = from+offset, 0
	}
	return r.pos, nil
}

// WriteTo implements io.WriterTo: it writes everything from the position of Read on, chunk by
// chunk, without copying.
func (r *Reader) WriteTo(w io.Writer) (n int64, err error) {
	c, err := r.acquire()
	if err != nil {
		return 0, err
	}
	defer r.idle.Store(c)
	if r.root.size == 0 {
		_, err := c.at(r.ctx, r.src, r.root, 0) // finds a root that is not the empty chunk
		return 0, err
	}
	s := r.stretch(uint64(r.pos), r.root.size-min(uint64(r.pos), r.root.size))
	for uint64(r.pos) < r.root.size {
		part, err := s.part(c, uint64(r.pos))
		if err != nil {
			return n, err
		}
		m, err := w.Write(part)
		if m < 0 || m > len(part) || m < len(part) && err == nil {
			m, err = min(max(m, 0), len(part)), errors.Join(err, io.ErrShortWrite)
		}
		n += int64(m)
		r.pos += int64(m)
		if err != nil {
			return n, fmt.Errorf("write object at byte %d: %w", r.pos, err)
		}
	}
	return n, nil
}
