package idb

import (
	"context"
	"slices"

	"github.com/ledgerd/ledger/indexeddb"
	"github.com/ledgerd/ledger/ordered"
)

// Upgrade is the transaction in which Factory.Open changes the version of a database. It covers all
// object stores. Only an Upgrade can create, rename and delete object stores and indexes.
// Factory.Open commits it.
type Upgrade struct {
	*Tx
	// OldVersion is 0 for a new database.
	OldVersion, NewVersion int64
}

// StoreOptions configures an object store. With the zero value or nil, Put needs an explicit key
// for each value.
type StoreOptions struct {
	// KeyPath is the place of the key in values; see Path and Paths.
	KeyPath indexeddb.KeyPath
	// AutoIncrement generates keys for values without one: 1, 2, 3 and so on.
	AutoIncrement bool
}

// upgrading returns an error when the transaction is no upgrade, or has ended.
func (tx *Tx) upgrading(op string) error {
	if tx.mode != VersionChange {
		return newError(ErrInvalidState, op, "the transaction is no upgrade")
	}
	return tx.enter(op)
}

// CreateObjectStore creates an object store. o may be nil. Errors: ErrInvalidState in a transaction
// that is no upgrade, ErrTransactionInactive, ErrSyntax for a key path, ErrConstraint when the name
// is in use, ErrInvalidAccess for AutoIncrement with an empty key path or several paths.
func (tx *Tx) CreateObjectStore(name string, o *StoreOptions) (*ObjectStore, error) {
	const op = "create an object store"
	if err := tx.upgrading(op); err != nil {
		return nil, err
	}
	if o == nil {
		o = &StoreOptions{}
	}
	path := o.KeyPath
	if err := path.Check(); err != nil {
		return nil, newError(ErrSyntax, op, "%w", err)
	}
	if tx.named(name) != nil {
		return nil, newError(ErrConstraint, op, "there is an object store %.100q", name)
	}
	if o.AutoIncrement && (path.Type == indexeddb.ArrayKeyPath || path.Type == indexeddb.StringKeyPath && path.Paths[0] == "") {
		return nil, newError(ErrInvalidAccess, op, "a key generator and a key path that is empty or of several paths")
	}
	tx.meta.MaxStoreID++
	path.Paths = slices.Clone(path.Paths)
	meta := &indexeddb.Store{
		ID: tx.meta.MaxStoreID, Name: name, KeyPath: path, AutoIncrement: o.AutoIncrement, LastVersion: 1, MaxIndexID: indexeddb.MinIndexID, KeyGenerator: 1,
	}
	tx.meta.Stores = append(tx.meta.Stores, meta)
	s := newObjectStore(tx, meta)
	tx.stores = append(tx.stores, s)
	return s, nil
}

// DeleteObjectStore deletes an object store with its records and indexes. Errors: ErrInvalidState
// in a transaction that is no upgrade, ErrTransactionInactive, ErrNotFound, ErrUnknown.
func (tx *Tx) DeleteObjectStore(ctx context.Context, name string) error {
	const op = "delete an object store"
	if err := tx.upgrading(op); err != nil {
		return err
	}
	s := tx.named(name)
	if s == nil {
		return newError(ErrNotFound, op, "there is no object store %.100q", name)
	}
	prefix := indexeddb.PageStore(tx.meta.ID, s.meta.ID)
	if err := tx.w.DeleteRange(ctx, prefix, ordered.PrefixEnd(prefix)); err != nil {
		return tx.fail(op, err, true)
	}
	tx.meta.Stores = slices.DeleteFunc(tx.meta.Stores, func(m *indexeddb.Store) bool { return m == s.meta })
	s.deleted = true
	for _, x := range s.indexes {
		x.deleted = true
	}
	return nil
}

// revert restores the metadata of an object store from was. When was is nil, revert marks it as
// deleted.
func (s *ObjectStore) revert(was *indexeddb.Store) {
	if was == nil {
		s.deleted = true
		for _, x := range s.indexes {
			x.deleted = true
		}
		return
	}
	s.meta, s.deleted = was, false
	for _, x := range s.indexes {
		if meta := was.Index(x.meta.ID); meta != nil {
			x.meta, x.deleted = meta, false
		} else {
			x.deleted = true
		}
	}
}

// SetName renames the object store, in an upgrade. Errors: ErrInvalidState when it was deleted or
// the transaction is no upgrade, ErrTransactionInactive, ErrConstraint when the name is in use.
func (s *ObjectStore) SetName(name string) error {
	const op = "rename an object store"
	if s.deleted {
		return newError(ErrInvalidState, op, "it was deleted")
	}
	if err := s.tx.upgrading(op); err != nil {
		return err
	}
	if other := s.tx.named(name); other != nil && other != s {
		return newError(ErrConstraint, op, "there is an object store %.100q", name)
	}
	s.meta.Name = name
	return nil
}

// IndexOptions configures an index. With the zero value or nil, several records may have the same
// key, and an array is one key.
type IndexOptions struct {
	// Unique prevents two records with the same key in the index.
	Unique bool
	// MultiEntry takes each element of an array as a key.
	MultiEntry bool
}

// CreateIndex creates an index and fills it with the existing records. o may be nil. Errors:
// ErrInvalidState when the object store was deleted or the transaction is no upgrade,
// ErrTransactionInactive, ErrConstraint when the name is in use, ErrSyntax for a key path,
// ErrInvalidAccess for MultiEntry with several paths. Two records with the same key in a unique
// index also cause ErrConstraint, and abort the transaction.
func (s *ObjectStore) CreateIndex(ctx context.Context, name string, path indexeddb.KeyPath, o *IndexOptions) (*Index, error) {
	const op = "create an index"
	if s.deleted {
		return nil, newError(ErrInvalidState, op, "the object store was deleted")
	}
	if err := s.tx.upgrading(op); err != nil {
		return nil, err
	}
	if o == nil {
		o = &IndexOptions{}
	}
	if s.indexNamed(name) != nil {
		return nil, newError(ErrConstraint, op, "there is an index %.100q", name)
	}
	if path.Type == indexeddb.NoKeyPath {
		return nil, newError(ErrSyntax, op, "it has no key path")
	}
	if err := path.Check(); err != nil {
		return nil, newError(ErrSyntax, op, "%w", err)
	}
	if o.MultiEntry && path.Type == indexeddb.ArrayKeyPath {
		return nil, newError(ErrInvalidAccess, op, "one of elements and several key paths")
	}
	s.meta.MaxIndexID++
	path.Paths = slices.Clone(path.Paths)
	meta := &indexeddb.Index{ID: s.meta.MaxIndexID, Name: name, KeyPath: path, Unique: o.Unique, MultiEntry: o.MultiEntry}
	s.meta.Indexes = append(s.meta.Indexes, meta)
	x := newIndex(s, meta)
	s.indexes = append(s.indexes, x)
	if err := x.populate(ctx, op); err != nil {
		return nil, err
	}
	return x, nil
}

// populate puts all records into a new index.
func (x *Index) populate(ctx context.Context, op string) error {
	c, err := x.store.walk(ctx, op, KeyRange{}, Next, false)
	for err == nil && !c.Done() {
		var rec *Record
		if rec, err = c.Record(ctx); err != nil {
			break
		}
		for _, k := range x.meta.Keys(rec.Value, rec.Objects) {
			if err = x.put(ctx, op, k, rec); err != nil {
				break
			}
		}
		if err == nil {
			err = c.next(ctx)
		}
	}
	if c != nil {
		c.Close()
	}
	if err != nil {
		return x.store.tx.fail(op, err, true)
	}
	return nil
}

// DeleteIndex deletes an index. Errors: ErrInvalidState when the object store was deleted or the
// transaction is no upgrade, ErrTransactionInactive, ErrNotFound, ErrUnknown.
func (s *ObjectStore) DeleteIndex(ctx context.Context, name string) error {
	const op = "delete an index"
	if s.deleted {
		return newError(ErrInvalidState, op, "the object store was deleted")
	}
	if err := s.tx.upgrading(op); err != nil {
		return err
	}
	x := s.indexNamed(name)
	if x == nil {
		return newError(ErrNotFound, op, "there is no index %.100q", name)
	}
	if err := s.tx.w.DeleteRange(ctx, x.prefix, ordered.PrefixEnd(x.prefix)); err != nil {
		return s.tx.fail(op, err, true)
	}
	s.meta.Indexes = slices.DeleteFunc(s.meta.Indexes, func(m *indexeddb.Index) bool { return m == x.meta })
	x.deleted = true
	return nil
}

// SetName renames the index, in an upgrade. Errors: ErrInvalidState when it was deleted or the
// transaction is no upgrade, ErrTransactionInactive, ErrConstraint when the name is in use.
func (x *Index) SetName(name string) error {
	const op = "rename an index"
	if x.deleted || x.store.deleted {
		return newError(ErrInvalidState, op, "it was deleted")
	}
	if err := x.store.tx.upgrading(op); err != nil {
		return err
	}
	if other := x.store.indexNamed(name); other != nil && other != x {
		return newError(ErrConstraint, op, "there is an index %.100q", name)
	}
	x.meta.Name = name
	return nil
}
