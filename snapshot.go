package ledger

import (
	"context"
	"iter"

	"github.com/ledgerd/ledger/internal/session"
)

// Reader is what a Snapshot and a Tx have in common: ordered reading of one version of a page.
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

// Snapshot is an immutable version of a page. Its commit is kept from being pruned until Close. It
// is safe for concurrent use.
type Snapshot session.Snapshot

func (s *Snapshot) in() *session.Snapshot { return (*session.Snapshot)(s) }

// Commit returns the commit that the snapshot shows.
func (s *Snapshot) Commit() Commit { return newCommit(s.in().Commit()) }

// Prefix returns the same snapshot limited to the keys that begin with prefix, which it copies,
// within the limit that s has: when the two exclude each other, nothing is left. Keys are not
// stripped; a key outside the limit is not found. Closing either closes both.
func (s *Snapshot) Prefix(prefix []byte) *Snapshot { return (*Snapshot)(s.in().Prefix(prefix)) }

// Close releases the commit. It is idempotent and always returns nil. Reads that come later fail
// with ErrClosed.
func (s *Snapshot) Close() error {
	s.in().Close()
	return nil
}

// Get returns the value of key, which belongs to the caller. A value is read into memory wholly;
// see Open for long ones. One that is in the cloud only is fetched. Errors: ErrNotFound,
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

// Open returns a reader of the value of key. Memory does not depend on the value's size. ctx
// governs all reads of the Value. Errors: as Stat; those of fetching come with the reads.
func (s *Snapshot) Open(ctx context.Context, key []byte) (*Value, error) {
	v, err := s.in().Open(ctx, key)
	return (*Value)(v), err
}

// Seek returns the first key that is not below key; it belongs to the caller. It is what an Iter
// from key on gives first, in the time of a Get. Errors: as Get; ErrNotFound when no key follows.
func (s *Snapshot) Seek(ctx context.Context, key []byte) ([]byte, error) {
	return s.in().Seek(ctx, key)
}

// Scan returns the entries that o selects, in order of their keys, with keys and inline values that
// belong to the caller. Errors, as the last element: ErrClosed, ErrCorrupt, ErrInvalid (negative
// Limit), those of ctx.
func (s *Snapshot) Scan(ctx context.Context, o ScanOptions) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) { s.Iter(o).all(ctx)(yield) }
}

// Iter returns an iterator over the entries that o selects, which allocates nothing for each of
// them. It must be closed.
func (s *Snapshot) Iter(o ScanOptions) *Iter { return (*Iter)(s.in().Iter(session.ScanOptions(o))) }
