package profile

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/syndtr/goleveldb/leveldb/journal"
	"github.com/syndtr/goleveldb/leveldb/storage"

	"github.com/ledgerd/ledger/indexeddb"
)

// Tags of the fields in a manifest.
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

// manifest lists the files of a LevelDB directory.
type manifest struct {
	fd       storage.FileDesc
	name     string
	comparer string
	journal  uint64
	sequence uint64            // of the last change recorded in the manifest
	tables   map[uint64]uint64 // the size of each table
	next     uint64            // the number of the first change in journals, 0 without one
}

// checkManifest reads the manifest of a directory, and checks that the files in it exist with the
// recorded size.
func checkManifest(dir string) (*manifest, error) {
	fd, err := currentManifest(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, damaged("CURRENT", "it is missing")
	}
	if err != nil {
		return nil, err
	}
	m := &manifest{fd: fd, name: fd.String(), tables: map[uint64]uint64{}}
	if err := forFile(dir, fd, m.edit); err != nil {
		return nil, err
	}
	if m.comparer != indexeddb.ComparatorName {
		return nil, damaged(m.name, "the directory has the order %q, that of IndexedDB is %q", m.comparer, indexeddb.ComparatorName)
	}
	for n, size := range m.tables {
		f, err := openBelow(dir, storage.FileDesc{Type: storage.TypeTable, Num: int64(n)})
		if err != nil {
			return nil, missing(fmt.Sprintf("%06d.ldb", n), err)
		}
		info, err := f.Stat()
		if err := errors.Join(err, f.Close()); err != nil {
			return nil, err
		}
		if uint64(info.Size()) != size {
			return nil, damaged(filepath.Base(f.Name()), "it has %d bytes and had %d", info.Size(), size)
		}
	}
	return m, m.readJournals(dir)
}

// readJournals finds the current journal, which must exist: the one in the manifest, or a later one
// if the manifest is older. It reads the number of the first change in the first journal that has
// one.
func (m *manifest) readJournals(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var journals []storage.FileDesc
	for _, e := range entries {
		if fd, ok := parseName(e.Name()); ok && fd.Type == storage.TypeJournal && uint64(fd.Num) >= m.journal {
			journals = append(journals, fd)
		}
	}
	if len(journals) == 0 {
		return damaged(fmt.Sprintf("%06d.log", m.journal), "it is missing")
	}
	slices.SortFunc(journals, func(a, b storage.FileDesc) int { return cmp.Compare(a.Num, b.Num) })
	found := errors.New("found")
	for _, fd := range journals {
		err := forFile(dir, fd, func(batch []byte) error {
			if len(batch) < 8 {
				return damaged(fd.String(), "a batch is cut")
			}
			m.next = binary.LittleEndian.Uint64(batch)
			return found
		})
		if errors.Is(err, found) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// rewind lowers the sequence number of the manifest in the overlay below the first change in the
// journals. A browser writes a table, and then the manifest, while it already writes the next
// journal. So the number in the manifest may be from the middle of that journal. goleveldb would
// then treat the earlier changes as damage, while the browser uses the number of each change.
func (m *manifest) rewind(files *overlay) error {
	if m.next == 0 || m.next > m.sequence {
		return nil
	}
	out, err := files.Create(m.fd)
	if err != nil {
		return err
	}
	w := journal.NewWriter(out)
	add := func(b []byte) error {
		record, err := w.Next()
		if err == nil {
			_, err = record.Write(b)
		}
		return err
	}
	err = forFile(files.below, m.fd, add)
	if err == nil {
		err = add(binary.AppendUvarint([]byte{editSequence}, m.next-1)) // the last one counts
	}
	return errors.Join(err, w.Close(), out.Close())
}

// missing returns the error for a file that cannot be opened.
func missing(name string, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return damaged(name, "it is missing")
	}
	return err
}

// forFile calls fn for each record of a journal or manifest, as forRecords does.
func forFile(dir string, fd storage.FileDesc, fn func([]byte) error) error {
	name := fd.String()
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return missing(name, err)
	}
	defer f.Close() // only read
	info, err := f.Stat()
	if err != nil {
		return err
	}
	end, err := recordsEnd(f, info.Size(), name)
	if err != nil {
		return err
	}
	return forRecords(f, end, name, fn)
}

// edit applies one record of the manifest.
func (m *manifest) edit(b []byte) error {
	r := editReader{b: b}
	for len(r.b) > 0 && !r.bad {
		switch tag := r.uint(); tag {
		case editComparer:
			m.comparer = string(r.bytes())
		case editJournal:
			m.journal = r.uint()
		case editSequence:
			m.sequence = r.uint()
		case editNextFile, editPrevJournal:
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
