package storage_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/vfs"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
	"github.com/ledgerd/ledger/storage/index"
	"github.com/ledgerd/ledger/storage/segment"
)

// mergedPage is a closed page with a merge that has an explanation, and one that has none.
func mergedPage(t *testing.T) (w *world, explained, plain tx) {
	t.Helper()
	w = newWorld(t, 1, storage.Options{})
	w.open()
	a, b := siblings(w)
	explained = w.explainedMerge(edit{"m": []byte("1")}, a, b)
	w.must(w.wait(explained))
	plain, err := w.submitJournal(w.s.NewJournal(), edit{"m": []byte("2")}, 0, a, b)
	w.must(err)
	w.must(w.wait(plain))
	w.close()
	return w, explained, plain
}

// putConflict writes a row of explanations; nil: none.
func putConflict(t *testing.T, db index.DB, id commit.ID, v []byte) {
	t.Helper()
	err := db.Update(func(tx index.Tx) error {
		if v == nil {
			return tx.Bucket("conflicts").Delete(id[:])
		}
		return tx.Bucket("conflicts").Put(id[:], v)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func conflict(t *testing.T, db index.DB, id commit.ID) (v []byte) {
	t.Helper()
	err := db.View(func(tx index.Tx) error {
		v = bytes.Clone(tx.Bucket("conflicts").Get(id[:]))
		return nil
	})
	if err != nil || v == nil {
		t.Fatalf("row of the explanation: %x, %v", v, err)
	}
	return v
}

// TestCorruptExplanationRow reads a damaged row: the index is made anew from the log, once; then an
// error names the row.
func TestCorruptExplanationRow(t *testing.T) {
	w, m, _ := mergedPage(t)
	for i := range 37 {
		w.ix = w.ix.Clone()
		w.o.MemoryIndex = w.ix
		w.open()
		row := conflict(t, w.ix, m.c.ID)
		if len(row) != 37 {
			t.Fatalf("a row of %d bytes", len(row))
		}
		bad := bytes.Clone(row)
		bad[i] ^= 0x10
		putConflict(t, w.ix, m.c.ID, bad)
		wantExplanation(t, w.s, "damaged", m.c.ID, m.explain)
		if r := w.s.Recovery(); !strings.Contains(r.IndexRebuilt, "conflicts/") {
			t.Errorf("byte %d: recovery %+v", i, r)
		}
		putConflict(t, w.ix, m.c.ID, bad[:i])
		_, ok, err := w.s.Explanation(t.Context(), m.c.ID)
		var c *base.CorruptError
		if ok || !errors.As(err, &c) || c.Where != "page.db row conflicts/" || c.Key != m.c.ID.String() {
			t.Errorf("byte %d: damaged again: %v, %v", i, ok, err)
		}
		for _, err := range w.s.Rows(t.Context(), "conflicts") {
			if !errors.Is(err, base.ErrCorrupt) {
				t.Errorf("byte %d: rows: %v", i, err)
			}
		}
		putConflict(t, w.ix, m.c.ID, row)
		w.close()
	}
}

// TestCheckFindsWrongExplanationRows compares rows that are missing, damaged, of another root and
// of another commit with the log.
func TestCheckFindsWrongExplanationRows(t *testing.T) {
	w, m, plain := mergedPage(t)
	w.open()
	row := conflict(t, w.ix, m.c.ID)
	for name, change := range map[string]func(){
		"missing":         func() { putConflict(t, w.ix, m.c.ID, nil) },
		"bad checksum":    func() { putConflict(t, w.ix, m.c.ID, append(bytes.Clone(row[:36]), row[36]^1)) },
		"another root":    func() { putConflict(t, w.ix, m.c.ID, append(append([]byte(nil), plain.c.Root[:]...), row[33:]...)) },
		"of no commit":    func() { putConflict(t, w.ix, commit.ID{1}, row) },
		"of one too many": func() { putConflict(t, w.ix, plain.c.ID, row) },
	} {
		change()
		r, err := w.s.Check(t.Context(), storage.CheckOptions{})
		w.must(err)
		if len(r.Problems) != 1 || !strings.Contains(r.Problems[0].Error(), "conflicts/") {
			t.Errorf("%s: problems %v", name, r.Problems)
		}
		putConflict(t, w.ix, m.c.ID, row)
		putConflict(t, w.ix, commit.ID{1}, nil)
		putConflict(t, w.ix, plain.c.ID, nil)
	}
	w.must(checkClean(w.s))
	w.close()
}

// appendRecord appends a batch of one record to the log of a closed page.
func appendRecord(w *world, kind byte, payload []byte) {
	w.t.Helper()
	appendRecords(w, [][]byte{append([]byte{kind}, payload...)})
}

// appendRecords appends a batch of records, each of which begins with its kind.
func appendRecords(w *world, records [][]byte) {
	w.t.Helper()
	l, _, err := segment.Open(w.t.Context(), segment.Options{FS: w.mem, Dir: worldDir, Page: testPage}, nil, func(segment.BatchInfo, []segment.Record) error {
		return nil
	})
	w.must(err)
	b := segment.NewBatch()
	for _, r := range records {
		b.Add(r[0], r[1:])
	}
	_, err = l.Main().Append(b)
	w.must(err)
	w.must(l.Close())
}

// TestCheckFindsWrongExplanations lets the log have explanations that no Submit makes: they do not
// keep the page from being opened and folded, in parts or at once, and Check tells of each.
func TestCheckFindsWrongExplanations(t *testing.T) {
	for name, c := range map[string]struct {
		merge func(m, plain tx) commit.ID
		root  func(m, plain tx) object.Digest
		want  int
		says  string
	}{
		"of no commit": {
			func(tx, tx) commit.ID { return commit.ID{1} }, func(m, _ tx) object.Digest { return m.explain }, 1, "the commit is missing",
		},
		"of no merge": {
			func(m, _ tx) commit.ID { return m.c.Parents[0] }, func(m, _ tx) object.Digest { return m.explain }, 1, "no merge",
		},
		"of a tree that is missing": {
			func(_, plain tx) commit.ID { return plain.c.ID }, func(tx, tx) object.Digest { return object.Sum(object.Node, nil) }, 1, "the piece is missing",
		},
		"second": {
			func(m, _ tx) commit.ID { return m.c.ID }, func(_, plain tx) object.Digest { return plain.c.Root }, 0, "",
		},
		"late": {
			func(_, plain tx) commit.ID { return plain.c.ID }, func(m, _ tx) object.Digest { return m.explain }, 0, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, m, plain := mergedPage(t)
			id, root := c.merge(m, plain), c.root(m, plain)
			appendRecord(w, 9, append(append([]byte(nil), id[:]...), root[:]...))
			for _, ix := range []*index.Memory{w.ix, index.NewMemory()} {
				w.o.MemoryIndex = ix
				w.open()
				wantExplanation(t, w.s, "in the log", m.c.ID, m.explain)
				w.commit(small(1))
				r, err := w.s.Check(t.Context(), storage.CheckOptions{})
				w.must(err)
				if len(r.Problems) != c.want {
					t.Errorf("problems %v, want %d", r.Problems, c.want)
				}
				for _, p := range r.Problems {
					if !errors.Is(p, base.ErrCorrupt) || !strings.Contains(p.Error(), c.says) {
						t.Errorf("problem %v, want one that says %q", p, c.says)
					}
				}
				wantExplanation(t, w.s, "folded", m.c.ID, m.explain)
				w.close()
			}
		})
	}
}

// TestCheckReadsExplanations damages a node that only an explanation reaches.
func TestCheckReadsExplanations(t *testing.T) {
	w, m, _ := mergedPage(t)
	name := filepath.Join(worldDir, "00000001.seg")
	b, err := vfs.ReadFile(w.mem, name, 1<<30)
	w.must(err)
	at := bytes.Index(b, m.explain[:])
	if at < 0 {
		t.Fatal("the explanation is not in the segment")
	}
	w.open()
	damage(t, w.mem, name, flip(at+200, 1, b))
	r, err := w.s.Check(t.Context(), storage.CheckOptions{})
	w.must(err)
	if r.Clean() {
		t.Error("a damaged node of an explanation is not told of")
	}
	if _, err := contentOf(t.Context(), w.s, m.explain); !errors.Is(err, base.ErrCorrupt) {
		t.Errorf("read: got %v, want ErrCorrupt", err)
	}
	_ = w.s.Close()
}

// olderIndex is a page with two merges that was closed, with its page.db in an older version: of
// the end, and of when the log had one of them only.
func olderIndex(t *testing.T) (w *world, merges []tx, path string, whole, part []byte) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "page")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(dir, "page.db")
	w = newWorld(t, 1, storage.Options{})
	w.o.Dir, w.o.MemoryIndex = dir, nil
	w.must(w.mem.MkdirAll(filepath.Dir(dir)))
	w.openFile()
	a, b := siblings(w)
	older := func() []byte {
		t.Helper()
		setIndexVersion(t, path, 1)
		b, err := os.ReadFile(path)
		w.must(err)
		return b
	}
	for i := range 2 {
		m := w.explainedMerge(edit{"m": {byte(i)}}, a, b)
		w.must(w.wait(m))
		merges = append(merges, m)
		w.must(w.s.Fold(t.Context()))
		if i == 0 {
			b, err := os.ReadFile(path)
			w.must(err)
			part = b
		}
	}
	w.close()
	whole = older()
	w.must(os.WriteFile(path, part, 0o600))
	part = older()
	return w, merges, path, whole, part
}

func setIndexVersion(t *testing.T, path string, version byte) {
	t.Helper()
	db, err := index.OpenFile(path, index.Options{})
	if err == nil {
		err = errors.Join(storage.SetIndexVersion(db, version), db.Close())
	}
	if err == nil && version == 1 {
		var b *bbolt.DB
		if b, err = bbolt.Open(path, 0o600, nil); err == nil {
			err = errors.Join(b.Update(func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte("conflicts")) }), b.Close())
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestOlderIndex opens a page with a page.db of an older version: it is made anew, also when the
// page is open for reading only. A newer one is refused.
func TestOlderIndex(t *testing.T) {
	w, merges, path, whole, part := olderIndex(t)
	for name, older := range map[string][]byte{"whole": whole, "part": part} {
		for _, fold := range []int{0, 5} {
			for _, readOnly := range []bool{true, false} {
				w.must(os.WriteFile(path, older, 0o600))
				w.o.ReadOnly, w.o.FoldRows = readOnly, fold
				w.openFile()
				if r := w.s.Recovery(); !strings.Contains(r.IndexRebuilt, "version 1") || len(r.Torn) > 0 {
					t.Errorf("%s, read-only %v: recovery %+v", name, readOnly, r)
				}
				for _, m := range merges {
					wantExplanation(t, w.s, name, m.c.ID, m.explain)
				}
				w.must(w.verify(w.s, w.promise(), w.rng))
				w.must(checkClean(w.s))
				w.close()
				if got, err := os.ReadFile(path); err != nil || bytes.Equal(got, older) != readOnly {
					t.Errorf("%s, read-only %v: page.db is as before: %v, %v", name, readOnly, !readOnly, err)
				}
			}
		}
	}
	w.openFile()
	if r := w.s.Recovery(); r.IndexRebuilt != "" {
		t.Errorf("recovery when it has been made anew: %+v", r)
	}
	w.close()
	setIndexVersion(t, path, 200)
	_, err := storage.Open(t.Context(), w.o)
	if f := new(base.FormatError); !errors.As(err, &f) || f.Found != 200 {
		t.Errorf("newer: got %v, want a FormatError", err)
	}
}

// TestOlderIndexKeepsItsPromise damages the end of a segment, of which only the position in an
// older page.db says that it was durable: it is told, and nothing is cut off.
func TestOlderIndexKeepsItsPromise(t *testing.T) {
	w, _, path, whole, _ := olderIndex(t)
	w.must(os.WriteFile(path, whole, 0o600))
	name := filepath.Join(w.o.Dir, "00000001.seg")
	seg, err := vfs.ReadFile(w.mem, name, 1<<30)
	w.must(err)
	damage(t, w.mem, name, flip(len(seg)-20, 1, seg))
	for range 2 {
		if _, err := storage.Open(t.Context(), w.o); !errors.Is(err, base.ErrCorrupt) {
			t.Errorf("damaged end of a segment: got %v, want ErrCorrupt", err)
		}
	}
}

// openFile opens a page whose page.db is a file.
func (w *world) openFile() {
	w.t.Helper()
	if !w.o.ReadOnly {
		w.must(storage.Create(w.t.Context(), w.o))
	}
	s, err := storage.Open(w.t.Context(), w.o)
	w.must(err)
	w.s = s
}
