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
func (e Entry) Open(ctx context.Context) (*Value, error) {
	f, err := e.load(ctx)
	if err != nil {
		return nil, err
	}
	return (*Value)(session.OpenValue(ctx, e.from, &f)), nil
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
// and with ErrCorrupt when a piece is damaged.
type Value session.Value

var (
	_ io.ReadSeekCloser = (*Value)(nil)
	_ io.ReaderAt       = (*Value)(nil)
	_ io.WriterTo       = (*Value)(nil)
)

func (v *Value) in() *session.Value { return (*session.Value)(v) }

// Size returns the length of the value in bytes.
func (v *Value) Size() int64 { return v.in().Size() }

// Read implements io.Reader.
func (v *Value) Read(b []byte) (int, error) { return v.in().Read(b) }

// ReadAt implements io.ReaderAt. It reads only the pieces that overlap the range. Errors:
// ErrInvalid for a negative offset, and those of the type.
func (v *Value) ReadAt(b []byte, off int64) (int, error) { return v.in().ReadAt(b, off) }

// Seek implements io.Seeker. A position after the end is allowed. Errors: ErrInvalid.
func (v *Value) Seek(offset int64, whence int) (int64, error) { return v.in().Seek(offset, whence) }

// WriteTo implements io.WriterTo: it writes the rest of the value, piece by piece.
func (v *Value) WriteTo(w io.Writer) (int64, error) { return v.in().WriteTo(w) }

// Close releases the value. It is idempotent and always returns nil.
func (v *Value) Close() error { return v.in().Close() }
