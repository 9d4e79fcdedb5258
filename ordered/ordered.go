package ordered

import (
	"bytes"
	"context"
	"io"
	"iter"

	"github.com/ledgerd/ledger/internal/base"
)

// Range selects keys k with Start <= k < End. A nil bound means no limit on that side.
type Range struct {
	// Start is the lower limit, inclusive, and End the upper limit, exclusive, also with Reverse.
	Start, End []byte
	// Reverse gives the keys in descending order.
	Reverse bool
	// KeysOnly hints that values are rarely read.
	KeysOnly bool
}

// Prefix returns the range of all keys that begin with p.
func Prefix(p []byte) Range { return Range{Start: p, End: PrefixEnd(p)} }

// PrefixEnd returns the first key after all keys that begin with p, nil when there is none. It does
// not share memory with p.
func PrefixEnd(p []byte) []byte { return base.PrefixEnd(p) }

// Reader reads one version of a store.
type Reader interface {
	// Get returns the value of key, which then belongs to the caller. Errors: base.ErrNotFound,
	// those of the store and of ctx.
	Get(ctx context.Context, key []byte) ([]byte, error)
	// Open returns a reader of the value of key, for values that need not fit into memory. Errors:
	// as Get.
	Open(ctx context.Context, key []byte) (Value, error)
	// Seek returns the first key at or after key, which then belongs to the caller. Errors: as Get;
	// base.ErrNotFound when no key follows.
	Seek(ctx context.Context, key []byte) ([]byte, error)
	// Iter walks over the keys that r selects. An invalid range selects nothing. The caller must
	// close the Iter.
	Iter(r Range) Iter
}

// Writer is a Reader of a transaction that also changes it. Reads and walks see the changes; a walk
// sees those at keys that it has not reached. Keys and values are not retained.
type Writer interface {
	Reader
	// Put stores value under key. Errors: those of the store, such as its limit on keys, and of
	// ctx.
	Put(ctx context.Context, key, value []byte) error
	// PutReader stores the bytes of r until io.EOF under key. size is their number, -1 when
	// unknown. r is not closed. When it fails, key keeps its value.
	PutReader(ctx context.Context, key []byte, r io.Reader, size int64) error
	// Delete removes key. It is no error when key has no value.
	Delete(ctx context.Context, key []byte) error
	// DeleteRange removes all keys k with from <= k < to; nil means no limit on that side.
	DeleteRange(ctx context.Context, from, to []byte) error
}

// Iter walks over keys in order. Before the first call of Next it has no key.
//
//	it := r.Iter(ordered.Prefix(p))
//	defer it.Close()
//	for it.Next(ctx) {
//		use(it.Key())
//	}
//	return it.Err()
type Iter interface {
	// Next moves to the next key. It returns false at the end and on an error; see Err.
	Next(ctx context.Context) bool
	// Key is borrowed until the next call of Next or Close.
	Key() []byte
	// Value reads the value into memory. It is borrowed until the next call of Next or Close.
	// Errors: those of the store and of ctx.
	Value(ctx context.Context) ([]byte, error)
	// Size is the length of the value in bytes.
	Size() int64
	// Err returns the error that ended the walk, nil at a regular end.
	Err() error
	// Close ends the walk. It is idempotent.
	Close() error
}

// Value reads one value. It is valid while the Reader that opened it is.
type Value interface {
	io.Reader
	io.ReaderAt
	io.Closer
	// Size is the length of the value in bytes.
	Size() int64
}

// Row is a key with its value.
type Row struct{ Key, Value []byte }

// Rows returns the rows that rg selects, as copies that belong to the caller. An error ends the
// sequence.
func Rows(ctx context.Context, r Reader, rg Range) iter.Seq2[Row, error] {
	return func(yield func(Row, error) bool) {
		it := r.Iter(rg)
		defer it.Close()
		for it.Next(ctx) {
			v, err := it.Value(ctx)
			if !yield(Row{bytes.Clone(it.Key()), bytes.Clone(v)}, err) || err != nil {
				return
			}
		}
		if err := it.Err(); err != nil {
			yield(Row{}, err)
		}
	}
}
