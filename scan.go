package ledger

import (
	"context"
	"iter"

	"github.com/ledgerd/ledger/internal/session"
)

// ScanOptions select entries. The zero value selects all of them, in ascending order.
type ScanOptions struct {
	// Prefix limits the keys to those that begin with it.
	Prefix []byte
	// Start is the lower limit of the keys, inclusive, and End the upper limit, exclusive; nil
	// means no limit. Both keep this meaning with Reverse, and select among the keys with Prefix.
	Start, End []byte
	// Reverse gives the entries in descending order.
	Reverse bool
	// KeysOnly leaves inline values out of the entries, to save the copy. Entry.Value still reads
	// them.
	KeysOnly bool
	// Limit is the greatest number of entries; 0 means no limit.
	Limit int
}

// Iter walks over entries with borrowed memory. It is for one goroutine at a time:
//
//	it := snapshot.Iter(ledger.ScanOptions{})
//	for it.Next(ctx) {
//		value, err := it.Value(ctx)
//		if err != nil {
//			return err
//		}
//		use(it.Key(), value)
//	}
//	return it.Err()
type Iter session.Iter

func (it *Iter) in() *session.Iter { return (*session.Iter)(it) }

// Next moves to the next entry, at first to the first one. It returns false at the end and on an
// error; see Err. It checks ctx, and whether the source is still open, between tree nodes, not at
// each entry.
func (it *Iter) Next(ctx context.Context) bool {
	return (*session.Iter)(it).Next(ctx) // with in, it would be too long to be inlined
}

// Key returns the entry's key, borrowed until the next call of Next; nil where there is no entry:
// before the first call of Next, and after one that returned false.
func (it *Iter) Key() []byte { return it.in().Key() }

// Value reads the entry's value into memory, whatever its length. It belongs to the caller;
// InlineValue avoids the copy of a short value. Errors: as Entry.Value; ErrInvalid before the first
// Next and after the last.
func (it *Iter) Value(ctx context.Context) ([]byte, error) { return it.in().Value(ctx) }

// InlineValue returns the entry's value, borrowed until the next call of Next, when it is inline:
// at most 256 bytes, stored in the tree entry itself. For any other value, and where there is no
// entry, ok is false. Value reads values of any length.
func (it *Iter) InlineValue() (value []byte, ok bool) { return it.in().InlineValue() }

// Size returns the length of the entry's value in bytes; 0 where there is no entry.
func (it *Iter) Size() int64 { return it.in().Size() }

// Err returns the error that ended the walk, nil at a regular end.
func (it *Iter) Err() error { return it.in().Err() }

// all returns the remaining entries as a sequence.
func (it *Iter) all(ctx context.Context) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		for it.Next(ctx) {
			e := it.in().Current()
			if !yield(newEntry(it.in().Origin(), &e, !it.in().KeysOnly()), nil) {
				return
			}
		}
		if err := it.Err(); err != nil {
			yield(Entry{}, err)
		}
	}
}
