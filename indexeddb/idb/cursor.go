package idb

import (
	"bytes"
	"context"
	"errors"

	"github.com/ledgerd/ledger/indexeddb"
	"github.com/ledgerd/ledger/indexeddb/value"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/ordered"
)

// Direction is the direction of a cursor.
type Direction uint8

// The directions. Among the records with one key in an index, the unique directions return only the
// one with the least primary key, also backwards. In an object store they equal the others.
const (
	Next Direction = iota
	NextUnique
	Prev
	PrevUnique
)

func (d Direction) backwards() bool { return d >= Prev }
func (d Direction) unique() bool    { return d == NextUnique || d == PrevUnique }

// Cursor iterates over records. It is at a record until Done:
//
//	c, err := store.OpenCursor(ctx, idb.LowerBound(10, false), idb.Next)
//	if err != nil {
//		return err
//	}
//	defer c.Close()
//	for !c.Done() {
//		use(c.Key())
//		if err := c.Continue(ctx, nil); err != nil {
//			return err
//		}
//	}
//
// A cursor sees changes at keys that it has not reached yet. Its methods, except plain getters,
// fail with ErrTransactionInactive after the transaction has ended. They fail with ErrInvalidState
// when the cursor is Done, or when the object store or index was deleted.
type Cursor struct {
	store    *ObjectStore
	index    *Index // nil for a cursor over the object store
	rg       KeyRange
	rows     ordered.Range // the row range for rg
	exact    bool          // all of rows is within rg
	d        Direction
	keysOnly bool

	it      ordered.Iter
	row     []byte // the key of the row; its primary key begins at before
	before  int
	key     indexeddb.Key // zero until requested, as primary
	primary indexeddb.Key
	record  []byte // in an index: the row of the record
	done    bool
	err     error // an error from decoding a key
}

func openCursor(ctx context.Context, from source, query any, d Direction, keysOnly bool) (*Cursor, error) {
	const op = "open a cursor"
	if err := from.enter(op); err != nil {
		return nil, err
	}
	if d > PrevUnique {
		return nil, newError(ErrType, op, "direction %d", d)
	}
	rg, err := toRange(query, op)
	if err != nil {
		return nil, err
	}
	return from.walk(ctx, op, rg, d, keysOnly)
}

func (s *ObjectStore) walk(ctx context.Context, op string, rg KeyRange, d Direction, keysOnly bool) (*Cursor, error) {
	c := &Cursor{store: s, rg: rg, d: d, keysOnly: keysOnly, before: len(s.records)}
	c.rows, c.exact = bounds(indexeddb.Row{Kind: indexeddb.KindRecord, Database: s.tx.meta.ID, Store: s.meta.ID}, rg)
	return c.begin(ctx, op)
}

func (x *Index) walk(ctx context.Context, op string, rg KeyRange, d Direction, keysOnly bool) (*Cursor, error) {
	c := &Cursor{store: x.store, index: x, rg: rg, d: d, keysOnly: keysOnly}
	c.rows, c.exact = bounds(x.row(), rg)
	return c.begin(ctx, op)
}

func (c *Cursor) begin(ctx context.Context, op string) (*Cursor, error) {
	c.rows.Reverse, c.rows.KeysOnly = c.d.backwards(), c.index != nil || c.keysOnly
	if err := c.seek(ctx, c.rows); err != nil {
		c.Close()
		return nil, c.store.tx.fail(op, err, false)
	}
	return c, nil
}

// seek moves to the first record in a range of rows.
func (c *Cursor) seek(ctx context.Context, r ordered.Range) error {
	c.stop()
	c.it = c.store.tx.r.Iter(r)
	return c.move(ctx)
}

// stop ends the iteration over rows.
func (c *Cursor) stop() {
	if c.it != nil {
		_ = c.it.Close() // the iterator only reads
		c.it = nil
	}
}

// move moves to the next row whose key is in the range.
func (c *Cursor) move(ctx context.Context) error {
	for c.it.Next(ctx) {
		ok, err := c.arrive(ctx, c.it)
		if ok && err == nil && c.index != nil {
			err = c.arriveAtIndex(ctx)
		}
		if ok || err != nil {
			return err
		}
	}
	c.done = true
	return c.it.Err()
}

// arrive loads the row at it. ok is false when the key of the row is not in the range.
func (c *Cursor) arrive(ctx context.Context, it ordered.Iter) (ok bool, err error) {
	c.row = append(c.row[:0], it.Key()...)
	c.key, c.primary, c.record, c.err = indexeddb.Key{}, indexeddb.Key{}, nil, nil
	short := false
	if c.index != nil {
		part, _, isShort, err := indexeddb.CutPagePart(c.row[len(c.index.prefix):])
		if err != nil {
			return false, err
		}
		c.before, short = len(c.index.prefix)+len(part), isShort
	}
	if short || indexeddb.ShortPagePart(c.row[c.before:]) { // the value holds the keys
		v, err := it.Value(ctx)
		if err != nil {
			return false, err
		}
		row, _, err := indexeddb.DecodePageRow(c.row, v)
		if err != nil {
			return false, err
		}
		c.key, c.primary = row.Key, row.Primary
		if c.index == nil {
			c.key = c.primary
		}
	}
	return c.exact || c.rg.Includes(c.Key()), nil
}

// arriveAtIndex loads the record of an index row. For PrevUnique it first moves to the first row
// with the same key.
func (c *Cursor) arriveAtIndex(ctx context.Context) error {
	if c.d == PrevUnique {
		first := c.store.tx.r.Iter(ordered.Prefix(c.row[:c.before]))
		if first.Next(ctx) {
			if _, err := c.arrive(ctx, first); err != nil {
				return errors.Join(err, first.Close())
			}
		}
		if err := errors.Join(first.Err(), first.Close()); err != nil {
			return err
		}
	}
	if c.keysOnly {
		return nil
	}
	record := append(append(make([]byte, 0, len(c.store.records)+len(c.row)-c.before), c.store.records...), c.row[c.before:]...)
	v, err := c.store.tx.r.Get(ctx, record)
	if errors.Is(err, base.ErrNotFound) {
		return damaged("index row", "it has no record")
	}
	c.record = v
	return err
}

// next moves to the next record.
func (c *Cursor) next(ctx context.Context) error {
	switch {
	case c.err != nil:
		return c.err
	case c.index == nil || !c.d.unique():
		return c.move(ctx)
	}
	r := c.rows
	if c.d == NextUnique {
		r.Start = ordered.PrefixEnd(c.row[:c.before])
	} else {
		r.End = bytes.Clone(c.row[:c.before])
	}
	return c.seek(ctx, r)
}

// Done reports whether no record is left.
func (c *Cursor) Done() bool { return c.done }

// Direction returns the direction.
func (c *Cursor) Direction() Direction { return c.d }

// Key returns the key of the current record in the index, or its primary key. It is zero when the
// cursor is Done.
func (c *Cursor) Key() indexeddb.Key {
	if c.index == nil {
		return c.PrimaryKey()
	}
	if c.key.IsZero() && !c.done {
		c.key = c.decodeKey(c.row[len(c.index.prefix):c.before])
	}
	return c.key
}

// PrimaryKey returns the primary key of the current record, zero when the cursor is Done.
func (c *Cursor) PrimaryKey() indexeddb.Key {
	if c.primary.IsZero() && !c.done {
		c.primary = c.decodeKey(c.row[c.before:])
	}
	return c.primary
}

// decodeKey decodes a part that was not shortened. The next move of the cursor reports an error.
func (c *Cursor) decodeKey(part []byte) indexeddb.Key {
	k, err := indexeddb.DecodeWholeSortable(part)
	if err != nil {
		c.err = err
	}
	return k
}

// enter begins a request. readable is set for a request that reads the record.
func (c *Cursor) enter(op string, readable bool) error {
	if err := c.store.tx.enter(op); err != nil {
		return err
	}
	switch {
	case c.store.deleted || c.index != nil && c.index.deleted:
		return newError(ErrInvalidState, op, "the object store or index was deleted")
	case c.done:
		return newError(ErrInvalidState, op, "the cursor is behind the last record")
	case readable && c.keysOnly:
		return newError(ErrInvalidState, op, "the cursor has only keys")
	}
	return nil
}

// Value decodes and returns the value of the current record. The value belongs to the caller. Only
// this call decodes, so an iteration pays only for the values that it reads. Errors: also those of
// ObjectStore.Get.
func (c *Cursor) Value(ctx context.Context) (value.Value, error) {
	const op = "read at a cursor"
	r, err := c.current(ctx, op)
	if err != nil {
		return nil, err
	}
	return c.store.value(ctx, op, &r)
}

// Serialized returns the value of the current record as a browser serializes it, for value.Decode.
// The slice is borrowed until the cursor moves. Values of an unknown form can be read in this way.
// The bytes do not contain a generated key. Errors: as Value.
func (c *Cursor) Serialized(ctx context.Context) ([]byte, error) {
	const op = "read at a cursor"
	r, err := c.current(ctx, op)
	if err != nil {
		return nil, err
	}
	b, _, err := c.store.serialized(ctx, &r)
	return b, c.store.tx.failRead(op, err)
}

// Record returns the current record. Errors: as Value.
func (c *Cursor) Record(ctx context.Context) (*Record, error) {
	const op = "read at a cursor"
	k := c.Key()
	r, err := c.current(ctx, op)
	if err != nil {
		return nil, err
	}
	return c.store.record(ctx, op, &r, k)
}

// current returns the current record for a request.
func (c *Cursor) current(ctx context.Context, op string) (stored, error) {
	if err := c.enter(op, true); err != nil {
		return stored{}, err
	}
	r, err := c.stored(ctx)
	return r, c.store.tx.failRead(op, err)
}

// stored returns the current record, borrowed until the cursor moves.
func (c *Cursor) stored(ctx context.Context) (stored, error) {
	v, err := c.record, c.err
	if err == nil && c.index == nil {
		v, err = c.it.Value(ctx)
	}
	if err != nil {
		return stored{}, err
	}
	return c.store.decodeStored(c.row[c.before:], c.primary, v)
}

// Continue moves to the next record. With a non-nil key, it moves to the first record at or after
// that key, in the direction of the cursor. Errors: also ErrData for an invalid key, and for a key
// that is not after the key of the cursor.
func (c *Cursor) Continue(ctx context.Context, key any) error {
	const op = "continue a cursor"
	if err := c.enter(op, false); err != nil {
		return err
	}
	if key == nil {
		return c.store.tx.failRead(op, c.next(ctx))
	}
	k, ok := toKey(key, 0)
	if !ok {
		return newError(ErrData, op, "a value of the type %T that is no key", key)
	}
	if !c.ahead(k.Compare(c.Key())) {
		return newError(ErrData, op, "the key is not ahead")
	}
	to := KeyRange{Lower: k, Upper: c.rg.Upper, UpperOpen: c.rg.UpperOpen}
	if c.d.backwards() {
		to = KeyRange{Lower: c.rg.Lower, LowerOpen: c.rg.LowerOpen, Upper: k}
	}
	return c.store.tx.failRead(op, c.continueIn(ctx, to))
}

// ahead reports whether a position lies after the cursor in its direction. order is the comparison
// of that position with the position of the cursor.
func (c *Cursor) ahead(order int) bool {
	return order > 0 && !c.d.backwards() || order < 0 && c.d.backwards()
}

// continueIn moves to the first record in the rest of the range.
func (c *Cursor) continueIn(ctx context.Context, to KeyRange) error {
	family := indexeddb.Row{Kind: indexeddb.KindRecord, Database: c.store.tx.meta.ID, Store: c.store.meta.ID}
	if c.index != nil {
		family = c.index.row()
	}
	r, isExact := bounds(family, to)
	if !isExact { // some rows in r have keys outside of to
		c.rg, c.exact = to, false
	}
	r.Reverse, r.KeysOnly = c.rows.Reverse, c.rows.KeysOnly
	c.rows = r
	return c.seek(ctx, r)
}

// ContinuePrimaryKey moves to the first record at or after the given key and primary key, in the
// direction of the cursor. Errors: also ErrInvalidAccess for a cursor over an object store or in a
// unique direction, and ErrData for keys that are invalid or not after those of the cursor.
func (c *Cursor) ContinuePrimaryKey(ctx context.Context, key, primary any) error {
	const op = "continue a cursor to a primary key"
	if err := c.store.tx.enter(op); err != nil {
		return err
	}
	switch {
	case c.store.deleted || c.index != nil && c.index.deleted:
		return newError(ErrInvalidState, op, "the object store or index was deleted")
	case c.index == nil || c.d.unique():
		return newError(ErrInvalidAccess, op, "it walks over an object store, or in a unique direction")
	case c.done:
		return newError(ErrInvalidState, op, "the cursor is behind the last record")
	}
	k, ok := toKey(key, 0)
	p, okPrimary := toKey(primary, 0)
	if !ok || !okPrimary {
		return newError(ErrData, op, "values of the types %T and %T, of which one is no key", key, primary)
	}
	order := k.Compare(c.Key())
	if order == 0 {
		order = p.Compare(c.PrimaryKey())
	}
	if !c.ahead(order) {
		return newError(ErrData, op, "the keys are not ahead")
	}
	part := p.AppendPagePart(nil)
	row, _ := c.index.rowKey(k, part)
	r := c.rows
	if c.d.backwards() {
		r.End = ordered.PrefixEnd(row)
	} else {
		r.Start = row
	}
	return c.store.tx.failRead(op, c.seek(ctx, r))
}

// Advance moves on by n records. Errors: also ErrType when n is less than 1.
func (c *Cursor) Advance(ctx context.Context, n int64) error {
	const op = "advance a cursor"
	if n < 1 {
		return newError(ErrType, op, "by %d records", n)
	}
	if err := c.enter(op, false); err != nil {
		return err
	}
	for ; n > 0 && !c.done; n-- {
		if err := c.next(ctx); err != nil {
			return c.store.tx.fail(op, err, false)
		}
	}
	return nil
}

// Update replaces the value of the current record, as ObjectStore.Put does, and returns its primary
// key. Errors: also those of Put, ErrData when the value has another key, and ErrInvalidState for a
// cursor without values.
func (c *Cursor) Update(ctx context.Context, v value.Value, blobs ...Blob) (indexeddb.Key, error) {
	const op = "update at a cursor"
	if err := c.writable(op); err != nil {
		return indexeddb.Key{}, err
	}
	p := put{op: op, v: v, blobs: blobs, key: c.PrimaryKey()}
	if err := p.prepare(); err != nil {
		return indexeddb.Key{}, err
	}
	if path := c.store.meta.KeyPath; path.Type != indexeddb.NoKeyPath {
		if k, ok := path.Key(v, p.objects); !ok || k.Compare(p.key) != 0 {
			return indexeddb.Key{}, newError(ErrData, op, "the key in the value is not that of the record")
		}
	}
	return c.store.put(ctx, &p)
}

// Delete deletes the current record. The cursor does not move. Errors: as ObjectStore.Delete, and
// ErrInvalidState for a cursor without values.
func (c *Cursor) Delete(ctx context.Context) error {
	const op = "delete at a cursor"
	if err := c.writable(op); err != nil {
		return err
	}
	return c.store.deleteIn(ctx, op, KeyRange{Lower: c.PrimaryKey(), Upper: c.PrimaryKey()})
}

// writable begins a request that changes the record.
func (c *Cursor) writable(op string) error {
	if err := c.store.tx.enter(op); err != nil {
		return err
	}
	if c.store.tx.mode == ReadOnly {
		return newError(ErrReadOnly, op, "")
	}
	return c.enter(op, true)
}

// Close ends the iteration. It is idempotent.
func (c *Cursor) Close() {
	c.stop()
	c.done = true
}
