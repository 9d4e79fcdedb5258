package idb

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"github.com/ledgerd/ledger/indexeddb"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/ordered"
)

// Index is an index of an object store in a transaction. Its records are sorted by their key in the
// index, then by primary key. Errors: as for ObjectStore.
type Index struct {
	queries
	store   *ObjectStore
	meta    *indexeddb.Index
	deleted bool
	prefix  []byte // of the index rows
}

func newIndex(s *ObjectStore, meta *indexeddb.Index) *Index {
	x := &Index{store: s, meta: meta}
	x.queries.from = x
	x.prefix = indexeddb.PageFamily(x.row())
	return x
}

func (x *Index) row() indexeddb.Row {
	return indexeddb.Row{Kind: indexeddb.KindIndexRow, Database: x.store.tx.meta.ID, Store: x.store.meta.ID, Index: x.meta.ID}
}

// Name returns the name.
func (x *Index) Name() string { return x.meta.Name }

// KeyPath returns the key path.
func (x *Index) KeyPath() indexeddb.KeyPath {
	path := x.meta.KeyPath
	path.Paths = slices.Clone(path.Paths)
	return path
}

// Unique reports whether a key can belong to only one record.
func (x *Index) Unique() bool { return x.meta.Unique }

// MultiEntry reports whether each element of an array is a key of its own.
func (x *Index) MultiEntry() bool { return x.meta.MultiEntry }

// ObjectStore returns the object store.
func (x *Index) ObjectStore() *ObjectStore { return x.store }

func (x *Index) enter(op string) error {
	if x.deleted {
		return newError(ErrInvalidState, op, "the index was deleted")
	}
	return x.store.enter(op)
}

func (x *Index) get(ctx context.Context, k indexeddb.Key) (stored, bool, error) {
	row, err := x.firstRow(ctx, k)
	if err != nil || row == nil {
		return stored{}, false, err
	}
	r, is, err := x.store.getRow(ctx, row, indexeddb.Key{})
	if err == nil && !is {
		err = damaged("index row", "it has no record")
	}
	return r, is, err
}

func (x *Index) of() *ObjectStore { return x.store }

// firstRow returns the record row key of the first record with key k in the index, or nil without
// one. The result uses the buffer of the object store.
func (x *Index) firstRow(ctx context.Context, k indexeddb.Key) (row []byte, err error) {
	s := x.store
	s.row = k.AppendPagePart(append(s.row[:0], x.prefix...))
	found, err := s.tx.r.Seek(ctx, s.row)
	part, ok := bytes.CutPrefix(found, s.row)
	if errors.Is(err, base.ErrNotFound) || err == nil && !ok {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s.row = append(append(s.row[:0], s.records...), part...)
	return s.row, nil
}

// rowKey returns the key of an index row, and the offset of the primary key in it.
func (x *Index) rowKey(k indexeddb.Key, part []byte) (row []byte, at int) {
	row = k.AppendPagePart(slices.Clone(x.prefix))
	at = len(row)
	return append(row, part...), at
}

// taken reports whether another record has key k.
func (x *Index) taken(ctx context.Context, k indexeddb.Key, part []byte) (is bool, err error) {
	row, at := x.rowKey(k, part)
	rg := ordered.Prefix(row[:at])
	rg.KeysOnly = true
	it := x.store.tx.r.Iter(rg)
	for !is && it.Next(ctx) {
		is = !bytes.Equal(it.Key(), row)
	}
	return is, errors.Join(it.Err(), it.Close())
}

// put writes the index row for key k of a record.
func (x *Index) put(ctx context.Context, op string, k indexeddb.Key, r *Record) error {
	if x.meta.Unique {
		is, err := x.taken(ctx, k, r.part)
		if err != nil {
			return err
		}
		if is {
			return newError(ErrConstraint, op, "another record has the same key in the unique index %.100q", x.meta.Name)
		}
	}
	row := x.row()
	row.Key, row.Primary = k, r.PrimaryKey
	return x.store.tx.putRow(ctx, row, nil)
}
