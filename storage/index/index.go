package index

import (
	"fmt"

	"github.com/ledgerd/ledger/internal/base"
)

// Bounds of one row; they are bbolt's, and apply to memory too.
const (
	// MaxKeyBytes is the greatest length of a key.
	MaxKeyBytes = 32768
	// MaxValueBytes is the greatest length of a value.
	MaxValueBytes = 1 << 30
)

// DB holds buckets of sorted rows. *File and *Memory implement it. It is safe for concurrent use.
type DB interface {
	// View runs fn on the state that the last finished Update left, which does not change
	// meanwhile. It returns fn's error, unless the rows turned out to be damaged: then a
	// *base.CorruptError, whatever fn returned. Errors of its own: base.ErrClosed.
	View(fn func(Tx) error) error
	// Update runs fn alone among updates. When fn returns nil, Update makes its changes durable
	// (unless Options.NoSync) and visible all at once. When fn returns an error, nothing is changed
	// and Update returns that error. It waits for a running Update. Errors of its own:
	// base.ErrClosed, base.ErrReadOnly, base.ErrNoSpace, *base.CorruptError.
	Update(fn func(Tx) error) error
	// Close waits for running transactions and releases everything. It is idempotent.
	Close() error
}

// Tx is a transaction. One goroutine uses it, until the function that received it returns.
type Tx interface {
	// Bucket returns the bucket with that name, which is not empty. When there is none, an Update
	// makes it, and a View returns nil. After damage it is not nil but has no rows and refuses
	// changes.
	Bucket(name string) Bucket
}

// Bucket is a set of rows sorted by key, bytewise. Slices that it returns are read-only and valid
// until the transaction ends.
type Bucket interface {
	// Get returns the value of k: nil when there is no such row, empty but not nil for an empty
	// value.
	Get(k []byte) []byte
	// Put sets the value of k. Neither slice may be changed until the transaction ends. Errors:
	// base.ErrReadOnly in a View, base.ErrInvalid for an empty key, base.ErrTooLarge.
	Put(k, v []byte) error
	// Delete removes the row of k; a missing row is no error. Errors: base.ErrReadOnly in a View.
	Delete(k []byte) error
	// Cursor returns a cursor without a position.
	Cursor() Cursor
	// SetFillPercent sets the fill factor of pages that this transaction splits, from 0.1 to 1.0;
	// the default is 0.5. For rows in ascending order 1.0 is best. Memory ignores it.
	SetFillPercent(p float64)
}

// Cursor walks the rows of a bucket. Every method returns a nil key when there is no such row. The
// position of the cursor is the key returned or sought last; a move that finds nothing keeps it.
// Rows may be put and deleted between moves: Next always returns the first key after the position.
type Cursor interface {
	// First moves to the first row.
	First() (k, v []byte)
	// Next moves to the first row after the position. Without a position it finds nothing.
	Next() (k, v []byte)
	// Seek moves to the first row whose key is at least k. k is not retained.
	Seek(k []byte) (key, v []byte)
}

// Options are the options of OpenFile. The zero value opens for writing with a sync at each Update.
type Options struct {
	// ReadOnly opens an existing file, shared with other readers, and refuses Update.
	ReadOnly bool
	// NoSync never syncs: after a power cut the file may be damaged. It is for an index under
	// construction, which a crash discards.
	NoSync bool
}

func checkRow(k, v []byte) error {
	if err := checkKey(k); err != nil {
		return err
	}
	if len(v) > MaxValueBytes {
		return fmt.Errorf("put row: value of %d bytes: %w", len(v), base.ErrTooLarge)
	}
	return nil
}

func checkKey(k []byte) error {
	if len(k) == 0 {
		return fmt.Errorf("put row: empty key: %w", base.ErrInvalid)
	}
	if len(k) > MaxKeyBytes {
		return fmt.Errorf("put row: key of %d bytes: %w", len(k), base.ErrTooLarge)
	}
	return nil
}

func errView(doing string) error {
	return fmt.Errorf("%s in a view: %w", doing, base.ErrReadOnly)
}

func errDone(doing string) error { return fmt.Errorf("%s: %w", doing, base.ErrTxDone) }
