package profile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ledgerd/ledger/indexeddb"
	"github.com/ledgerd/ledger/internal/base"
)

// Format is the storage format of a directory.
type Format string

// The formats.
const (
	LevelDB Format = "leveldb"
	SQLite  Format = "sqlite"
)

// The suffixes of directory names.
const (
	levelSuffix = ".indexeddb.leveldb"
	blobSuffix  = ".indexeddb.blob"
)

// Directory is the directory of an origin in a browser.
type Directory struct {
	Path   string
	Format Format
}

// Find returns the directories at or below path. path is such a directory, the IndexedDB directory
// of a browser profile, a profile, or the directory of all profiles. Errors: base.ErrNotFound when
// there is none.
func Find(path string) (found []Directory, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("find IndexedDB: %w", err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("find IndexedDB: %s is no directory: %w", path, base.ErrInvalid)
	}
	path = filepath.Clean(path)
	// path itself is last: profiles contain other SQLite files, too.
	for _, dir := range []string{filepath.Join(path, "Default", "IndexedDB"), filepath.Join(path, "IndexedDB"), path} {
		if found, err = look(dir); err != nil || len(found) > 0 {
			return found, err
		}
	}
	return nil, fmt.Errorf("find IndexedDB in %s: %w", path, base.ErrNotFound)
}

// look returns dir if it is a directory of an origin, else those in it.
func look(dir string) (found []Directory, err error) {
	format, err := formatOf(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case format != "":
		return []Directory{{dir, format}}, nil
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("find IndexedDB: %w", err)
	}
	for _, e := range entries {
		if !e.IsDir() || strings.HasSuffix(e.Name(), blobSuffix) {
			continue
		}
		format, err := formatOf(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		if format != "" {
			found = append(found, Directory{filepath.Join(dir, e.Name()), format})
		}
	}
	return found, nil
}

// formatOf returns the format of a directory of an origin, and "" for other directories.
func formatOf(dir string) (Format, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", fmt.Errorf("find IndexedDB: %w", err)
	}
	if strings.HasSuffix(dir, levelSuffix) || slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == "CURRENT" }) {
		return LevelDB, nil
	}
	for _, e := range entries {
		if e.Type().IsRegular() && isSQLite(filepath.Join(dir, e.Name())) {
			return SQLite, nil
		}
	}
	return "", nil
}

// isSQLite reports whether a file begins like a SQLite file.
func isSQLite(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close() // only read
	const magic = "SQLite format 3\x00"
	b := make([]byte, len(magic))
	_, err = f.Read(b)
	return err == nil && string(b) == magic
}

// Options configures reading. With the zero value and nil, reading stops at the first damage.
type Options struct {
	// Damage is called with each damage, a base.ErrCorrupt that names the row. Reading stops when
	// it returns an error, or is nil. It may be called several times for one row.
	Damage func(error) error
	// LeftOut is called for each row missing from a unique index although its record has the key.
	// holder is the primary key of another record with that key in the index, or zero if none is
	// left. It may be nil.
	LeftOut func(row indexeddb.Row, holder indexeddb.Key)
	// Progress is called often, on the goroutine of the caller. It may be nil.
	Progress func(Progress)
}

func (o *Options) withDefaults() Options {
	var out Options
	if o != nil {
		out = *o
	}
	if out.Damage == nil {
		out.Damage = fail
	}
	if out.LeftOut == nil {
		out.LeftOut = func(indexeddb.Row, indexeddb.Key) {}
	}
	if out.Progress == nil {
		out.Progress = func(Progress) {}
	}
	return out
}

// Progress is the progress of a long call. Total is the number of all records.
type Progress struct {
	Records, Total, Bytes int64
}

// Profile is a directory or page, open for reading.
type Profile struct {
	dir     Directory
	source  source
	options Options
}

// Open opens the directory at path, or the only one below it (see Find). The caller closes the
// Profile. Errors: base.ErrNotFound, base.ErrLocked when a browser has it open, base.ErrCorrupt,
// base.ErrUnsupported for unknown formats, base.ErrInvalid when there are several.
func Open(ctx context.Context, path string, o *Options) (*Profile, error) {
	found, err := Find(path)
	if err != nil {
		return nil, err
	}
	if len(found) > 1 {
		names := make([]string, len(found))
		for i, d := range found {
			names[i] = filepath.Base(d.Path)
		}
		return nil, fmt.Errorf("open IndexedDB: there are %d origins in %s, name one of them: %s: %w", len(found), path, strings.Join(names, ", "), base.ErrInvalid)
	}
	p := &Profile{dir: found[0], options: o.withDefaults()}
	switch p.dir.Format {
	case SQLite:
		p.source, err = openSQLite(ctx, p.dir.Path, p.options.Damage)
	default:
		blobs := strings.TrimSuffix(p.dir.Path, levelSuffix) + blobSuffix
		p.source, err = openLevelSource(ctx, p.dir.Path, blobs, p.options.Damage)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", filepath.Base(p.dir.Path), err)
	}
	return p, nil
}

// Directory returns the opened directory.
func (p *Profile) Directory() Directory { return p.dir }

// Schema returns the metadata, which belong to the Profile.
func (p *Profile) Schema() *indexeddb.Schema {
	s, _ := p.source.schema()
	return s
}

// Records returns the number of records in an object store.
func (p *Profile) Records(database, store int64) int64 {
	_, counts := p.source.schema()
	return counts[storeID{database, store}]
}

// Close releases the directory.
func (p *Profile) Close() error { return p.source.close() }

// total returns the number of all records.
func (p *Profile) total() (n int64) {
	_, counts := p.source.schema()
	for _, c := range counts {
		n += c
	}
	return n
}

// stores calls fn for each object store.
func (p *Profile) stores(fn func(storeID, *indexeddb.Store) error) error {
	for _, d := range p.Schema().Databases {
		for _, s := range d.Stores {
			if err := fn(storeID{d.ID, s.ID}, s); err != nil {
				return err
			}
		}
	}
	return nil
}
