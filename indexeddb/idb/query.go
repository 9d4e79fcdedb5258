package idb

import (
	"context"

	"github.com/ledgerd/ledger/indexeddb"
	"github.com/ledgerd/ledger/indexeddb/value"
)

// source is the target of a query: an object store or an index.
type source interface {
	enter(op string) error
	of() *ObjectStore
	// get returns the first record with a key, and whether one exists.
	get(ctx context.Context, k indexeddb.Key) (stored, bool, error)
	walk(ctx context.Context, op string, rg KeyRange, d Direction, keysOnly bool) (*Cursor, error)
}

// queries has the methods common to ObjectStore and Index.
type queries struct{ from source }

const opGet = "get a record"

// Get returns the value of the first record that matches query, or nil.
func (q queries) Get(ctx context.Context, query any) (value.Value, error) {
	_, r, c, err := q.first(ctx, query)
	if c != nil {
		defer c.Close()
	}
	if err != nil || r.part == nil {
		return nil, err
	}
	return q.from.of().value(ctx, opGet, &r)
}

// Record returns the first record that matches query, or nil.
func (q queries) Record(ctx context.Context, query any) (*Record, error) {
	k, r, c, err := q.first(ctx, query)
	if c != nil {
		defer c.Close()
	}
	if err != nil || r.part == nil {
		return nil, err
	}
	return q.from.of().record(ctx, opGet, &r, k)
}

// first returns the first record that matches query, and the key under which it was found. Without
// a match, r has no part. If c is not nil, r is borrowed from it, and the caller closes c.
func (q queries) first(ctx context.Context, query any) (k indexeddb.Key, r stored, c *Cursor, err error) {
	if err := q.from.enter(opGet); err != nil {
		return k, r, nil, err
	}
	rg, err := needRange(query, opGet)
	if err != nil {
		return k, r, nil, err
	}
	if k, ok := rg.only(); ok {
		r, _, err = q.from.get(ctx, k)
		return k, r, nil, q.from.of().tx.failRead(opGet, err)
	}
	if c, err = q.from.walk(ctx, opGet, rg, Next, false); err == nil && !c.Done() {
		k = c.Key()
		r, err = c.current(ctx, opGet)
	}
	return k, r, c, err
}

// GetKey returns the primary key of the first record that matches query, or the zero Key.
func (q queries) GetKey(ctx context.Context, query any) (indexeddb.Key, error) {
	const op = "get a key"
	if err := q.from.enter(op); err != nil {
		return indexeddb.Key{}, err
	}
	rg, err := needRange(query, op)
	if err != nil {
		return indexeddb.Key{}, err
	}
	c, err := q.from.walk(ctx, op, rg, Next, true)
	if err != nil {
		return indexeddb.Key{}, err
	}
	defer c.Close()
	return c.PrimaryKey(), nil
}

// GetAll returns the values of the first limit records that match query, or of all when limit is 0.
func (q queries) GetAll(ctx context.Context, query any, limit int) ([]value.Value, error) {
	return getAll(ctx, q.from, query, limit, Next, false, func(c *Cursor) (value.Value, error) { return c.Value(ctx) })
}

// GetAllKeys is GetAll for primary keys.
func (q queries) GetAllKeys(ctx context.Context, query any, limit int) ([]indexeddb.Key, error) {
	return getAll(ctx, q.from, query, limit, Next, true, func(c *Cursor) (indexeddb.Key, error) { return c.PrimaryKey(), c.err })
}

// GetAllRecords is GetAll for records, in the given direction.
func (q queries) GetAllRecords(ctx context.Context, query any, limit int, d Direction) ([]*Record, error) {
	return getAll(ctx, q.from, query, limit, d, false, func(c *Cursor) (*Record, error) { return c.Record(ctx) })
}

// Count counts the records that match query. In an index, a record counts once for each of its
// keys.
func (q queries) Count(ctx context.Context, query any) (n int64, err error) {
	const op = "count records"
	if err := q.from.enter(op); err != nil {
		return 0, err
	}
	rg, err := toRange(query, op)
	if err != nil {
		return 0, err
	}
	c, err := q.from.walk(ctx, op, rg, Next, true)
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

// OpenCursor returns a cursor at the first record that matches query, in a direction; see Cursor.
// Errors: also ErrType for an invalid direction.
func (q queries) OpenCursor(ctx context.Context, query any, d Direction) (*Cursor, error) {
	return openCursor(ctx, q.from, query, d, false)
}

// OpenKeyCursor is OpenCursor for a cursor without values.
func (q queries) OpenKeyCursor(ctx context.Context, query any, d Direction) (*Cursor, error) {
	return openCursor(ctx, q.from, query, d, true)
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
