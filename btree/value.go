package btree

import (
	"bytes"
	"context"
	"io"

	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/split"

	fb "github.com/ledgerd/ledger/flatbuffers"
)

// PutValue passes the pieces of a value, cut by t, to sink, and returns the value's entry without a
// key. A value of up to InlineLimit bytes is in the entry itself, and then always eager. value is
// not retained. Errors: those of the sink, that of ctx.
func PutValue(ctx context.Context, sink Sink, t *split.Table, value []byte, p object.Priority) (fb.Entry, error) {
	if len(value) <= InlineLimit {
		return inlineEntry(bytes.Clone(value)), nil
	}
	root, err := split.SplitBytes(ctx, t, value, emitTo(sink))
	return fb.Entry{Digest: root, Size: uint64(len(value)), Priority: p}, err
}

// PutReader is PutValue for the bytes of r up to io.EOF; memory does not depend on their number.
// ctx does not interrupt a blocking Read of r. Errors: those of PutValue and of r.
func PutReader(ctx context.Context, sink Sink, t *split.Table, r io.Reader, p object.Priority) (fb.Entry, error) {
	var inline []byte
	first, emit := true, emitTo(sink)
	root, size, err := split.Split(ctx, t, r, func(ctx context.Context, s split.Piece) error {
		if first && len(s.Content) <= InlineLimit { // such a short first chunk is the whole value
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

// emitTo returns a function that passes pieces to a sink.
func emitTo(sink Sink) split.Emit {
	return func(ctx context.Context, p split.Piece) error { return sink.PutPiece(ctx, p.Digest, p.Content) }
}
