package profile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/syndtr/goleveldb/leveldb/storage"

	"github.com/ledgerd/ledger/indexeddb"
)

// Tags of what a manifest says.
const (
	editComparer    = 1
	editJournal     = 2
	editNextFile    = 3
	editSequence    = 4
	editCompaction  = 5
	editDeletedFile = 6
	editNewFile     = 7
	editPrevJournal = 9
)

// manifest is which files make up a LevelDB directory.
type manifest struct {
	name     string
	comparer string
	journal  uint64
	tables   map[uint64]uint64 // the size of each
}

// checkManifest reads the manifest of a directory, and looks whether the files that it names are
// there and as long as it says.
func checkManifest(dir string) error {
	fd, err := currentManifest(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return damaged("CURRENT", "it is missing")
	}
	if err != nil {
		return err
	}
	m := &manifest{name: fd.String(), tables: map[uint64]uint64{}}
	if err := m.read(dir); err != nil {
		return err
	}
	if m.comparer != indexeddb.ComparatorName {
		return damaged(m.name, "the directory has the order %q, that of IndexedDB is %q", m.comparer, indexeddb.ComparatorName)
	}
	for n, size := range m.tables {
		f, err := openBelow(dir, storage.FileDesc{Type: storage.TypeTable, Num: int64(n)})
		if err != nil {
			return missing(fmt.Sprintf("%06d.ldb", n), err)
		}
		info, err := f.Stat()
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
		if uint64(info.Size()) != size {
			return damaged(filepath.Base(f.Name()), "it has %d bytes and had %d", info.Size(), size)
		}
	}
	return m.checkJournal(dir)
}

// checkJournal looks for the journal that is written now, which is always there: that of the
// manifest or, where the manifest was not written since, a later one.
func (m *manifest) checkJournal(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if fd, ok := parseName(e.Name()); ok && fd.Type == storage.TypeJournal && uint64(fd.Num) >= m.journal {
			return nil
		}
	}
	return damaged(fmt.Sprintf("%06d.log", m.journal), "it is missing")
}

// missing makes the error of a file that cannot be opened.
func missing(name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return damaged(name, "it is missing")
	}
	return err
}

func (m *manifest) read(dir string) error {
	f, err := os.Open(filepath.Join(dir, m.name))
	if err != nil {
		return missing(m.name, err)
	}
	defer f.Close() // only read
	info, err := f.Stat()
	if err != nil {
		return err
	}
	end, err := recordsEnd(f, info.Size(), m.name)
	if err != nil {
		return err
	}
	return forRecords(f, end, m.name, m.edit)
}

// edit takes one record: what changed.
func (m *manifest) edit(b []byte) error {
	r := editReader{b: b}
	for len(r.b) > 0 && !r.bad {
		switch tag := r.uint(); tag {
		case editComparer:
			m.comparer = string(r.bytes())
		case editJournal:
			m.journal = r.uint()
		case editNextFile, editSequence, editPrevJournal:
			r.uint()
		case editCompaction:
			r.uint()
			r.bytes()
		case editDeletedFile:
			r.uint()
			delete(m.tables, r.uint())
		case editNewFile:
			r.uint()
			n, size := r.uint(), r.uint()
			r.bytes()
			r.bytes()
			m.tables[n] = size
		default:
			return damaged(m.name, "it has an unknown entry %d", tag)
		}
	}
	if r.bad {
		return damaged(m.name, "an entry is cut")
	}
	return nil
}

type editReader struct {
	b   []byte
	bad bool
}

func (r *editReader) uint() uint64 {
	n, size := binary.Uvarint(r.b)
	if size <= 0 || n > 1<<62 {
		r.b, r.bad = nil, true
		return 0
	}
	r.b = r.b[size:]
	return n
}

func (r *editReader) bytes() []byte {
	n := r.uint()
	if n > uint64(len(r.b)) {
		r.b, r.bad = nil, true
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}
