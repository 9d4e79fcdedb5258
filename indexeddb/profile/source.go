package profile

import (
	"context"
	"io"

	"github.com/ledgerd/ledger/indexeddb"
)

// source is the input: a LevelDB or SQLite directory, or a page. Methods with a report parameter
// call it with each damage. They then continue, or stop with the error that report returns.
type source interface {
	// schema returns the metadata, and the number of records in each object store.
	schema() (*indexeddb.Schema, map[storeID]int64)
	// metadata calls fn for the metadata rows that a page has.
	metadata(ctx context.Context, fn func(indexeddb.Row, []byte) error) error
	// records calls fn for the records of a store, in order.
	records(ctx context.Context, s storeID, report func(error) error, fn func(*record) error) error
	// indexRows calls fn for the valid rows of an index, in order. It returns the number of stale
	// ones.
	indexRows(ctx context.Context, x indexeddb.Row, report func(error) error, fn func(indexeddb.Row) error) (stale int64, err error)
	// record returns the record with a primary key, or nil when there is none.
	record(ctx context.Context, s storeID, primary indexeddb.Key) (*record, error)
	// hasIndexRow reports whether a valid index row exists.
	hasIndexRow(ctx context.Context, r indexeddb.Row) (bool, error)
	// holder returns the primary key of another record with the key of an index row, or zero if
	// there is none.
	holder(ctx context.Context, r indexeddb.Row) (indexeddb.Key, error)
	// close releases the input.
	close() error
}

// storeID identifies an object store.
type storeID struct{ database, store int64 }

// row returns the row of a record in a family of the store.
func (s storeID) row(kind indexeddb.Kind, primary indexeddb.Key) indexeddb.Row {
	return indexeddb.Row{Kind: kind, Database: s.database, Store: s.store, Primary: primary}
}

// record is a record with its objects. It is borrowed until fn returns.
type record struct {
	row     indexeddb.Row
	version int64
	value   []byte
	objects []indexeddb.ExternalObject
	// open opens the content of the blob or file at a position.
	open func(i int) (io.ReadCloser, error)
}
