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

// Format is how a browser stores a directory.
type Format string

// The formats.
const (
	LevelDB Format = "leveldb"
	SQLite  Format = "sqlite"
)

// The ends of names of directories.
const (
	levelSuffix = ".indexeddb.leveldb"
	blobSuffix  = ".indexeddb.blob"
)

// Directory is a directory that a browser keeps for an origin.
type Directory struct {
	Path   string
	Format Format
}

// Find returns the directories at path or below it: path is one itself, or the IndexedDB directory
// of a browser's profile, or the profile, or the directory of all profiles. Errors:
// base.ErrNotFound when there is none.
func Find(path string) (found []Directory, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("find IndexedDB: %w", err)
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("find IndexedDB: %s is no directory: %w", path, base.ErrInvalid)
	}
	path = filepath.Clean(path)
	// The first is last: profiles have SQLite files, too, which are no databases of an origin.
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

// formatOf tells a directory of an origin from others, for which it returns "".
func formatOf(dir string) (Format, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", fmt.Errorf("find IndexedDB: %w", err)
	}
	if strings.HasSuffix(dir, levelSuffix) || slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == "CURRENT" }) {
		return LevelDB, nil
	}
	for _, e := range entries {
		if !e.IsDir() && isSQLite(filepath.Join(dir, e.Name())) {
			return SQLite, nil
		}
	}
	return "", nil
}

// isSQLite reports whether a file begins as SQLite's do.
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

// Options say how a directory is read. The zero value and nil stop at the first damage.
type Options struct {
	// Damage is called with each damage that is found, a base.ErrCorrupt that names the row. When
	// it returns an error, or is nil, reading ends. It may be called several times for one row.
	Damage func(error) error
	// LeftOut is called with each row that a unique index does not have though its record has the
	// key. holder is the primary key of another record that has it there, and zero when there is
	// none any more. It may be nil.
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

// Progress is how far a long call has come. Total is the number of records that there are.
type Progress struct {
	Records, Total, Bytes int64
}

// Profile is a directory that is open for reading.
type Profile struct {
	dir     Directory
	source  source
	options Options
}

// Open opens the directory that is at path, or the only one below it (see Find). The caller closes
// the Profile. Errors: base.ErrNotFound, base.ErrLocked when a browser has it open,
// base.ErrCorrupt, base.ErrUnsupported for forms that are not known, base.ErrInvalid when there are
// several.
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

// Directory returns what was opened.
func (p *Profile) Directory() Directory { return p.dir }

// Schema returns the metadata, which belong to the Profile.
func (p *Profile) Schema() *indexeddb.Schema {
	s, _ := p.source.schema()
	return s
}

// Records returns how many records an object store has.
func (p *Profile) Records(database, store int64) int64 {
	_, counts := p.source.schema()
	return counts[storeID{database, store}]
}

// Close ends the use of the directory.
func (p *Profile) Close() error { return p.source.close() }

// total returns how many records there are.
func (p *Profile) total() (n int64) {
	_, counts := p.source.schema()
	for _, c := range counts {
		n += c
	}
	return n
}

// stores calls fn with each object store.
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
