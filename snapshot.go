package ledger

import (
	"context"
	"iter"

	"github.com/ledgerd/ledger/internal/session"
)

// Reader has the ordered reads of one version of a page. Snapshot and Tx have one: that of a Tx
// reads its own changes, too. A function that reads from either takes a Reader, by value. It is
// valid, and safe for concurrent use, as the Snapshot or Tx from which it comes. The zero Reader
// cannot be used.
type Reader struct{ in session.Reader }

// Get returns the value of key, which belongs to the caller. It reads the whole value into memory;
// see Open for long values. A value that is only in the cloud is fetched. Errors: ErrNotFound,
// ErrNeedsFetch, ErrNetwork, ErrTooLarge (it does not fit into memory), ErrClosed, ErrTxDone,
// ErrCorrupt, those of ctx.
func (r Reader) Get(ctx context.Context, key []byte) ([]byte, error) { return r.in.Get(ctx, key) }

// Stat returns the entry of key without reading its value, which may be in the cloud. Errors:
// ErrNotFound, ErrClosed, ErrTxDone, ErrCorrupt, those of ctx.
func (r Reader) Stat(ctx context.Context, key []byte) (Entry, error) {
	e, err := r.in.Lookup(ctx, key)
	if err != nil {
		return Entry{}, err
	}
	return newEntry(r.in.Origin(), &e, true), nil
}

// Open returns a reader of the value of key, which streams it. ctx governs all reads of the Value;
// later changes of a transaction do not affect it. Errors: as Stat; the reads return those of
// fetching.
func (r Reader) Open(ctx context.Context, key []byte) (Value, error) {
	e, err := r.in.Lookup(ctx, key)
	if err != nil {
		return nil, err
	}
	return session.OpenValue(ctx, r.in.Origin(), &e), nil
}

// Seek returns the first key at or after key; it belongs to the caller. It costs as much as a Get,
// and less than an Iter. Errors: as Stat; ErrNotFound when no key follows.
func (r Reader) Seek(ctx context.Context, key []byte) ([]byte, error) { return r.in.Seek(ctx, key) }

// Scan returns the entries that o selects, in order of their keys. Keys and inline values belong to
// the caller. The loop body may change a transaction: its scan sees changes at keys that it has not
// reached. Errors, as the last element: ErrClosed, ErrTxDone, ErrCorrupt, ErrInvalid (negative
// Limit), those of ctx.
func (r Reader) Scan(ctx context.Context, o ScanOptions) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) { r.Iter(o).all(ctx)(yield) }
}

// Iter returns an iterator over the entries that o selects, without an allocation per entry. It
// needs no Close. Iter.Err returns the errors of Scan.
func (r Reader) Iter(o ScanOptions) *Iter { return (*Iter)(r.in.Iter(session.ScanOptions(o))) }

// Snapshot is an immutable version of a page. Its commit is not pruned before Close. It is safe for
// concurrent use.
type Snapshot struct {
	Reader
	in *session.Snapshot
}

func newSnapshot(in *session.Snapshot) *Snapshot { return &Snapshot{Reader{in}, in} }

// Commit returns the commit that the snapshot shows.
func (s *Snapshot) Commit() Commit { return newCommit(s.in.Commit()) }

// Close releases the commit. It is idempotent and always returns nil. Later reads fail with
// ErrClosed.
func (s *Snapshot) Close() error {
	s.in.Close()
	return nil
}
