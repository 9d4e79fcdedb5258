package ledger

import (
	"bytes"
	"context"
	"fmt"
	"io"

	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/session"
	"github.com/ledgerd/ledger/object"
)

// Entry is one key of a page with the metadata of its value. It may be copied. The value may be
// read while its source is open: the snapshot or transaction, or, after a Diff, the page.
type Entry struct {
	Key []byte
	// Size is the length of the value in bytes.
	Size int64
	// Priority says when the value is downloaded from the cloud.
	Priority Priority
	// Inline reports that the value is stored in the tree entry itself.
	Inline bool
	// Object is the digest of the value's root piece, 66 hexadecimal digits; "" when Inline.
	Object string

	from   session.Origin
	digest object.Digest
	value  []byte // when Inline and held
	held   bool
}

// newEntry makes an Entry that shares nothing with e.
func newEntry(from session.Origin, e *fb.Entry, withValue bool) Entry {
	out := Entry{
		Key: bytes.Clone(e.Key), Size: int64(e.Size), Priority: e.Priority, Inline: e.Inline, from: from, digest: e.Digest,
	}
	if out.Key == nil {
		out.Key = []byte{}
	}
	if !e.Inline {
		out.Object = e.Digest.String()
	} else if withValue {
		out.value, out.held = bytes.Clone(e.Value), true
	}
	return out
}

// Value reads the value into memory. It belongs to the caller. Errors: ErrNeedsFetch, ErrNetwork,
// ErrTooLarge (it does not fit into memory), ErrClosed, ErrTxDone, ErrCorrupt, those of ctx.
func (e Entry) Value(ctx context.Context) ([]byte, error) {
	f, err := e.load(ctx)
	if err != nil {
		return nil, err
	}
	return session.ReadValue(ctx, e.from, &f)
}

// Open returns a reader of the value. ctx governs all its reads. Errors: as Value.
func (e Entry) Open(ctx context.Context) (Value, error) {
	f, err := e.load(ctx)
	if err != nil {
		return nil, err
	}
	return session.OpenValue(ctx, e.from, &f), nil
}

// load returns e as stored in the tree.
func (e Entry) load(ctx context.Context) (fb.Entry, error) {
	if e.from == nil {
		return fb.Entry{}, fmt.Errorf("read the value of an entry that comes from no page: %w", ErrInvalid)
	}
	f := fb.Entry{Key: e.Key, Inline: e.Inline, Value: e.value, Digest: e.digest, Size: uint64(e.Size), Priority: e.Priority}
	if !e.Inline || e.held {
		return f, nil
	}
	found, ok, err := session.Find(ctx, e.from, e.Key)
	if err == nil && !ok {
		err = fmt.Errorf("read value: the transaction has deleted the entry since: %w", ErrNotFound)
	}
	return found, err
}

// Value reads the value of one entry. It holds a few pieces in memory, whatever the value's size.
// It is for one goroutine at a time, except ReadAt, which may be called concurrently. It is valid
// while its snapshot or transaction is open, after a Diff its page: later reads fail with ErrClosed
// or ErrTxDone. A piece that is only in the cloud is fetched. Reads fail with ErrNeedsFetch when
// there is no cloud or the repository is read-only, with ErrNetwork when the cloud is unreachable,
// and with ErrCorrupt when a piece is damaged; ReadAt and Seek fail with ErrInvalid for a negative
// offset. Close always returns nil.
type Value interface {
	io.ReadSeekCloser
	io.ReaderAt // reads only the pieces that overlap the range
	io.WriterTo // writes the rest of the value, piece by piece
	// Size returns the length of the value in bytes.
	Size() int64
}
