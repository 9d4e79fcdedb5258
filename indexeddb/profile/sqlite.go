package profile

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"modernc.org/sqlite"

	"github.com/ledgerd/ledger/indexeddb"
	"github.com/ledgerd/ledger/internal/base"
)

// sqlSchemaVersion is the supported version of the tables.
const sqlSchemaVersion = 1

// sqlRecordVersion is the version of all records, because SQLite files store none.
const sqlRecordVersion = 2

// sqlSource reads a directory of SQLite files, one for each database. It copies them, because
// SQLite writes next to the file that it reads.
type sqlSource struct {
	above  string
	meta   *indexeddb.Schema
	counts map[storeID]int64
	files  map[int64]*sql.DB // by database id
}

var _ source = (*sqlSource)(nil)

func openSQLite(ctx context.Context, dir string, report func(error) error) (_ *sqlSource, err error) {
	s := &sqlSource{counts: map[storeID]int64{}, files: map[int64]*sql.DB{}, meta: &indexeddb.Schema{Version: indexeddb.MaxSchemaVersion}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	if s.above, err = os.MkdirTemp("", "ledger-indexeddb-"); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		if e.IsDir() || !isSQLite(path) {
			continue
		}
		d, err := s.open(ctx, path)
		if err == nil {
			d.Origin = filepath.Base(dir) + "@1"
			s.meta.Databases = append(s.meta.Databases, d)
			continue
		}
		err = classifySQL("database in "+e.Name(), err)
		if errors.Is(err, base.ErrCorrupt) || errors.Is(err, base.ErrUnsupported) {
			err = report(err)
		}
		if err != nil {
			return nil, err
		}
	}
	s.meta.MaxDatabaseID = int64(len(s.meta.Databases))
	return s, nil
}

// open copies a file with its write-ahead log, and reads the metadata.
func (s *sqlSource) open(ctx context.Context, path string) (*indexeddb.Database, error) {
	unlock, err := lockSQLite(path)
	if err != nil {
		return nil, err
	}
	id := int64(len(s.files) + 1)
	to := filepath.Join(s.above, fmt.Sprint(id))
	err = copyFile(path, to)
	if err == nil {
		if err = copyFile(path+"-wal", to+"-wal"); errors.Is(err, os.ErrNotExist) {
			err = nil
		}
	}
	if err := errors.Join(err, unlock()); err != nil {
		return nil, err
	}
	db, err := sql.Open("sqlite", "file:"+to+sqlPragmas)
	if err != nil {
		return nil, err
	}
	s.files[id] = db
	if err := plainSchema(ctx, db); err != nil {
		return nil, err
	}
	var verdict string
	if err := scanRow(ctx, db.QueryRowContext(ctx, "PRAGMA integrity_check(1)"), &verdict); err != nil {
		return nil, err
	}
	if verdict != "ok" {
		return nil, damaged(filepath.Base(path), "%.200s", verdict)
	}
	return s.database(ctx, id, db)
}

// sqlPragmas limit the effect of a hostile file.
const sqlPragmas = "?_pragma=cache_size(-1024)&_pragma=trusted_schema(0)&_pragma=cell_size_check(1)&_pragma=ignore_check_constraints(1)"

// plainSchema refuses a file that makes SQLite calculate columns, because this may take unbounded
// time. A browser has only tables with stored columns, and indexes of these.
func plainSchema(ctx context.Context, db *sql.DB) error {
	var name string
	err := scanRow(ctx, db.QueryRowContext(ctx, `SELECT name FROM sqlite_schema WHERE type NOT IN ('table', 'index', 'trigger') OR sql LIKE 'CREATE VIRTUAL%'
		OR type = 'index' AND (sql LIKE '%(%(%' OR sql LIKE '%LIKE%' OR sql LIKE '%GLOB%')
		OR type = 'table' AND EXISTS (SELECT 1 FROM pragma_table_xinfo(sqlite_schema.name) WHERE hidden != 0) LIMIT 1`), &name)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err == nil:
		return damaged("schema", "%.100q is to be calculated", name)
	}
	return err
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close() // only read
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// classifySQL converts an error of SQLite into one of this module.
func classifySQL(what string, err error) error {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		switch e.Code() & 0xff {
		case 1, 11, 26: // no such table, malformed, not a database
			return &base.CorruptError{Where: what, Got: e.Error()}
		}
	}
	return fmt.Errorf("%s: %w", what, err)
}

// database reads the metadata of a database.
func (s *sqlSource) database(ctx context.Context, id int64, db *sql.DB) (*indexeddb.Database, error) {
	d := &indexeddb.Database{ID: id, NextBlob: indexeddb.MinBlobNumber}
	var name []byte
	if err := scanRow(ctx, db.QueryRowContext(ctx, "SELECT name, version FROM indexed_db_metadata"), &name, &d.Version); err != nil {
		return nil, err
	}
	d.Name, d.Version = utf16Text(name), max(d.Version, 0)
	var compatible, data int64
	if err := scanRow(ctx, db.QueryRowContext(ctx, "SELECT value FROM meta WHERE key = 'last_compatible_version'"), &compatible); err != nil {
		return nil, err
	}
	if compatible > sqlSchemaVersion {
		return nil, &base.FormatError{What: "IndexedDB in SQLite", Found: uint64(compatible), Supported: sqlSchemaVersion}
	}
	if err := scanRow(ctx, db.QueryRowContext(ctx, "SELECT value FROM meta WHERE key = 'v8_data_version'"), &data); err != nil {
		return nil, err
	}
	row := indexeddb.Row{Kind: indexeddb.KindGlobal, Property: indexeddb.GlobalDataVersion}
	if err := s.meta.Add(row, indexeddb.AppendInt(nil, max(data, s.meta.DataVersion))); err != nil {
		return nil, err
	}
	if err := scanRow(ctx, db.QueryRowContext(ctx, "SELECT COALESCE(MAX(row_id), 0) + 2 FROM blobs"), &d.NextBlob); err != nil {
		return nil, err
	}
	if err := s.stores(ctx, d, db); err != nil {
		return nil, err
	}
	return d, s.count(ctx, d, db)
}

func (s *sqlSource) stores(ctx context.Context, d *indexeddb.Database, db *sql.DB) error {
	err := query(ctx, db, func(scan func(...any) error) error {
		st := &indexeddb.Store{MaxIndexID: indexeddb.MinIndexID, LastVersion: sqlRecordVersion}
		var name, path []byte
		var has bool
		if err := scan(&st.ID, &name, &has, &path, &st.AutoIncrement, &st.KeyGenerator); err != nil {
			return err
		}
		st.Name, st.KeyPath = utf16Text(name), sqlKeyPath(has, path)
		d.MaxStoreID = max(d.MaxStoreID, st.ID)
		d.Stores = append(d.Stores, st)
		return nil
	}, "SELECT id, name, key_path IS NOT NULL, key_path, auto_increment, key_generator_current_number FROM object_stores ORDER BY id")
	if err != nil {
		return err
	}
	return query(ctx, db, func(scan func(...any) error) error {
		x := &indexeddb.Index{}
		var store int64
		var name, path []byte
		if err := scan(&store, &x.ID, &name, &path, &x.Unique, &x.MultiEntry); err != nil {
			return err
		}
		st := d.Store(store)
		if st == nil {
			return damaged("index", "it belongs to object store %d, which does not exist", store)
		}
		x.Name, x.KeyPath = utf16Text(name), sqlKeyPath(true, path)
		st.MaxIndexID = max(st.MaxIndexID, x.ID)
		st.Indexes = append(st.Indexes, x)
		return nil
	}, "SELECT object_store_id, id, name, key_path, is_unique, multi_entry FROM indexes ORDER BY object_store_id, id")
}

// count counts the records of each object store, which must exist.
func (s *sqlSource) count(ctx context.Context, d *indexeddb.Database, db *sql.DB) error {
	return query(ctx, db, func(scan func(...any) error) error {
		var store, n int64
		if err := scan(&store, &n); err != nil {
			return err
		}
		if d.Store(store) == nil {
			return damaged("records", "%d belong to object store %d, which does not exist", n, store)
		}
		s.counts[storeID{d.ID, store}] = n
		return nil
	}, "SELECT object_store_id, COUNT(*) FROM records GROUP BY object_store_id")
}

// query calls fn for each row of a query.
func query(ctx context.Context, db *sql.DB, fn func(scan func(...any) error) error, text string, args ...any) (err error) {
	rows, err := db.QueryContext(ctx, text, args...)
	if err != nil {
		return classifySQL("query", err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if err := fn(func(dest ...any) error { return scanRow(ctx, rows, dest...) }); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return classifySQL("query", err)
	}
	return nil
}

// scanRow copies the columns of a row. Types may be wrong: SQLite files have no checksums, and a
// damaged schema names other columns.
func scanRow(ctx context.Context, row interface{ Scan(dest ...any) error }, dest ...any) error {
	err := row.Scan(dest...)
	if err == nil || ctx.Err() != nil || errors.Is(err, sql.ErrNoRows) {
		return err
	}
	if _, ok := errors.AsType[*sqlite.Error](err); ok {
		return classifySQL("row", err)
	}
	return damaged("row", "%.200s", err)
}

// utf16Text decodes little-endian UTF-16, the form of names in SQLite files.
func utf16Text(b []byte) string {
	swapped := make([]byte, len(b)&^1)
	for i := 0; i < len(swapped); i += 2 {
		binary.BigEndian.PutUint16(swapped[i:], binary.LittleEndian.Uint16(b[i:]))
	}
	text, _ := indexeddb.DecodeString(swapped) // the number of bytes is even
	return text
}

// sqlKeyPath decodes a key path, if present: one path, or several separated by spaces.
func sqlKeyPath(has bool, b []byte) indexeddb.KeyPath {
	if !has {
		return indexeddb.KeyPath{}
	}
	p := indexeddb.KeyPath{Type: indexeddb.StringKeyPath, Paths: strings.Split(utf16Text(b), " ")}
	if len(p.Paths) > 1 {
		p.Type = indexeddb.ArrayKeyPath
	}
	return p
}

func (s *sqlSource) schema() (*indexeddb.Schema, map[storeID]int64) { return s.meta, s.counts }

func (s *sqlSource) close() error {
	var errs []error
	for _, db := range s.files {
		errs = append(errs, db.Close())
	}
	return errors.Join(append(errs, os.RemoveAll(s.above))...)
}

// metadata implements source.
func (s *sqlSource) metadata(_ context.Context, fn func(indexeddb.Row, []byte) error) error {
	for row, value := range s.meta.Rows() {
		if err := fn(row, slices.Clone(value)); err != nil {
			return err
		}
	}
	return nil
}
