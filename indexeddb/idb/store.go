package idb

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"github.com/ledgerd/ledger/indexeddb"
	"github.com/ledgerd/ledger/indexeddb/value"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/ordered"
)

// ObjectStore is an object store in a transaction. What is said of queries holds for its methods
// and those of an Index: a query is a KeyRange, a key as Key takes it, or nil for all keys where
// that makes sense.
//
// All methods that read fail with ErrInvalidState when the object store was deleted,
// ErrTransactionInactive when the transaction is over, ErrData for a query, ErrUnknown, and with
// ErrDataClone when a stored value is of a form that is not known.
type ObjectStore struct {
	tx      *Tx
	meta    *indexeddb.Store
	indexes []*Index
	deleted bool
	counts  bool // its counters have changed

	records, external, contents []byte // prefixes of rows

	row []byte // the key of the row that get has looked up
}

func newObjectStore(tx *Tx, meta *indexeddb.Store) *ObjectStore {
	s := &ObjectStore{tx: tx, meta: meta}
	row := indexeddb.Row{Database: tx.meta.ID, Store: meta.ID}
	for kind, prefix := range map[indexeddb.Kind]*[]byte{
		indexeddb.KindRecord: &s.records, indexeddb.KindExternal: &s.external, indexeddb.KindContent: &s.contents,
	} {
		row.Kind = kind
		*prefix = indexeddb.PageFamily(row)
	}
	for _, x := range meta.Indexes {
		s.indexes = append(s.indexes, newIndex(s, x))
	}
	return s
}

// contentKey returns the key of the row with the content of an external object.
func (s *ObjectStore) contentKey(part []byte, position int) []byte {
	return indexeddb.AppendPageUint(append(s.contents[:len(s.contents):len(s.contents)], part...), int64(position))
}

// Name returns the name.
func (s *ObjectStore) Name() string { return s.meta.Name }

// KeyPath returns the key path, of the type indexeddb.NoKeyPath when there is none.
func (s *ObjectStore) KeyPath() indexeddb.KeyPath {
	path := s.meta.KeyPath
	path.Paths = slices.Clone(path.Paths)
	return path
}

// AutoIncrement reports whether there is a key generator.
func (s *ObjectStore) AutoIncrement() bool { return s.meta.AutoIncrement }

// Tx returns the transaction.
func (s *ObjectStore) Tx() *Tx { return s.tx }

// IndexNames returns the names of the indexes, sorted.
func (s *ObjectStore) IndexNames() []string {
	names := []string{}
	for _, x := range s.indexes {
		if !x.deleted {
			names = append(names, x.meta.Name)
		}
	}
	sortNames(names)
	return names
}

// Index returns an index, always the same. Errors: ErrInvalidState when the object store was
// deleted or the transaction is over, ErrNotFound.
func (s *ObjectStore) Index(name string) (*Index, error) {
	const op = "get an index"
	if s.deleted || s.tx.state != active {
		return nil, newError(ErrInvalidState, op, "the object store was deleted, or the transaction is over")
	}
	if x := s.indexNamed(name); x != nil {
		return x, nil
	}
	return nil, newError(ErrNotFound, op, "there is no index %.100q", name)
}

func (s *ObjectStore) indexNamed(name string) *Index {
	for _, x := range s.indexes {
		if !x.deleted && x.meta.Name == name {
			return x
		}
	}
	return nil
}

// enter begins a request.
func (s *ObjectStore) enter(op string) error {
	if s.deleted {
		return newError(ErrInvalidState, op, "the object store was deleted")
	}
	return s.tx.enter(op)
}

// Get returns the value of the first record that query has, nil when there is none.
func (s *ObjectStore) Get(ctx context.Context, query any) (value.Value, error) {
	return getValue(ctx, s, query)
}

// Record returns the first record that query has, nil when there is none.
func (s *ObjectStore) Record(ctx context.Context, query any) (*Record, error) {
	return getRecord(ctx, s, query)
}

const opGet = "get a record"

func getValue(ctx context.Context, from source, query any) (value.Value, error) {
	_, r, c, err := first(ctx, from, query)
	if c != nil {
		defer c.Close()
	}
	if err != nil || r.part == nil {
		return nil, err
	}
	return from.of().value(ctx, opGet, &r)
}

func getRecord(ctx context.Context, from source, query any) (*Record, error) {
	k, r, c, err := first(ctx, from, query)
	if c != nil {
		defer c.Close()
	}
	if err != nil || r.part == nil {
		return nil, err
	}
	return from.of().record(ctx, opGet, &r, k)
}

// first returns the first record that query has, without a part when there is none, and the key by
// which it was found. It is read by a cursor if there is one, which the caller closes.
func first(ctx context.Context, from source, query any) (k indexeddb.Key, r stored, c *Cursor, err error) {
	if err := from.enter(opGet); err != nil {
		return k, r, nil, err
	}
	rg, err := needRange(query, opGet)
	if err != nil {
		return k, r, nil, err
	}
	if k, ok := rg.only(); ok {
		r, _, err = from.get(ctx, k)
		return k, r, nil, from.of().tx.failRead(opGet, err)
	}
	if c, err = from.walk(ctx, opGet, rg, Next, false); err == nil && !c.Done() {
		k = c.Key()
		r, err = c.current(ctx, opGet)
	}
	return k, r, c, err
}

// needRange is toRange for requests that need a query.
func needRange(query any, op string) (KeyRange, error) {
	if query == nil {
		return KeyRange{}, newError(ErrData, op, "without a key or key range")
	}
	return toRange(query, op)
}

// failRead notes the error of a request that reads, if there is one.
func (tx *Tx) failRead(op string, err error) error {
	if err == nil {
		return nil
	}
	return tx.fail(op, err, false)
}

func (s *ObjectStore) of() *ObjectStore { return s }

// get returns the record with a primary key. Its part is valid until the next get.
func (s *ObjectStore) get(ctx context.Context, k indexeddb.Key) (r stored, found bool, err error) {
	s.row = k.AppendPagePart(append(s.row[:0], s.records...))
	return s.getRow(ctx, s.row, k)
}

// getRow returns the record in a row. k may be zero when it is not known.
func (s *ObjectStore) getRow(ctx context.Context, row []byte, k indexeddb.Key) (r stored, found bool, err error) {
	pageValue, err := s.tx.r.Get(ctx, row)
	if errors.Is(err, base.ErrNotFound) {
		return stored{}, false, nil
	}
	if err == nil {
		r, err = s.decodeStored(row[len(s.records):], k, pageValue)
	}
	return r, err == nil, err
}

// value decodes the value of a record.
func (s *ObjectStore) value(ctx context.Context, op string, r *stored) (value.Value, error) {
	v, _, err := s.decode(ctx, r)
	return v, s.tx.failRead(op, err)
}

// record decodes a record, which was found by k.
func (s *ObjectStore) record(ctx context.Context, op string, r *stored, k indexeddb.Key) (*Record, error) {
	v, objects, err := s.decode(ctx, r)
	if err == nil {
		_, err = r.primaryKey()
	}
	if err != nil {
		return nil, s.tx.fail(op, err, false)
	}
	return &Record{Key: k, PrimaryKey: r.primary, Value: v, Objects: objects, store: s, part: bytes.Clone(r.part)}, nil
}

// GetKey returns the primary key of the first record that query has, the zero Key when there is
// none.
func (s *ObjectStore) GetKey(ctx context.Context, query any) (indexeddb.Key, error) {
	const op = "get a key"
	if err := s.enter(op); err != nil {
		return indexeddb.Key{}, err
	}
	rg, err := needRange(query, op)
	if err != nil {
		return indexeddb.Key{}, err
	}
	c, err := s.walk(ctx, op, rg, Next, true)
	if err != nil {
		return indexeddb.Key{}, err
	}
	defer c.Close()
	return c.PrimaryKey(), nil
}

// GetAll returns the values of the first records that query has, at most limit of them, or all when
// limit is 0.
func (s *ObjectStore) GetAll(ctx context.Context, query any, limit int) ([]value.Value, error) {
	return getAll(ctx, s, query, limit, Next, false, func(c *Cursor) (value.Value, error) { return c.Value(ctx) })
}

// GetAllKeys is GetAll for primary keys.
func (s *ObjectStore) GetAllKeys(ctx context.Context, query any, limit int) ([]indexeddb.Key, error) {
	return getAll(ctx, s, query, limit, Next, true, func(c *Cursor) (indexeddb.Key, error) { return c.PrimaryKey(), c.err })
}

// GetAllRecords is GetAll for records, in an order.
func (s *ObjectStore) GetAllRecords(ctx context.Context, query any, limit int, d Direction) ([]*Record, error) {
	return getAll(ctx, s, query, limit, d, false, func(c *Cursor) (*Record, error) { return c.Record(ctx) })
}

// Count returns how many records query has.
func (s *ObjectStore) Count(ctx context.Context, query any) (int64, error) {
	return count(ctx, s, query)
}

// source is what a cursor walks over: an object store or an index.
type source interface {
	enter(op string) error
	of() *ObjectStore
	// get returns the first record with a key, and whether there is one.
	get(ctx context.Context, k indexeddb.Key) (stored, bool, error)
	walk(ctx context.Context, op string, rg KeyRange, d Direction, keysOnly bool) (*Cursor, error)
}

func getAll[T any](ctx context.Context, from source, query any, limit int, d Direction, keysOnly bool, get func(*Cursor) (T, error)) ([]T, error) {
	const op = "get records"
	if err := from.enter(op); err != nil {
		return nil, err
	}
	rg, err := toRange(query, op)
	if err != nil {
		return nil, err
	}
	if limit < 0 || d > PrevUnique {
		return nil, newError(ErrType, op, "limit %d, direction %d", limit, d)
	}
	c, err := from.walk(ctx, op, rg, d, keysOnly)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	all := []T{}
	for !c.Done() {
		one, err := get(c)
		if err != nil {
			return nil, err
		}
		if all = append(all, one); len(all) == limit {
			break
		}
		if err := c.next(ctx); err != nil {
			return nil, c.store.tx.fail(op, err, false)
		}
	}
	return all, nil
}

func count(ctx context.Context, from source, query any) (n int64, err error) {
	const op = "count records"
	if err := from.enter(op); err != nil {
		return 0, err
	}
	rg, err := toRange(query, op)
	if err != nil {
		return 0, err
	}
	c, err := from.walk(ctx, op, rg, Next, true)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	for ; !c.Done(); n++ {
		if err := c.next(ctx); err != nil {
			return 0, c.store.tx.fail(op, err, false)
		}
	}
	return n, nil
}

// OpenCursor returns a cursor at the first record that query has in a direction; see Cursor.
// Errors: also ErrType for a direction that is none.
func (s *ObjectStore) OpenCursor(ctx context.Context, query any, d Direction) (*Cursor, error) {
	return openCursor(ctx, s, query, d, false)
}

// OpenKeyCursor is OpenCursor for a cursor without values.
func (s *ObjectStore) OpenKeyCursor(ctx context.Context, query any, d Direction) (*Cursor, error) {
	return openCursor(ctx, s, query, d, true)
}

// bounds returns the range of the rows of a family whose keys are in a range. It is not exact when
// there may be rows in it whose keys are not.
func bounds(family indexeddb.Row, rg KeyRange) (r ordered.Range, isExact bool) {
	prefix := indexeddb.PageFamily(family)
	r, isExact = ordered.Range{Start: prefix, End: ordered.PrefixEnd(prefix)}, true
	if !rg.Lower.IsZero() {
		var ok bool
		if r.Start, ok = indexeddb.PageBound(family, rg.Lower, rg.LowerOpen); !ok {
			r.Start, _ = indexeddb.PageBound(family, rg.Lower, false)
			isExact = false
		}
	}
	if !rg.Upper.IsZero() {
		var ok bool
		if r.End, ok = indexeddb.PageBound(family, rg.Upper, !rg.UpperOpen); !ok {
			r.End, _ = indexeddb.PageBound(family, rg.Upper, true)
			isExact = false
		}
	}
	return r, isExact
}
