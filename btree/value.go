package btree

import (
	"bytes"
	"context"
	"io"

	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/split"

	fb "github.com/ledgerd/ledger/flatbuffers"
)

// PutValue gives sink the pieces of a value, cut by t, and returns its entry, without a key. A
// value of up to InlineLimit bytes is in the entry itself, and then always eager. value is not
// retained. Errors: those of the sink, that of ctx.
func PutValue(ctx context.Context, sink Sink, t *split.Table, value []byte, p object.Priority) (fb.Entry, error) {
	if len(value) <= InlineLimit {
		return inlineEntry(bytes.Clone(value)), nil
	}
	root, err := split.SplitBytes(ctx, t, object.Chunk, value, emitTo(sink))
	return fb.Entry{Digest: root, Size: uint64(len(value)), Priority: p}, err
}

// PutReader is PutValue for what r gives until io.EOF; memory does not depend on its length. A Read
// of r that blocks is not interrupted by ctx. Errors: those of PutValue and of r.
func PutReader(ctx context.Context, sink Sink, t *split.Table, r io.Reader, p object.Priority) (fb.Entry, error) {
	var inline []byte
	first, emit := true, emitTo(sink)
	root, size, err := split.Split(ctx, t, object.Chunk, r, func(ctx context.Context, s split.Piece) error {
		if first && len(s.Content) <= InlineLimit { // a first chunk that short is all of the value
			inline = bytes.Clone(s.Content)
			return nil
		}
		first = false
		return emit(ctx, s)
	})
	if err == nil && size <= InlineLimit {
		return inlineEntry(inline), nil
	}
	return fb.Entry{Digest: root, Size: size, Priority: p}, err
}

func inlineEntry(value []byte) fb.Entry {
	return fb.Entry{Inline: true, Value: value, Size: uint64(len(value))}
}

// emitTo returns what gives pieces to a sink.
func emitTo(sink Sink) split.Emit {
	return func(ctx context.Context, p split.Piece) error { return sink.PutPiece(ctx, p.Digest, p.Content) }
}
