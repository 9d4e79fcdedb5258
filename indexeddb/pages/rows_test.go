package pages_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/indexeddb"
	"github.com/ledgerd/ledger/indexeddb/idb"
	"github.com/ledgerd/ledger/indexeddb/pages"
	"github.com/ledgerd/ledger/indexeddb/profile"
	"github.com/ledgerd/ledger/indexeddb/value"
	orderedpages "github.com/ledgerd/ledger/ordered/pages"
)

func TestMain(m *testing.M) {
	// goleveldb ends it within half a minute after a directory is closed.
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/syndtr/goleveldb/leveldb.(*DB).mpoolDrain"))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newPage returns a page in memory.
func newPage(t *testing.T) *ledger.Page {
	t.Helper()
	r, err := ledger.Open(t.Context(), "", &ledger.Options{InMemory: true})
	must(t, err)
	t.Cleanup(func() { must(t, r.Close()) })
	p, err := r.Page(t.Context(), "app", "db")
	must(t, err)
	return p
}

// library makes an object store of books, with indexes.
func library(ctx context.Context, u *idb.Upgrade) error {
	books, err := u.CreateObjectStore("books", &idb.StoreOptions{KeyPath: idb.Path("id"), AutoIncrement: true})
	if err != nil {
		return err
	}
	if _, err := books.CreateIndex(ctx, "by isbn", idb.Path("isbn"), &idb.IndexOptions{Unique: true}); err != nil {
		return err
	}
	_, err = books.CreateIndex(ctx, "by tag", idb.Path("tags"), &idb.IndexOptions{MultiEntry: true})
	return err
}

// put puts books into a database in one transaction.
func put(t *testing.T, db *idb.DB, from, to int) {
	t.Helper()
	ctx := t.Context()
	tx, err := db.Begin(ctx, idb.ReadWrite, "books")
	must(t, err)
	defer tx.Abort()
	books, err := tx.ObjectStore("books")
	must(t, err)
	for i := from; i < to; i++ {
		v := value.NewObject("isbn", float64(i), "title", fmt.Sprint("title ", i), "tags", value.NewArray("all", fmt.Sprint(i%3)), "cover", &value.Blob{})
		cover := strings.Repeat(fmt.Sprint(i), 5000)
		_, err := books.Add(ctx, v, nil, idb.Blob{Type: "image/png", Size: int64(len(cover)), Content: strings.NewReader(cover)})
		must(t, err)
	}
	must(t, tx.Commit(ctx))
}

// check reads all books of a database, and verifies the rows.
func check(t *testing.T, rows idb.Rows, r ledger.Reader, want int) {
	t.Helper()
	ctx := t.Context()
	db, err := idb.New(rows, nil).Open(ctx, "library", 0, nil)
	must(t, err)
	tx, err := db.Begin(ctx, idb.ReadOnly, "books")
	must(t, err)
	defer tx.Commit(ctx)
	books, err := tx.ObjectStore("books")
	must(t, err)
	byISBN, err := books.Index("by isbn")
	must(t, err)
	c, err := byISBN.OpenCursor(ctx, nil, idb.Next)
	must(t, err)
	defer c.Close()
	n := 0
	for ; !c.Done(); n++ {
		rec, err := c.Record(ctx)
		must(t, err)
		v := rec.Value.(*value.Object)
		if title, _ := v.Get("title"); title != fmt.Sprint("title ", n) {
			t.Errorf("book %d has the title %v", n, title)
		}
		if id, _ := v.Get("id"); id != rec.PrimaryKey.Number() {
			t.Errorf("book %d has the key %v", n, id)
		}
		cover, err := rec.Open(ctx, 0)
		must(t, err)
		b, err := io.ReadAll(cover)
		must(t, errors.Join(err, cover.Close()))
		if string(b) != strings.Repeat(fmt.Sprint(n), 5000) {
			t.Errorf("book %d has another cover", n)
		}
		must(t, c.Continue(ctx, nil))
	}
	if n != want {
		t.Errorf("%d books, want %d", n, want)
	}
	p, err := profile.OpenPage(ctx, pages.Reader(r), nil)
	must(t, err)
	result, err := p.Check(ctx)
	must(t, err)
	if result.Records != int64(want) || result.IndexRows != int64(3*want) || result.Blobs != int64(want) {
		t.Errorf("%+v", result)
	}
	must(t, p.Close())
}

// TestPage: a database on a page, and an old version of it.
func TestPage(t *testing.T) {
	ctx := t.Context()
	page := newPage(t)
	rows := pages.Rows(page, ledger.Lazy)
	db, err := idb.New(rows, nil).Open(ctx, "library", 1, library)
	must(t, err)
	put(t, db, 0, 5)
	old, err := page.Snapshot(ctx)
	must(t, err)
	put(t, db, 5, 12)
	now, err := page.Snapshot(ctx)
	must(t, err)
	check(t, rows, now.Reader, 12)
	check(t, idb.Snapshot(pages.Reader(old.Reader)), old.Reader, 5)
	if old.Commit().ID != now.Commit().Parents[0] {
		t.Error("a transaction is not one commit")
	}
	must(t, old.Close())
	must(t, now.Close())

	// Reading, and what is aborted, makes no commit.
	before, err := page.Heads(ctx)
	must(t, err)
	tx, err := db.Begin(ctx, idb.ReadWrite, "books")
	must(t, err)
	books, err := tx.ObjectStore("books")
	must(t, err)
	must(t, books.Clear(ctx))
	must(t, tx.Abort())
	tx, err = db.Begin(ctx, idb.ReadWrite, "books")
	must(t, err)
	must(t, tx.Commit(ctx))
	after, err := page.Heads(ctx)
	must(t, err)
	if before[0].ID != after[0].ID {
		t.Error("there is a new commit")
	}
}

// TestConflict: a transaction whose page has moved on is refused, and one that is begun again gets
// through. Open and Delete begin again by themselves.
func TestConflict(t *testing.T) {
	ctx := t.Context()
	page := newPage(t)
	rows := pages.Rows(page, ledger.Eager)
	other := func(n int) {
		_, err := page.Update(ctx, func(tx *ledger.Tx) error { return tx.Put(ctx, []byte("other"), []byte(fmt.Sprint(n))) })
		must(t, err)
	}
	upgrades := 0
	db, err := idb.New(rows, nil).Open(ctx, "library", 1, func(ctx context.Context, u *idb.Upgrade) error {
		if upgrades++; upgrades == 1 {
			other(0)
		}
		return library(ctx, u)
	})
	must(t, err)
	if upgrades != 2 {
		t.Errorf("%d upgrades", upgrades)
	}
	for round := range 2 {
		tx, err := db.Begin(ctx, idb.ReadWrite, "books")
		must(t, err)
		books, err := tx.ObjectStore("books")
		must(t, err)
		_, err = books.Put(ctx, value.NewObject(), nil)
		must(t, err)
		if round == 0 {
			other(1)
			if err := tx.Commit(ctx); !errors.Is(err, idb.ErrAbort) || !errors.Is(err, ledger.ErrConflict) {
				t.Errorf("commit: %v", err)
			}
			continue
		}
		must(t, tx.Commit(ctx))
	}
	waiting, cancel := context.WithCancel(ctx)
	cancel()
	tx, err := db.Begin(ctx, idb.ReadWrite, "books")
	must(t, err)
	if _, err := db.Begin(waiting, idb.ReadWrite, "books"); !errors.Is(err, context.Canceled) {
		t.Errorf("begin: %v", err)
	}
	must(t, tx.Abort())
	if _, err := idb.New(rows, nil).Delete(ctx, "library"); err != nil {
		t.Error(err)
	}
}

// TestBrowserAndBack: what a program writes, a browser's directory has, and what the directory has,
// a program reads and changes.
func TestBrowserAndBack(t *testing.T) {
	ctx := t.Context()
	page := newPage(t)
	rows := pages.Rows(page, ledger.Eager)
	f := idb.New(rows, &idb.Options{Origin: "https_app.example_0@1"})
	db, err := f.Open(ctx, "library", 1, library)
	must(t, err)
	put(t, db, 0, 20)
	tx, err := db.Begin(ctx, idb.ReadWrite, "books")
	must(t, err)
	books, err := tx.ObjectStore("books")
	must(t, err)
	_, err = books.Put(ctx, value.NewObject("id", "long", "text", strings.Repeat("long", 50_000)), nil)
	must(t, err)
	must(t, tx.Commit(ctx))
	dir := t.TempDir()
	exported := false
	must(t, page.View(ctx, func(s *ledger.Snapshot) error {
		done, err := profile.Export(ctx, pages.Reader(s.Reader), dir, nil)
		exported = err == nil
		if want := filepath.Join(dir, "https_app.example_0.indexeddb.leveldb"); done.Path != want || done.Records != 21 || done.Blobs != 21 {
			t.Errorf("%+v", done)
		}
		return err
	}))
	if !exported {
		t.Fatal("not exported")
	}
	p, err := profile.Open(ctx, dir, nil)
	must(t, err)
	_, err = p.Check(ctx)
	must(t, err)
	second := newPage(t)
	_, err = second.Update(ctx, func(tx *ledger.Tx) error {
		_, err := p.Import(ctx, orderedpages.Writer(tx, ledger.Eager))
		return err
	})
	must(t, errors.Join(err, p.Close()))
	again := pages.Rows(second, ledger.Eager)
	g := idb.New(again, nil) // the origin of the databases that are there
	db, err = g.Open(ctx, "library", 0, nil)
	must(t, err)
	tx, err = db.Begin(ctx, idb.ReadWrite, "books")
	must(t, err)
	if books, err = tx.ObjectStore("books"); err != nil {
		t.Fatal(err)
	}
	v, err := books.Get(ctx, "long")
	must(t, err)
	if text, _ := v.(*value.Object).Get("text"); text != strings.Repeat("long", 50_000) {
		t.Error("another value")
	}
	must(t, books.Delete(ctx, "long"))
	must(t, tx.Commit(ctx))
	put(t, db, 20, 25)
	must(t, second.View(ctx, func(s *ledger.Snapshot) error {
		check(t, again, s.Reader, 25)
		return nil
	}))
}

// TestChromium: the API on what a browser wrote: every record is read by its key and by each index,
// and put again.
func TestChromium(t *testing.T) {
	ctx := t.Context()
	p, err := profile.Open(ctx, filepath.Join("..", "profile", "testdata", "chromium-156"), nil)
	must(t, err)
	page := newPage(t)
	_, err = page.Update(ctx, func(tx *ledger.Tx) error {
		_, err := p.Import(ctx, orderedpages.Writer(tx, ledger.Eager))
		return err
	})
	must(t, err)
	schema := p.Schema()
	must(t, p.Close())
	rows := pages.Rows(page, ledger.Eager)
	f := idb.New(rows, nil)
	all, err := f.Databases(ctx)
	must(t, err)
	if len(all) == 0 || len(all) > len(schema.Databases) {
		t.Errorf("databases %v", all)
	}
	records := 0
	for _, info := range all {
		db, err := f.Open(ctx, info.Name, 0, nil)
		must(t, err)
		if db.Version() != info.Version {
			t.Errorf("%q has the version %d", info.Name, db.Version())
		}
		for _, name := range db.ObjectStoreNames() {
			tx, err := db.Begin(ctx, idb.ReadWrite, name)
			must(t, err)
			s, err := tx.ObjectStore(name)
			must(t, err)
			records += visit(t, s)
			must(t, tx.Commit(ctx))
		}
	}
	if records < 50 {
		t.Errorf("%d records", records)
	}
	must(t, page.View(ctx, func(s *ledger.Snapshot) error {
		p, err := profile.OpenPage(ctx, pages.Reader(s.Reader), nil)
		must(t, err)
		_, err = p.Check(ctx)
		return errors.Join(err, p.Close())
	}))
}

// visit reads the records of an object store, and puts each again, with its blobs.
func visit(t *testing.T, s *idb.ObjectStore) (n int) {
	t.Helper()
	ctx := t.Context()
	all, err := s.GetAllRecords(ctx, nil, 0, idb.Next)
	must(t, err)
	for _, r := range all {
		one, err := s.Record(ctx, r.Key)
		must(t, err)
		want, err := value.Encode(r.Value)
		must(t, err)
		if got, err := value.Encode(one.Value); err != nil || string(got) != string(want) {
			t.Errorf("%s: another value by its key, error %v", s.Name(), err)
		}
		var blobs []idb.Blob
		for i := range one.Objects {
			blobs = append(blobs, one.Blob(i))
		}
		key := any(r.Key)
		if s.KeyPath().Type != indexeddb.NoKeyPath {
			key = nil
		}
		if k, err := s.Put(ctx, one.Value, key, blobs...); err != nil || k != r.PrimaryKey {
			t.Errorf("%s: put gives %v, want %v, error %v", s.Name(), k, r.PrimaryKey, err)
		}
	}
	for _, name := range s.IndexNames() {
		x, err := s.Index(name)
		must(t, err)
		entries, err := x.GetAllRecords(ctx, nil, 0, idb.Next)
		must(t, err)
		for _, e := range entries {
			v, err := x.Get(ctx, e.Key)
			must(t, err)
			if v == nil {
				t.Errorf("%s: no record with the key %v in %s", s.Name(), e.Key, name)
			}
		}
	}
	return len(all)
}
