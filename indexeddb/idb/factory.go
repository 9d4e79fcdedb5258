package idb

import (
	"context"
	"errors"
	"slices"

	"github.com/ledgerd/ledger/indexeddb"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/ordered"
)

// DefaultOrigin is the origin of new databases without another setting: the origin of local files.
const DefaultOrigin = "file__0@1"

// Options configures a Factory. The zero value and nil are the defaults.
type Options struct {
	// Origin is the origin of the databases in Chromium's notation, such as
	// "https_app.example_0@1". An export for a browser needs the origin of the app, and one origin
	// for all databases of a page. The default is the origin of the first database, or
	// DefaultOrigin without one.
	Origin string
}

// Factory opens and lists the databases of an origin. It may be used concurrently.
type Factory struct {
	rows   Rows
	origin string
}

// New returns a Factory for the databases in rows. It reads and writes nothing. o may be nil.
func New(rows Rows, o *Options) *Factory {
	f := &Factory{rows: rows}
	if o != nil {
		f.origin = o.Origin
	}
	return f
}

// Info is a database with its version.
type Info struct {
	Name    string
	Version int64
}

// Databases returns the databases, sorted by id. Errors: ErrUnknown.
func (f *Factory) Databases(ctx context.Context) (all []Info, err error) {
	const op = "list databases"
	r, end, err := f.rows.View(ctx)
	if err != nil {
		return nil, failed(op, err)
	}
	defer func() { err = errors.Join(err, failed(op, end())) }()
	schema, err := indexeddb.PageSchema(ctx, r, func(err error) error { return err })
	if err != nil {
		return nil, failed(op, err)
	}
	origin := f.originIn(schema)
	for _, d := range schema.Databases {
		if d.Origin == origin && d.Version > 0 {
			all = append(all, Info{d.Name, d.Version})
		}
	}
	return all, nil
}

func (f *Factory) originIn(s *indexeddb.Schema) string {
	switch {
	case f.origin != "":
		return f.origin
	case len(s.Databases) > 0:
		return s.Databases[0].Origin
	}
	return DefaultOrigin
}

// load reads the metadata of one database. The Schema contains no others, or none when the database
// does not exist.
func (f *Factory) load(ctx context.Context, r ordered.Reader, name string) (*indexeddb.Schema, string, error) {
	all, fail := &indexeddb.Schema{}, func(err error) error { return err }
	if err := all.AddPage(ctx, r, indexeddb.Row{Kind: indexeddb.KindGlobal}, fail); err != nil {
		return nil, "", err
	}
	slices.SortFunc(all.Databases, func(a, b *indexeddb.Database) int { return int(a.ID - b.ID) })
	origin := f.originIn(all)
	all.Databases = slices.DeleteFunc(all.Databases, func(d *indexeddb.Database) bool { return d.Name != name || d.Origin != origin })
	for _, d := range all.Databases {
		if err := all.AddPage(ctx, r, indexeddb.Row{Kind: indexeddb.KindDatabase, Database: d.ID}, fail); err != nil {
			return nil, "", err
		}
	}
	return all, origin, all.Finish(fail)
}

// maxVersion is the greatest version of a database.
const maxVersion = 1<<53 - 1

// Open returns a connection to a database. When the database does not exist or has a lesser
// version, Open calls upgrade in a transaction that sets the requested version, and commits it when
// upgrade returns nil. version 0 means the present version, or 1 for a new database. upgrade may be
// nil. Open calls upgrade again when the commit was refused because another writer had committed
// first.
//
// Open does not wait for other connections to close: those of the lesser version then fail with
// ErrInvalidState. Errors: ErrVersion when the database has a greater version, ErrAbort when the
// upgrade was aborted or failed, ErrType for an invalid version, ErrUnknown.
func (f *Factory) Open(ctx context.Context, name string, version int64, upgrade func(ctx context.Context, u *Upgrade) error) (*DB, error) {
	const op = "open a database"
	if version < 0 || version > maxVersion {
		return nil, newError(ErrType, op, "version %d", version)
	}
	for {
		db, meta, err := f.look(ctx, name, version)
		if err != nil || db != nil {
			return db, err
		}
		db, retry, err := f.upgrade(ctx, name, version, meta, upgrade)
		if !retry {
			return db, err
		}
	}
}

// look returns a connection when no upgrade is needed, else nil without an error.
func (f *Factory) look(ctx context.Context, name string, version int64) (db *DB, meta *indexeddb.Database, err error) {
	const op = "open a database"
	r, end, err := f.rows.View(ctx)
	if err != nil {
		return nil, nil, failed(op, err)
	}
	defer func() { err = errors.Join(err, failed(op, end())) }()
	schema, _, err := f.load(ctx, r, name)
	switch {
	case err != nil:
		return nil, nil, failed(op, err)
	case len(schema.Databases) == 0 || schema.Databases[0].Version == 0:
		return nil, nil, nil
	}
	meta = schema.Databases[0]
	switch {
	case version != 0 && version < meta.Version:
		return nil, nil, newError(ErrVersion, op, "it has the version %d, not %d", meta.Version, version)
	case version > meta.Version:
		return nil, meta, nil
	}
	return newDB(f, meta), meta, nil
}

// upgrade runs the transaction that changes the version. retry is set when the caller may try
// again.
func (f *Factory) upgrade(ctx context.Context, name string, version int64, was *indexeddb.Database, fn func(context.Context, *Upgrade) error) (db *DB, retry bool, err error) {
	const op = "upgrade a database"
	w, err := f.rows.Begin(ctx)
	if err != nil {
		return nil, false, failed(op, err)
	}
	schema, origin, err := f.load(ctx, w, name)
	if err != nil {
		return nil, false, failed(op, errors.Join(err, w.Rollback()))
	}
	create(schema, origin, name)
	meta := schema.Databases[0]
	if was == nil && meta.Version > 0 || was != nil && (was.ID != meta.ID || was.Version != meta.Version) {
		return nil, true, failed(op, w.Rollback()) // another writer was faster
	}
	old := meta.Version
	meta.Version = max(version, 1)
	db = newDB(f, meta)
	db.opening.Store(true)
	tx := newTx(db, VersionChange, schema, w, w, nil)
	done := false
	defer func() {
		if !done { // fn panicked
			_ = tx.abort(nil)
		}
	}()
	if fn != nil {
		err = fn(ctx, &Upgrade{Tx: tx, OldVersion: old, NewVersion: meta.Version})
	}
	done = true
	if err != nil && tx.state == active {
		err = tx.abort(err)
	}
	switch {
	case tx.state == active:
		err = tx.Commit(ctx)
		retry = tx.refused
	case tx.state == aborted:
		err = newError(ErrAbort, op, "%w", errors.Join(tx.err, err))
	}
	if err == nil && db.closed.Load() {
		err = newError(ErrAbort, op, "the connection was closed")
	}
	if err != nil {
		return nil, retry, err
	}
	db.names.Store(describe(meta))
	db.opening.Store(false)
	return db, false, nil
}

// create adds a database to a Schema without one.
func create(s *indexeddb.Schema, origin, name string) {
	if s.Version == 0 {
		s.Version = indexeddb.MaxSchemaVersion
	}
	v8, blink := max(s.DataVersion>>32, indexeddb.MaxV8Version), max(s.DataVersion&0xffffffff, indexeddb.MaxBlinkVersion)
	s.DataVersion = indexeddb.DataVersion(v8, blink)
	if len(s.Databases) == 0 {
		s.MaxDatabaseID++
		s.Databases = []*indexeddb.Database{{ID: s.MaxDatabaseID, Origin: origin, Name: name, NextBlob: indexeddb.MinBlobNumber}}
	}
}

// Delete removes a database with its content, and returns its version, or 0 when there was none.
// Connections to the database then fail with ErrInvalidState. Errors: ErrAbort, ErrUnknown.
func (f *Factory) Delete(ctx context.Context, name string) (version int64, err error) {
	for {
		version, retry, err := f.delete(ctx, name)
		if !retry {
			return version, err
		}
	}
}

func (f *Factory) delete(ctx context.Context, name string) (version int64, retry bool, err error) {
	const op = "delete a database"
	w, err := f.rows.Begin(ctx)
	if err != nil {
		return 0, false, failed(op, err)
	}
	schema, _, err := f.load(ctx, w, name)
	if err == nil && len(schema.Databases) == 0 {
		return 0, false, failed(op, w.Rollback())
	}
	if err == nil {
		d := schema.Databases[0]
		version = d.Version
		key, _ := indexeddb.PageKey(nil, indexeddb.Row{Kind: indexeddb.KindDatabaseName, Origin: d.Origin, Name: d.Name})
		prefix := indexeddb.PageDatabase(d.ID)
		if err = w.Delete(ctx, key); err == nil {
			err = w.DeleteRange(ctx, prefix, ordered.PrefixEnd(prefix))
		}
	}
	if err != nil {
		return 0, false, failed(op, errors.Join(err, w.Rollback()))
	}
	if err := w.Commit(ctx); err != nil {
		return 0, errors.Is(err, base.ErrConflict), newError(ErrAbort, op, "%w", err)
	}
	return version, false, nil
}
