package profile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/syndtr/goleveldb/leveldb"
	"github.com/syndtr/goleveldb/leveldb/opt"

	"github.com/ledgerd/ledger/indexeddb"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/ordered"
)

// Exported is the result of Export.
type Exported struct {
	Directory
	Result
}

// Export writes the rows of IndexedDB on a page as a LevelDB directory for a browser, and the blobs
// as a directory beside it. It creates both in dir under the name of the origin. If dir itself ends
// in .indexeddb.leveldb, it is the directory to create. Neither may exist before. They appear only
// when they are complete. Export uses o.Progress only. Errors: base.ErrNotFound when the page has
// no database, fs.ErrExist, base.ErrInvalid when databases belong to several origins,
// base.ErrCorrupt for damaged rows, those of r and ctx.
func Export(ctx context.Context, r ordered.Reader, dir string, o *Options) (done Exported, err error) {
	schema, err := indexeddb.PageSchema(ctx, r, fail)
	if err != nil {
		return done, fmt.Errorf("export: %w", err)
	}
	path, err := target(schema, dir)
	if err != nil {
		return done, fmt.Errorf("export: %w", err)
	}
	blobs := strings.TrimSuffix(path, levelSuffix) + blobSuffix
	for _, p := range []string{path, blobs} {
		if _, err := os.Lstat(p); !errors.Is(err, fs.ErrNotExist) {
			return done, errors.Join(fmt.Errorf("export: %s: %w", p, fs.ErrExist), err)
		}
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return done, fmt.Errorf("export: %w", err)
	}
	work, err := os.MkdirTemp(filepath.Dir(path), ".export-")
	if err != nil {
		return done, fmt.Errorf("export: %w", err)
	}
	e := &exporter{ctx: ctx, r: r, schema: schema, blobs: filepath.Join(work, "blobs"), options: o.withDefaults()}
	err = e.write(filepath.Join(work, "rows"))
	if err == nil && e.empty {
		err = removeEmpty(e.blobs)
	}
	if err == nil && e.result.Blobs > 0 {
		err = os.Rename(e.blobs, blobs)
	}
	if err == nil {
		err = os.Rename(filepath.Join(work, "rows"), path)
	}
	if err = errors.Join(err, os.RemoveAll(work)); err != nil {
		return done, fmt.Errorf("export: %w", err)
	}
	return Exported{Directory{path, LevelDB}, e.result}, nil
}

// originName matches identifiers of origins: scheme, host and port, then the way of counting data.
// The name of the directory omits the latter.
var originName = regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9._-]{0,250})(@1)?$`)

// target returns the path of the directory to create.
func target(schema *indexeddb.Schema, dir string) (string, error) {
	if len(schema.Databases) == 0 {
		return "", fmt.Errorf("find databases on the page: %w", base.ErrNotFound)
	}
	origin := schema.Databases[0].Origin
	for _, d := range schema.Databases {
		if d.Origin != origin {
			return "", fmt.Errorf("databases of the origins %q and %q on one page: %w", origin, d.Origin, base.ErrInvalid)
		}
	}
	if strings.HasSuffix(dir, levelSuffix) {
		return filepath.Clean(dir), nil
	}
	parts := originName.FindStringSubmatch(origin)
	if parts == nil {
		return "", fmt.Errorf("the origin %.300q names no directory: say one that ends in %s: %w", origin, levelSuffix, base.ErrInvalid)
	}
	return filepath.Join(dir, parts[1]+levelSuffix), nil
}

// removeEmpty removes the files of empty blobs, because a browser has none for these.
func removeEmpty(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err != nil || info.Size() > 0 {
			return err
		}
		return os.Remove(path)
	})
}

// exporter writes the rows of a page to a directory.
type exporter struct {
	ctx      context.Context
	r        ordered.Reader
	schema   *indexeddb.Schema
	blobs    string
	options  Options
	db       *leveldb.DB
	batch    leveldb.Batch
	size     int  // of the batch, in bytes
	empty    bool // empty blobs exist
	result   Result
	progress Progress
}

// batchBytes is the size of a write to the directory.
const batchBytes = 1 << 20

func (e *exporter) write(dir string) error {
	var err error
	e.db, err = leveldb.OpenFile(dir, &opt.Options{Comparer: order{}, ErrorIfExist: true})
	if err != nil {
		return err
	}
	return errors.Join(e.rows(), e.db.Close())
}

func (e *exporter) rows() error {
	for _, d := range e.schema.Databases {
		e.result.Databases++
		e.result.Stores += int64(len(d.Stores))
		for _, s := range d.Stores {
			e.result.Indexes += int64(len(s.Indexes))
		}
	}
	it := e.r.Iter(ordered.Prefix(indexeddb.PagePrefix()))
	err := e.walk(it)
	if err := errors.Join(err, it.Close()); err != nil {
		return err
	}
	for _, d := range e.schema.Databases {
		row := indexeddb.Row{Kind: indexeddb.KindDatabase, Database: d.ID, Property: indexeddb.DatabaseBlobNumber}
		if err := e.put(row, indexeddb.AppendVarInt(nil, d.NextBlob)); err != nil {
			return err
		}
	}
	scopes := indexeddb.Row{Kind: indexeddb.KindScope, Scope: indexeddb.Scope{Kind: indexeddb.ScopeVersion}.Append(nil)}
	if err := e.put(scopes, indexeddb.AppendScopesVersion(nil, indexeddb.ScopesVersion)); err != nil {
		return err
	}
	return e.db.Write(&e.batch, &opt.WriteOptions{Sync: true})
}

func (e *exporter) walk(it ordered.Iter) error {
	for it.Next(e.ctx) {
		// external copies the content of a blob.
		row, err := indexeddb.DecodePageKey(it.Key())
		if err == nil && row.Kind == indexeddb.KindContent {
			continue
		}
		value, err := it.Value(e.ctx)
		if err != nil {
			return fmt.Errorf("read page: %w", err)
		}
		row, value, err = indexeddb.DecodePageRow(it.Key(), value)
		if err == nil {
			err = e.row(row, value)
		}
		if err != nil {
			return err
		}
	}
	return it.Err()
}

// row writes the rows of the directory for a row of the page.
func (e *exporter) row(r indexeddb.Row, value []byte) error {
	switch r.Kind {
	case indexeddb.KindRecord, indexeddb.KindExternal, indexeddb.KindIndexRow:
	case indexeddb.KindMoved:
		return nil // only merges use it
	default:
		return e.put(r, value)
	}
	d := e.schema.Database(r.Database)
	if d == nil || d.Store(r.Store) == nil || r.Kind == indexeddb.KindIndexRow && d.Store(r.Store).Index(r.Index) == nil {
		return damaged(r.Describe(), "its object store or index does not exist")
	}
	switch r.Kind {
	case indexeddb.KindRecord:
		return e.record(r, d.Store(r.Store), value)
	case indexeddb.KindExternal:
		return e.external(r, d, value)
	}
	version, err := e.version(r)
	if err != nil {
		return err
	}
	e.result.IndexRows++
	return e.put(r, indexeddb.AppendIndexValue(nil, version, r.Primary))
}

func (e *exporter) record(r indexeddb.Row, s *indexeddb.Store, value []byte) error {
	version, script, err := indexeddb.DecodeRecord(value)
	if err == nil && (version < 1 || version > s.LastVersion) {
		err = damaged("version", "%d, the last of the object store is %d", version, s.LastVersion)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", r.Describe(), err)
	}
	if err := e.put(r, value); err != nil {
		return err
	}
	e.result.Records++
	e.result.Bytes += int64(len(script))
	e.tell()
	r.Kind = indexeddb.KindExists
	return e.put(r, indexeddb.AppendInt(nil, version))
}

func (e *exporter) tell() {
	e.progress.Records, e.progress.Bytes = e.result.Records, e.result.Bytes
	e.options.Progress(e.progress)
}

// version returns the version of the record to which a row belongs.
func (e *exporter) version(r indexeddb.Row) (int64, error) {
	record := storeID{r.Database, r.Store}.row(indexeddb.KindRecord, r.Primary)
	key, _ := indexeddb.PageKey(nil, record)
	value, err := e.r.Get(e.ctx, key)
	if errors.Is(err, base.ErrNotFound) {
		return 0, damaged(r.Describe(), "it has no record")
	}
	if err != nil {
		return 0, fmt.Errorf("%s: %w", record.Describe(), err)
	}
	_, value, err = indexeddb.DecodePageRow(key, value)
	if err != nil {
		return 0, err
	}
	version, _, err := indexeddb.DecodeRecord(value)
	return version, err
}

// external writes the external objects of a record, and the content of blobs as files.
func (e *exporter) external(r indexeddb.Row, d *indexeddb.Database, value []byte) error {
	objects, err := indexeddb.DecodeExternalObjects(value, indexeddb.MaxSchemaVersion)
	if err != nil {
		return fmt.Errorf("%s: %w", r.Describe(), err)
	}
	if _, err := e.version(r); err != nil {
		return err
	}
	for i := range objects {
		if objects[i].Type == indexeddb.ObjectHandle {
			continue
		}
		if err := e.content(r, i, &objects[i], d); err != nil {
			return fmt.Errorf("%s: object %d: %w", r.Describe(), i, err)
		}
	}
	return e.put(r, indexeddb.AppendExternalObjects(nil, objects))
}

// content writes a blob under its number, or under another one if the number is in use, as is
// possible after a merge. The file of an empty blob is removed at the end.
func (e *exporter) content(r indexeddb.Row, i int, o *indexeddb.ExternalObject, d *indexeddb.Database) (err error) {
	var f *os.File
	for {
		path := blobPath(e.blobs, d.ID, o.Number)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if f, err = os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err == nil {
			break
		}
		if !errors.Is(err, fs.ErrExist) {
			return err
		}
		o.Number = d.NextBlob
		d.NextBlob++
	}
	d.NextBlob = max(d.NextBlob, o.Number+1)
	if o.Size == 0 {
		e.empty = true
		return f.Close() // the file reserves the number until the end
	}
	e.result.Blobs++
	r.Kind, r.Sequence = indexeddb.KindContent, int64(i)
	key, _ := indexeddb.PageKey(nil, r)
	v, err := e.r.Open(e.ctx, key)
	if errors.Is(err, base.ErrNotFound) || err == nil && v.Size() != o.Size {
		err = errors.Join(damaged("content", "it is missing, or not as long as it was"), err)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	n, err := io.Copy(f, v)
	e.result.Bytes += n
	e.tell()
	return errors.Join(err, v.Close(), f.Close())
}

func (e *exporter) put(r indexeddb.Row, value []byte) error {
	key := r.Append(nil)
	e.batch.Put(key, value)
	if e.size += len(key) + len(value); e.size < batchBytes {
		return nil
	}
	if err := e.db.Write(&e.batch, nil); err != nil {
		return err
	}
	e.batch.Reset()
	e.size = 0
	return nil
}
