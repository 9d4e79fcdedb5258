package storage_test

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/ledgerd/ledger/internal/vfs/vfstest"
	"github.com/ledgerd/ledger/storage"
)

// dirContent returns the files of a directory.
func dirContent(t testing.TB, dir string) map[string]string {
	t.Helper()
	m := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			m[e.Name()] = "directory"
			continue
		}
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		m[e.Name()] = string(b)
	}
	return m
}

// TestReadOnlyAfterDeath opens for reading what a process left that died: everything is read,
// listed and checked, and no file is touched, whatever page.db is.
func TestReadOnlyAfterDeath(t *testing.T) {
	o := options(t)
	s := open(t, o)
	model := map[string][]byte{}
	put := func(e edit) {
		t.Helper()
		update(t, s, e)
		maps.Copy(model, e)
	}
	for i := range 20 {
		put(small(i))
	}
	if err := s.Fold(t.Context()); err != nil {
		t.Fatal(err)
	}
	put(edit{"large": make([]byte, 100<<10)})
	put(many(100, 30))
	head := s.NewestHead()
	if err := s.SetTag(t.Context(), "x", head.ID); err != nil {
		t.Fatal(err)
	}
	left := dirContent(t, o.Dir)
	rows := rowKeys(t, s, "")
	for name, change := range map[string]func(m map[string]string){
		"as it was":     func(map[string]string) {},
		"no index":      func(m map[string]string) { delete(m, "page.db") },
		"damaged index": func(m map[string]string) { m["page.db"] = m["page.db"][:5000] },
		"empty index":   func(m map[string]string) { m["page.db"] = "" },
		"torn tail":     func(m map[string]string) { m["00000001.seg"] += "LBT\x01 and not much more" },
	} {
		t.Run(name, func(t *testing.T) {
			ro := options(t)
			ro.ReadOnly = true
			if err := os.MkdirAll(ro.Dir, 0o700); err != nil {
				t.Fatal(err)
			}
			files := maps.Clone(left)
			change(files)
			for name, b := range files {
				if err := os.WriteFile(filepath.Join(ro.Dir, name), []byte(b), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for _, fold := range []int{0, 20} {
				ro.FoldRows = fold
				s, err := storage.Open(context.Background(), ro)
				if err != nil {
					t.Fatal(err)
				}
				wantContent(t, s, head, model)
				if h := s.Heads(); len(h) != 1 || h[0].ID != head.ID {
					t.Errorf("heads %v", h)
				}
				if tags, err := s.Tags(t.Context()); err != nil || tags["x"] != head.ID {
					t.Errorf("tags %v, %v", tags, err)
				}
				wantClean(t, s)
				if got := rowKeys(t, s, ""); len(got) != len(rows) {
					t.Errorf("%d rows, want %d", len(got), len(rows))
				}
				wantContent(t, s, head, model)
				wantClean(t, s)
				closeStore(t, s)
				if !maps.Equal(dirContent(t, ro.Dir), files) {
					t.Error("files have changed")
				}
			}
		})
	}
}

// TestReadOnlyAfterHalfAFold opens for reading what is there when the index could not be written
// any more, after each of its changes: rows that a fold has brought ahead of its end are no damage.
func TestReadOnlyAfterHalfAFold(t *testing.T) {
	for at := 0; ; at++ {
		w := newWorld(t, 1, storage.Options{})
		w.foldTxRows = 4
		n := 0
		w.before = func() error {
			if n++; n > at {
				return storage.ErrTestIndex
			}
			return nil
		}
		w.open()
		for i := range 3 {
			w.commit(edit{"large": noise(w.rng, 20<<10)})
			w.commit(many(i*10, 15))
			if err := w.s.Fold(t.Context()); err != nil && !errors.Is(err, storage.ErrTestIndex) {
				t.Fatal(err)
			}
		}
		ro := w.o
		ro.ReadOnly, ro.FS, ro.MemoryIndex = true, w.mem.CrashClone(vfstest.KeepAll), w.ix.Clone()
		s, err := storage.Open(t.Context(), ro)
		if err != nil {
			t.Fatal(err)
		}
		wantClean(t, s)
		w.must(w.verify(s, w.promise(), w.rng))
		closeStore(t, s)
		_ = w.s.Close() // cannot fold
		if n <= at {
			if at < 20 {
				t.Fatalf("only %d changes of the index", at)
			}
			return
		}
	}
}
