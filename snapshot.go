package ledger

import (
	"context"
	"iter"

	"github.com/ledgerd/ledger/internal/session"
)

// Reader is the common interface of Snapshot and Tx: ordered reads of one version of a page.
type Reader interface {
	Get(ctx context.Context, key []byte) ([]byte, error)
	Stat(ctx context.Context, key []byte) (Entry, error)
	Open(ctx context.Context, key []byte) (*Value, error)
	Scan(ctx context.Context, o ScanOptions) iter.Seq2[Entry, error]
	Iter(o ScanOptions) *Iter
	Seek(ctx context.Context, key []byte) ([]byte, error)
}

var (
	_ Reader = (*Snapshot)(nil)
	_ Reader = (*Tx)(nil)
)

// Snapshot is an immutable version of a page. Its commit is not pruned before Close. It is safe for
// concurrent use.
type Snapshot session.Snapshot

func (s *Snapshot) in() *session.Snapshot { return (*session.Snapshot)(s) }

// Commit returns the commit that the snapshot shows.
func (s *Snapshot) Commit() Commit { return newCommit(s.in().Commit()) }

// Prefix returns a view of s limited to the keys that begin with prefix, and to the limit of s;
// with disjoint limits it is empty. prefix is copied. Keys are not stripped; a key outside the
// limit is not found. Closing either snapshot closes both.
func (s *Snapshot) Prefix(prefix []byte) *Snapshot { return (*Snapshot)(s.in().Prefix(prefix)) }

// Close releases the commit. It is idempotent and always returns nil. Later reads fail with
// ErrClosed.
func (s *Snapshot) Close() error {
	s.in().Close()
	return nil
}

// Get returns the value of key, which belongs to the caller. It reads the whole value into memory;
// see Open for long values. A value that is only in the cloud is fetched. Errors: ErrNotFound,
// ErrNeedsFetch, ErrNetwork, ErrTooLarge (it does not fit into memory), ErrClosed, ErrCorrupt,
// those of ctx.
func (s *Snapshot) Get(ctx context.Context, key []byte) ([]byte, error) { return s.in().Get(ctx, key) }

// Stat returns the entry of key without reading its value. Errors: ErrNotFound, ErrClosed,
// ErrCorrupt, those of ctx.
func (s *Snapshot) Stat(ctx context.Context, key []byte) (Entry, error) {
	e, err := s.in().Lookup(ctx, key)
	if err != nil {
		return Entry{}, err
	}
	return newEntry(s.in().Origin(), &e, true), nil
}

// Open returns a reader of the value of key, which streams it. ctx governs all reads of the Value.
// Errors: as Stat; the reads return those of fetching.
func (s *Snapshot) Open(ctx context.Context, key []byte) (*Value, error) {
	v, err := s.in().Open(ctx, key)
	return (*Value)(v), err
}

// Seek returns the first key at or after key; it belongs to the caller. It costs as much as a Get,
// and less than an Iter. Errors: as Get; ErrNotFound when no key follows.
func (s *Snapshot) Seek(ctx context.Context, key []byte) ([]byte, error) {
	return s.in().Seek(ctx, key)
}

// Scan returns the entries that o selects, in order of their keys. Keys and inline values belong to
// the caller. Errors, as the last element: ErrClosed, ErrCorrupt, ErrInvalid (negative Limit),
// those of ctx.
func (s *Snapshot) Scan(ctx context.Context, o ScanOptions) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) { s.Iter(o).all(ctx)(yield) }
}

// Iter returns an iterator over the entries that o selects, without an allocation per entry. The
// caller must close it.
func (s *Snapshot) Iter(o ScanOptions) *Iter { return (*Iter)(s.in().Iter(session.ScanOptions(o))) }
