package split

import (
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/object"
)

// Source returns pieces by their digests. It verifies that the content has the digest; this package
// checks the rest. Its methods may be called concurrently.
type Source interface {
	// Piece returns the content of d, which is shared and immutable. It may block for the disk or
	// the network. The errors are those of the source, base.ErrNotFound and base.ErrNeedsFetch
	// among them.
	Piece(ctx context.Context, d object.Digest) ([]byte, error)
}

// Far is a Source with some remote pieces, which can bring several of them at a lower cost than one
// after the other.
type Far interface {
	Source
	// Near is Piece for local pieces; base.ErrNeedsFetch for all others.
	Near(ctx context.Context, d object.Digest) ([]byte, error)
	// Bring brings the given pieces that are remote. Piece may still have to bring some of them. It
	// may block for the network; errors are as for Piece.
	Bring(ctx context.Context, ds []object.Digest) error
}

// near reads only local pieces.
type near struct{ Far }

// Piece implements Source.
func (s near) Piece(ctx context.Context, d object.Digest) ([]byte, error) { return s.Near(ctx, d) }

// span is a piece and the part of its object that it must hold.
type span struct {
	digest object.Digest
	size   uint64
	// last says that the object ends with the piece.
	last bool
}

// load reads the piece of s and checks it against s.
func load(ctx context.Context, src Source, s span) ([]byte, flatbuffers.Index, error) {
	content, err := read(ctx, src, s.digest)
	if err != nil {
		return nil, flatbuffers.Index{}, err
	}
	if s.digest.Kind().IsIndex() {
		x, err := parseIndex(s.digest, content)
		if err == nil && x.Size() != s.size {
			err = corrupt(s.digest, sizeText(s.size), sizeText(x.Size()))
		}
		return nil, x, err
	}
	if uint64(len(content)) != s.size {
		return nil, flatbuffers.Index{}, corrupt(s.digest, sizeText(s.size), sizeText(uint64(len(content))))
	}
	return content, flatbuffers.Index{}, checkChunk(s)
}

func read(ctx context.Context, src Source, d object.Digest) ([]byte, error) {
	if d.Kind() > object.Index {
		return nil, corrupt(d, "a piece of a value", d.Kind().String())
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("read piece %s: %w", d, err)
	}
	content, err := src.Piece(ctx, d)
	if err != nil {
		return nil, fmt.Errorf("read piece %s: %w", d, err)
	}
	return content, nil
}

// checkChunk checks the size of a chunk without reading it.
func checkChunk(s span) error {
	if s.size > limits.MaxPieceBytes {
		return corrupt(s.digest, "chunk of at most 64 KiB", sizeText(s.size))
	}
	if s.size < MinChunkBytes && !s.last {
		return corrupt(s.digest, "chunk of at least 4 KiB", sizeText(s.size))
	}
	return nil
}

// parseIndex parses the content of the index piece d.
func parseIndex(d object.Digest, content []byte) (flatbuffers.Index, error) {
	x, err := flatbuffers.ParseIndex(content)
	if errors.Is(err, base.ErrUnsupported) {
		return x, fmt.Errorf("read piece %s: %w", d, err)
	}
	if err != nil {
		return flatbuffers.Index{}, &base.CorruptError{Where: "piece", Key: d.String(), Err: err}
	}
	return x, nil
}

func sizeText(n uint64) string { return fmt.Sprintf("%d bytes of content", n) }

func corrupt(d object.Digest, want, got string) error {
	return &base.CorruptError{Where: "piece", Key: d.String(), Want: want, Got: got}
}

func tooDeep(d object.Digest) error {
	return corrupt(d, fmt.Sprintf("at most %d levels of index pieces", maxDepth), "more")
}

// Children returns the pieces that the piece d with the given content lists, in order and with
// repetitions; nil for a chunk. It retains nothing of content, and does not check that content has
// the digest d. Errors: *base.CorruptError, *base.FormatError.
func Children(d object.Digest, content []byte) ([]object.Digest, error) {
	if d.Kind() > object.Index {
		return nil, corrupt(d, "a piece of a value", d.Kind().String())
	}
	if !d.Kind().IsIndex() {
		return nil, nil
	}
	x, err := parseIndex(d, content)
	if err != nil {
		return nil, err
	}
	ds := make([]object.Digest, x.Len())
	for i := range ds {
		c := x.Child(i)
		if !c.Digest.Kind().IsIndex() && c.Size > limits.MaxPieceBytes {
			return nil, corrupt(c.Digest, "chunk of at most 64 KiB", sizeText(c.Size))
		}
		ds[i] = c.Digest
	}
	return ds, nil
}

// Walk calls fn for every piece of the object with the given root: an index piece before its
// children, chunks in the order of the content, each as often as it occurs. size is the number of
// bytes of content below the piece. Walk reads the root and the index pieces, but no other chunk.
// It ends with the first error of fn, which it returns unchanged; others are those of the source,
// wrapped, of ctx, *base.CorruptError and *base.FormatError.
func Walk(ctx context.Context, src Source, root object.Digest, fn func(d object.Digest, size uint64) error) error {
	content, err := read(ctx, src, root)
	if err != nil {
		return err
	}
	if !root.Kind().IsIndex() {
		return visitChunk(span{root, uint64(len(content)), true}, fn)
	}
	x, err := parseIndex(root, content)
	if err != nil {
		return err
	}
	return walkIndex(ctx, src, x, span{root, x.Size(), true}, 1, fn)
}

func visitChunk(s span, fn func(d object.Digest, size uint64) error) error {
	if err := checkChunk(s); err != nil {
		return err
	}
	return fn(s.digest, s.size)
}

// walkIndex visits the index piece of s, already read, and all below it.
func walkIndex(ctx context.Context, src Source, x flatbuffers.Index, s span, depth int, fn func(d object.Digest, size uint64) error) error {
	if depth > maxDepth {
		return tooDeep(s.digest)
	}
	if err := fn(s.digest, s.size); err != nil {
		return err
	}
	for i := range x.Len() {
		c := childSpan(x, i, s.last)
		if !c.digest.Kind().IsIndex() {
			if err := visitChunk(c, fn); err != nil {
				return err
			}
			continue
		}
		_, below, err := load(ctx, src, c)
		if err != nil {
			return err
		}
		if err := walkIndex(ctx, src, below, c, depth+1, fn); err != nil {
			return err
		}
	}
	return nil
}

// childSpan returns child i of x; last says that the object ends with x.
func childSpan(x flatbuffers.Index, i int, last bool) span {
	c := x.Child(i)
	return span{c.Digest, c.Size, last && i == x.Len()-1}
}
