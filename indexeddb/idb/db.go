package idb

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"github.com/ledgerd/ledger/indexeddb"
)

// DB is a connection to a database, with the version at the time of opening. It may be used
// concurrently.
type DB struct {
	factory *Factory
	id      int64
	name    string
	version int64
	names   atomic.Pointer[[]string] // of object stores
	opening atomic.Bool              // the upgrade is running
	closed  atomic.Bool
}

func newDB(f *Factory, meta *indexeddb.Database) *DB {
	db := &DB{factory: f, id: meta.ID, name: meta.Name, version: meta.Version}
	db.names.Store(describe(meta))
	return db
}

// describe returns the sorted names of the object stores of a database.
func describe(meta *indexeddb.Database) *[]string {
	names := []string{}
	for _, s := range meta.Stores {
		names = append(names, s.Name)
	}
	sortNames(names)
	return &names
}

// sortNames sorts by code units, like keys.
func sortNames(names []string) {
	slices.SortFunc(names, func(a, b string) int {
		return indexeddb.StringKey(a).Compare(indexeddb.StringKey(b))
	})
}

// Name returns the name of the database.
func (db *DB) Name() string { return db.name }

// Version returns the version of the database when it was opened.
func (db *DB) Version() int64 { return db.version }

// ObjectStoreNames returns the names of the object stores, sorted. During an upgrade,
// Tx.ObjectStoreNames is more recent.
func (db *DB) ObjectStoreNames() []string { return slices.Clone(*db.names.Load()) }

// Close closes the connection: no new transaction can begin. Running transactions go on.
func (db *DB) Close() { db.closed.Store(true) }

// Mode is the access mode of a transaction.
type Mode uint8

// The modes.
const (
	ReadOnly Mode = iota
	ReadWrite
	// VersionChange is the mode of the transaction of an Upgrade, and of no other.
	VersionChange
)

// String returns the name of the mode.
func (m Mode) String() string {
	switch m {
	case ReadOnly:
		return "readonly"
	case ReadWrite:
		return "readwrite"
	}
	return "versionchange"
}

// Begin starts a transaction on some of the object stores. The caller ends it with Commit or Abort.
// A deferred Abort after Commit only returns an error. A ReadOnly transaction reads the database as
// of now, and blocks no others. ReadWrite transactions on the same Rows run one after another,
// whatever their object stores.
//
// Errors: ErrInvalidState when the connection is closed, or the database was upgraded or deleted
// since; ErrNotFound for an object store that does not exist, ErrInvalidAccess without any, ErrType
// for another mode, ErrReadOnly for Rows that cannot be written, ErrUnknown.
func (db *DB) Begin(ctx context.Context, mode Mode, stores ...string) (tx *Tx, err error) {
	const op = "begin a transaction"
	if db.closed.Load() {
		return nil, newError(ErrInvalidState, op, "the connection is closed")
	}
	if db.opening.Load() {
		return nil, newError(ErrInvalidState, op, "the upgrade is not over")
	}
	for _, name := range stores {
		if !slices.Contains(*db.names.Load(), name) {
			return nil, newError(ErrNotFound, op, "there is no object store %.100q", name)
		}
	}
	switch {
	case len(stores) == 0:
		return nil, newError(ErrInvalidAccess, op, "without object stores")
	case mode > ReadWrite:
		return nil, newError(ErrType, op, "with the mode %s", mode)
	}
	if mode == ReadOnly {
		r, end, err := db.factory.rows.View(ctx)
		if err != nil {
			return nil, failed(op, err)
		}
		schema, err := db.current(ctx, r)
		if err != nil {
			return nil, errors.Join(failed(op, err), end())
		}
		return newTx(db, mode, schema, r, nil, end, stores...), nil
	}
	w, err := db.factory.rows.Begin(ctx)
	if err != nil {
		return nil, failed(op, err)
	}
	schema, err := db.current(ctx, w)
	if err != nil {
		return nil, errors.Join(failed(op, err), w.Rollback())
	}
	return newTx(db, mode, schema, w, w, nil, stores...), nil
}

// current reads the metadata again. It fails unless they still have the version of the connection.
func (db *DB) current(ctx context.Context, r reader) (*indexeddb.Schema, error) {
	schema, _, err := db.factory.load(ctx, r, db.name)
	switch {
	case err != nil:
		return nil, err
	case len(schema.Databases) == 0 || schema.Databases[0].ID != db.id:
		return nil, newError(ErrInvalidState, "begin a transaction", "the database was deleted")
	case schema.Databases[0].Version != db.version:
		return nil, newError(ErrInvalidState, "begin a transaction", "the database has the version %d now, and was opened with %d", schema.Databases[0].Version, db.version)
	}
	slices.SortFunc(schema.Databases[0].Stores, func(a, b *indexeddb.Store) int { return cmp.Compare(a.ID, b.ID) })
	return schema, nil
}
