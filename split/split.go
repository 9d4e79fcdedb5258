package split

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
)

// Piece is a piece of an object that is being split.
type Piece struct {
	// Digest names the piece; its kind says whether it is a chunk or an index piece.
	Digest object.Digest
	// Content has 0 to limits.MaxPieceBytes bytes, valid until Emit returns.
	Content []byte
}

// Emit receives the pieces of an object one after another, children before the index pieces that
// list them, the root last. A piece that occurs several times in the object is emitted each time.
// An error ends the splitting.
type Emit func(ctx context.Context, p Piece) error

// bufferBytes is the size of the input buffer: enough to keep the bytes moved to its front few, and
// to give several cores chunks to digest.
const bufferBytes = 1 << 20

// The chunks cut at once are digested by up to maxWorkers goroutines if they have at least
// parallelBytes: SHA-256 takes several times as long as cutting.
const (
	maxWorkers    = 4
	parallelBytes = 128 << 10
)

// splitter cuts one object. Splitters are reused.
type splitter struct {
	table *Table
	tree  builder
	in    *bufio.Reader // nil before the first reader
	size  uint64
	cuts  []chunk
}

// chunk is a chunk that has been cut off, with the hash of its cut.
type chunk struct {
	content []byte
	hash    uint64
	digest  object.Digest
}

var splitters = sync.Pool{New: func() any { return new(splitter) }}

func newSplitter(t *Table, emit Emit) (*splitter, error) {
	if t == nil || emit == nil {
		return nil, fmt.Errorf("split an object without table or emit: %w", base.ErrInvalid)
	}
	p := splitters.Get().(*splitter)
	p.table, p.size = t, 0
	p.tree.reset(emit)
	return p, nil
}

// release returns p to the pool. It drops references to the caller's data.
func (p *splitter) release() {
	p.table, p.tree.emit = nil, nil
	clear(p.cuts)
	if p.in != nil {
		p.in.Reset(nil)
	}
	splitters.Put(p)
}

// Split reads r to its end, cuts the content with table t, and passes the pieces to emit. It
// returns the digest of the root piece and the size of the content in bytes. An empty r makes one
// empty chunk.
//
// It blocks in r and emit, holds at most 1 MiB of the content, and checks ctx before each read.
// When it fails, pieces may have been emitted. Errors: those of ctx, r or emit, wrapped;
// io.ErrNoProgress when r repeatedly returns nothing.
func Split(ctx context.Context, t *Table, r io.Reader, emit Emit) (root object.Digest, size uint64, err error) {
	p, err := newSplitter(t, emit)
	if err != nil {
		return object.Digest{}, 0, err
	}
	defer p.release()
	if p.in == nil {
		p.in = bufio.NewReaderSize(nil, bufferBytes)
	}
	p.in.Reset(source{ctx, r})
	return p.run(ctx, p.in.Peek, func(n int) { _, _ = p.in.Discard(n) }) // n bytes are there
}

// source is the input of a splitter. It ends with its context.
type source struct {
	ctx context.Context
	r   io.Reader
}

// Read implements io.Reader.
func (s source) Read(b []byte) (int, error) {
	if err := s.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := s.r.Read(b)
	if n < 0 || n > len(b) {
		return 0, fmt.Errorf("reader says that it read %d bytes into %d: %w", n, len(b), base.ErrInvalid)
	}
	return n, err
}

// run cuts the object whose next n bytes peek returns, or fewer bytes with io.EOF at its end. skip
// skips bytes that peek has returned.
func (p *splitter) run(ctx context.Context, peek func(n int) ([]byte, error), skip func(n int)) (root object.Digest, size uint64, err error) {
	for last := false; !last; {
		b, err := peek(bufferBytes)
		if last = err == io.EOF; err != nil && !last {
			return object.Digest{}, 0, fmt.Errorf("read object at byte %d: %w", p.size+uint64(len(b)), err)
		}
		used, err := p.consume(ctx, b, last)
		if err != nil {
			return object.Digest{}, 0, err
		}
		skip(used)
	}
	return p.finish(ctx)
}

// SplitBytes is Split for content in memory, which it does not retain. It checks ctx every MiB.
func SplitBytes(ctx context.Context, t *Table, b []byte, emit Emit) (root object.Digest, err error) {
	p, err := newSplitter(t, emit)
	if err != nil {
		return object.Digest{}, err
	}
	defer p.release()
	peek := func(n int) ([]byte, error) {
		if len(b) <= n {
			return b, cmp.Or(ctx.Err(), io.EOF)
		}
		return b[:n], ctx.Err()
	}
	root, _, err = p.run(ctx, peek, func(n int) { b = b[n:] })
	return root, err
}

// consume cuts off the chunks of b, the last one only when last says that b ends the object: the
// length of a chunk may depend on the MaxChunkBytes from its beginning. It returns the number of
// bytes used.
func (p *splitter) consume(ctx context.Context, b []byte, last bool) (used int, err error) {
	p.cuts = p.cuts[:0]
	for left := len(b); left >= MaxChunkBytes || last && left > 0; left = len(b) - used {
		n, h := p.table.cut(b[used:])
		p.cuts = append(p.cuts, chunk{content: b[used : used+n], hash: h})
		used += n
	}
	p.digest(used)
	for i := range p.cuts {
		if err := p.tree.chunk(ctx, &p.cuts[i]); err != nil {
			return used, err
		}
		p.size += uint64(len(p.cuts[i].content))
	}
	return used, nil
}

// digest computes the digests of the cut chunks, whose total size is bytes.
func (p *splitter) digest(bytes int) {
	workers := 1
	if bytes >= parallelBytes {
		workers = min(runtime.GOMAXPROCS(0), maxWorkers, len(p.cuts))
	}
	if workers == 1 {
		for i := range p.cuts {
			p.cuts[i].digest = object.Sum(object.Chunk, p.cuts[i].content)
		}
		return
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(p.cuts)); i = next.Add(1) - 1 {
				p.cuts[i].digest = object.Sum(object.Chunk, p.cuts[i].content)
			}
		})
	}
	wg.Wait()
}

func (p *splitter) finish(ctx context.Context) (object.Digest, uint64, error) {
	if p.size == 0 {
		if err := p.tree.chunk(ctx, &chunk{digest: object.Sum(object.Chunk, nil)}); err != nil {
			return object.Digest{}, 0, err
		}
	}
	root, err := p.tree.finish(ctx)
	if err != nil {
		return object.Digest{}, 0, err
	}
	return root.Digest, p.size, nil
}
