package profile

import (
	"context"
	"io"

	"github.com/ledgerd/ledger/indexeddb"
)

// source is what is read: a directory of LevelDB or SQLite, or a page. Methods that take report
// give it each damage that they find, and go on behind it, or end with the error that report
// returns.
type source interface {
	// schema returns the metadata, and how many records each object store has.
	schema() (*indexeddb.Schema, map[storeID]int64)
	// metadata calls fn with the rows of metadata that a page has.
	metadata(ctx context.Context, fn func(indexeddb.Row, []byte) error) error
	// records calls fn with the records of a store, in order.
	records(ctx context.Context, s storeID, report func(error) error, fn func(*record) error) error
	// indexRows calls fn with the rows of an index that count, in order. It returns how many do
	// not.
	indexRows(ctx context.Context, x indexeddb.Row, report func(error) error, fn func(indexeddb.Row) error) (stale int64, err error)
	// record returns the record with a primary key, nil when there is none.
	record(ctx context.Context, s storeID, primary indexeddb.Key) (*record, error)
	// hasIndexRow reports whether there is an index row that counts.
	hasIndexRow(ctx context.Context, r indexeddb.Row) (bool, error)
	// holder returns the primary key of another record that has the key of an index row, zero when
	// there is none.
	holder(ctx context.Context, r indexeddb.Row) (indexeddb.Key, error)
	// close ends the use of the directory.
	close() error
}

// storeID names an object store.
type storeID struct{ database, store int64 }

// row returns the row of a family of the store.
func (s storeID) row(kind indexeddb.Kind, primary indexeddb.Key) indexeddb.Row {
	return indexeddb.Row{Kind: kind, Database: s.database, Store: s.store, Primary: primary}
}

// record is a record with what belongs to it. It is borrowed until fn returns.
type record struct {
	row     indexeddb.Row
	version int64
	value   []byte
	objects []indexeddb.ExternalObject
	// open opens the content of an object that is a blob or file, by its position.
	open func(i int) (io.ReadCloser, error)
}
