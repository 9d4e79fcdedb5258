package profile_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/syndtr/goleveldb/leveldb"
	"github.com/syndtr/goleveldb/leveldb/comparer"
	"github.com/syndtr/goleveldb/leveldb/journal"
	"github.com/syndtr/goleveldb/leveldb/opt"
	"github.com/syndtr/goleveldb/leveldb/util"

	"github.com/ledgerd/ledger/indexeddb"
	"github.com/ledgerd/ledger/indexeddb/profile"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/tier"
	"github.com/ledgerd/ledger/ordered"
)

// fixtureDir copies a directory that Chromium wrote, with its blobs, and returns its path.
func fixtureDir(t *testing.T) string {
	t.Helper()
	return copyFixture(t, t.TempDir())
}

// idbOrder is the comparator, for directories that tests write.
type idbOrder struct{ comparer.Comparer }

func (idbOrder) Name() string                    { return indexeddb.ComparatorName }
func (idbOrder) Compare(a, b []byte) int         { return indexeddb.CompareRows(a, b) }
func (idbOrder) Separator(_, _, _ []byte) []byte { return nil }
func (idbOrder) Successor(_, _ []byte) []byte    { return nil }

// edit changes a directory as a browser would.
func edit(t *testing.T, dir string, fn func(*leveldb.DB) error) {
	t.Helper()
	db, err := leveldb.OpenFile(dir, &opt.Options{Comparer: idbOrder{comparer.DefaultComparer}, BlockSize: 1 << 10})
	if err == nil {
		err = errors.Join(fn(db), db.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// compact brings all rows of a directory into tables.
func compact(t *testing.T, dir string) {
	t.Helper()
	edit(t, dir, func(db *leveldb.DB) error { return db.CompactRange(util.Range{}) })
}

// contents imports a directory and returns its rows, or the error.
func contents(ctx context.Context, dir string) (map[string]string, error) {
	p, err := profile.Open(ctx, dir, nil)
	if err != nil {
		return nil, err
	}
	defer p.Close()
	if _, err := p.Check(ctx); err != nil {
		return nil, err
	}
	page := ordered.NewMemory()
	if _, err := p.Import(ctx, page); err != nil {
		return nil, err
	}
	rows := map[string]string{}
	for row, err := range ordered.Rows(ctx, page, ordered.Range{}) {
		if err != nil {
			return nil, err
		}
		rows[string(row.Key)] = string(row.Value)
	}
	return rows, nil
}

// TestDamagedBytes changes bytes of the files of a directory, one at a time. Either that is
// noticed, or what is read is the same. The nightly tier takes all bytes, and others take one here
// and there.
func TestDamagedBytes(t *testing.T) {
	if bounded(t, func(string) {}) == "" {
		return
	}
	for name, prepare := range map[string]func(*testing.T, string){"journal": func(*testing.T, string) {}, "tables": compact} {
		t.Run(name, func(t *testing.T) {
			dir := fixtureDir(t)
			prepare(t, dir)
			want, err := contents(t.Context(), dir)
			if err != nil || len(want) < 200 {
				t.Fatalf("%d rows, error %v", len(want), err)
			}
			stride := tier.Of(int64(1511), 499, 1)
			noticed := 0
			for _, path := range files(t, dir) {
				noticed += damageFile(t, dir, path, stride, want)
			}
			if noticed < 50 {
				t.Errorf("only %d changes were noticed", noticed)
			}
		})
	}
}

// files lists the files of a directory.
func files(t *testing.T, dir string) (paths []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "LOG" && e.Name() != "LOG.old" && e.Name() != "CURRENT.bak" {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	return paths
}

func damageFile(t *testing.T, dir, path string, stride int64, want map[string]string) (noticed int) {
	t.Helper()
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(good) < 1<<10 {
		stride = min(stride, 3)
	}
	for at := int64(0); at < int64(len(good)); at += stride {
		bad := append([]byte{}, good...)
		bad[at] ^= byte(1 + at%255)
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := contents(t.Context(), dir)
		switch {
		case errors.Is(err, base.ErrCorrupt), errors.Is(err, base.ErrUnsupported):
			noticed++
		case err != nil:
			t.Errorf("%s byte %d: %v", filepath.Base(path), at, err)
		case !cmp.Equal(want, got):
			t.Errorf("%s byte %d: other rows, and no error", filepath.Base(path), at)
		}
	}
	if err := os.WriteFile(path, good, 0o600); err != nil {
		t.Fatal(err)
	}
	return noticed
}

// TestMissingAndCutFiles: each file that is missing, empty or cut is noticed, blobs included.
func TestMissingAndCutFiles(t *testing.T) {
	dir := fixtureDir(t)
	compact(t, dir)
	paths := files(t, dir)
	err := filepath.WalkDir(blobsOf(dir), func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(path) == "LOCK" || filepath.Ext(path) == ".log" && len(good) == 0 {
			continue
		}
		for name, change := range map[string]func() error{
			"missing": func() error { return os.Remove(path) },
			"empty":   func() error { return os.WriteFile(path, nil, 0o600) },
			"cut":     func() error { return os.WriteFile(path, good[:len(good)/2], 0o600) },
		} {
			if err := change(); err != nil {
				t.Fatal(err)
			}
			if _, err := contents(t.Context(), dir); !errors.Is(err, base.ErrCorrupt) {
				t.Errorf("%s is %s: %v", filepath.Base(path), name, err)
			}
			if err := os.WriteFile(path, good, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestTornTail: what a browser was writing when it was killed is left out, as the browser does it.
func TestTornTail(t *testing.T) {
	dir := fixtureDir(t)
	journals, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil || len(journals) != 1 {
		t.Fatal(journals, err)
	}
	good, err := os.ReadFile(journals[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{1, 3, 6, 7, 8, 20} {
		if err := os.WriteFile(journals[0], good[:len(good)-n], 0o600); err != nil {
			t.Fatal(err)
		}
		p, err := profile.Open(t.Context(), dir, nil)
		if err != nil {
			t.Fatalf("cut by %d bytes: %v", n, err)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := os.WriteFile(journals[0], append(good, make([]byte, 5000)...), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := contents(t.Context(), dir); err != nil {
		t.Errorf("with space that was reserved: %v", err)
	}
}

// TestSequenceAhead: the manifest has a sequence number from the midst of the journal, as a browser
// writes it when it makes a table while it goes on with the next journal.
func TestSequenceAhead(t *testing.T) {
	dir := fixtureDir(t)
	want, err := contents(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "MANIFEST-000001")
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all bytes.Buffer
	w, r := journal.NewWriter(&all), journal.NewReader(bytes.NewReader(good), nil, true, true)
	for {
		record, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(copyRecord(w, record), copyRecord(w, strings.NewReader("\x04\xc0\x84\x3d"))); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), os.WriteFile(path, all.Bytes(), 0o600)); err != nil {
		t.Fatal(err)
	}
	got, err := contents(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func copyRecord(w *journal.Writer, record io.Reader) error {
	to, err := w.Next()
	if err == nil {
		_, err = io.Copy(to, record)
	}
	return err
}

// TestOrphanedObjects: a browser leaves the external objects of a record that one transaction has
// put and deleted, also when it has deleted the object store. They belong to nothing, and are no
// damage.
func TestOrphanedObjects(t *testing.T) {
	dir := fixtureDir(t)
	want, err := contents(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	objects := indexeddb.AppendExternalObjects(nil, []indexeddb.ExternalObject{{Type: indexeddb.ObjectBlob, Number: 3, Size: 5}})
	edit(t, dir, func(db *leveldb.DB) error {
		for _, store := range []int64{1, 2, 999} {
			for _, n := range []float64{-1e9, 77.5, 1e9} {
				k, err := indexeddb.NumberKey(n)
				if err != nil {
					return err
				}
				row := indexeddb.Row{Kind: indexeddb.KindExternal, Database: 1, Store: store, Primary: k}
				if err := db.Put(row.Append(nil), objects, nil); err != nil {
					return err
				}
			}
		}
		return nil
	})
	got, err := contents(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestDamagedRows changes rows as no browser would. Check names each.
func TestDamagedRows(t *testing.T) {
	person := func(kind indexeddb.Kind, n float64) indexeddb.Row {
		k, err := indexeddb.NumberKey(n)
		if err != nil {
			t.Fatal(err)
		}
		return indexeddb.Row{Kind: kind, Database: 1, Store: 2, Primary: k}
	}
	byName := person(indexeddb.KindIndexRow, 1)
	byName.Index, byName.Key = 31, indexeddb.StringKey("Anna")
	other := byName
	other.Key = indexeddb.StringKey("Berta")
	version := indexeddb.Row{Kind: indexeddb.KindStore, Database: 1, Store: 2, Property: indexeddb.StoreLastVersion}
	for name, c := range map[string]struct {
		change func(*leveldb.DB) error
		want   string
	}{
		"exists entry missing": {func(db *leveldb.DB) error { return db.Delete(person(indexeddb.KindExists, 1).Append(nil), nil) }, "record 1/2 03000000000000f03f: it has no exists entry"},
		"exists entry alone": {func(db *leveldb.DB) error {
			return db.Put(person(indexeddb.KindExists, 77).Append(nil), []byte{2}, nil)
		}, "exists entry 1/2 030000000000405340: it has no record"},
		"version beyond":    {func(db *leveldb.DB) error { return db.Put(version.Append(nil), []byte{2}, nil) }, "the last of the store 2"},
		"index row missing": {func(db *leveldb.DB) error { return db.Delete(byName.Append(nil), nil) }, "index row 1/2/31 01040041006e006e0061 of 03000000000000f03f: it is missing"},
		"index row beside": {func(db *leveldb.DB) error {
			value, err := db.Get(byName.Append(nil), nil)
			return errors.Join(err, db.Put(other.Append(nil), value, nil))
		}, "does not have this key"},
		"row of no store": {func(db *leveldb.DB) error { return db.Put([]byte{0, 1, 99, 1, 1, 0}, []byte{2}, nil) }, "record 1/99 0100: its object store or index does not exist"},
		"no row at all":   {func(db *leveldb.DB) error { return db.Put([]byte("\xffgarbage"), []byte{2}, nil) }, "row ff67617262616765 behind"},
		"newer data": {func(db *leveldb.DB) error {
			return db.Put(indexeddb.Row{Kind: indexeddb.KindGlobal, Property: 2}.Append(nil), indexeddb.AppendInt(nil, indexeddb.DataVersion(17, 21)), nil)
		}, "values of V8 has format version 17"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := fixtureDir(t)
			edit(t, dir, c.change)
			if _, err := contents(t.Context(), dir); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

// TestPendingTransaction: a transaction that wrote rows at once and did not commit is undone, and
// what is left to be cleaned up behind one that did is cleaned up.
func TestPendingTransaction(t *testing.T) {
	dir := fixtureDir(t)
	want, err := contents(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	store := indexeddb.Row{Kind: indexeddb.KindStore, Database: 1, Store: 1, Property: indexeddb.StoreName}
	scope := func(s indexeddb.Scope) []byte {
		return indexeddb.Row{Kind: indexeddb.KindScope, Scope: s.Append(nil)}.Append(nil)
	}
	field := func(number byte, body []byte) []byte {
		return append(binary.AppendUvarint([]byte{number<<3 | 2}, uint64(len(body))), body...)
	}
	garbage := indexeddb.Row{Kind: indexeddb.KindRecord, Database: 1, Store: 1, Primary: indexeddb.StringKey("not committed")}
	swept := indexeddb.Row{Kind: indexeddb.KindRecord, Database: 1, Store: 50, Primary: indexeddb.StringKey("deleted")}
	edit(t, dir, func(db *leveldb.DB) error {
		name, err := db.Get(store.Append(nil), nil)
		if err != nil {
			return err
		}
		rows := map[string][]byte{
			string(store.Append(nil)):   indexeddb.AppendString(nil, "changed"),
			string(garbage.Append(nil)): []byte("\x99\x01x"),
			string(swept.Append(nil)):   []byte("\x02x"),
			string(scope(indexeddb.Scope{Kind: indexeddb.ScopeMetadata, ID: 7})):                         field(1, []byte{8, 1}),
			string(scope(indexeddb.Scope{Kind: indexeddb.ScopeTask, ID: 7, Sequence: 1<<63 - 1})):        field(1, append(field(1, store.Append(nil)), field(2, name)...)),
			string(scope(indexeddb.Scope{Kind: indexeddb.ScopeTask, ID: 7, Sequence: 1<<63 - 2})):        field(2, field(1, garbage.Append(nil))),
			string(scope(indexeddb.Scope{Kind: indexeddb.ScopeMetadata, ID: 8})):                         {},
			string(scope(indexeddb.Scope{Kind: indexeddb.ScopeTask, ID: 8, Cleanup: true, Sequence: 1})): field(1, append(field(1, []byte{0, 1, 50, 1}), field(2, []byte{0, 1, 51, 1})...)),
			string(scope(indexeddb.Scope{Kind: indexeddb.ScopeTask, ID: 8, Sequence: 1<<63 - 1})):        field(2, field(1, store.Append(nil))),
		}
		for k, v := range rows {
			if err := db.Put([]byte(k), v, nil); err != nil {
				return err
			}
		}
		return nil
	})
	got, err := contents(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestLengthsThatAreClaimed: files with right checksums that claim lengths that cannot be are
// refused, and take no memory.
func TestLengthsThatAreClaimed(t *testing.T) {
	checksum := func(b []byte) []byte {
		crc := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
		return binary.LittleEndian.AppendUint32(nil, (crc>>15|crc<<17)+0xa282ead8)
	}
	record := func(b []byte) []byte {
		body := append([]byte{1}, b...)
		return append(binary.LittleEndian.AppendUint16(checksum(body), uint16(len(b))), body...)
	}
	for _, n := range []uint64{1 << 31, 1 << 40, 1 << 62, 1<<64 - 1} {
		long := binary.AppendUvarint(nil, n)
		batch := append(make([]byte, 8), 1, 0, 0, 0, 1)
		for name, change := range map[string]func(dir string) error{
			"comparer in the manifest": func(dir string) error {
				return os.WriteFile(filepath.Join(dir, "MANIFEST-000001"), record(append([]byte{1}, long...)), 0o600)
			},
			"key in the journal": func(dir string) error {
				return os.WriteFile(filepath.Join(dir, "000003.log"), record(append(batch, long...)), 0o600)
			},
			"value in the journal": func(dir string) error {
				return os.WriteFile(filepath.Join(dir, "000003.log"), record(append(append(batch, 1, 'k'), long...)), 0o600)
			},
		} {
			dir := fixtureDir(t)
			if err := change(dir); err != nil {
				t.Fatal(err)
			}
			if _, err := contents(t.Context(), dir); !errors.Is(err, base.ErrCorrupt) {
				t.Errorf("%s of %d bytes: %v", name, n, err)
			}
		}
		dir := fixtureDir(t)
		compact(t, dir)
		tables, err := filepath.Glob(filepath.Join(dir, "*.ldb"))
		if err != nil || len(tables) == 0 {
			t.Fatal(tables, err)
		}
		b, err := os.ReadFile(tables[0])
		if err != nil {
			t.Fatal(err)
		}
		footer := append(append([]byte{0}, long...), append([]byte{0}, long...)...)
		copy(b[len(b)-48:], append(footer, make([]byte, 40)...)[:40])
		if err := os.WriteFile(tables[0], b, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := contents(t.Context(), dir); !errors.Is(err, base.ErrCorrupt) {
			t.Errorf("block of %d bytes: %v", n, err)
		}
	}
}

// TestReadingWritesNothing compares the files before and after.
func TestReadingWritesNothing(t *testing.T) {
	dir := fixtureDir(t)
	state := func() (s string) {
		err := filepath.WalkDir(filepath.Dir(dir), func(path string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := e.Info()
			if err == nil && !e.IsDir() {
				b, readErr := os.ReadFile(path)
				err = readErr
				s += fmt.Sprintf("%s %d %s %08x\n", path, info.Size(), info.ModTime(), crc32.ChecksumIEEE(b))
			} else {
				s += path + "\n"
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	before := state()
	if _, err := contents(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, state()); diff != "" {
		t.Error(diff)
	}
}
