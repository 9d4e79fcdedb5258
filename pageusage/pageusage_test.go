package pageusage_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/pageusage"
	"github.com/ledgerd/ledger/storage/index"
)

func at(n int64) time.Time { return time.Unix(0, n).UTC() }

func page(ledger string, n byte) pageusage.Page {
	return pageusage.Page{Ledger: ledger, ID: [16]byte{15: n}}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, dir string, now int64) (*pageusage.DB, pageusage.Recovery) {
	t.Helper()
	d, rec, err := pageusage.Open(dir, pageusage.Options{Now: at(now)})
	must(t, err)
	return d, rec
}

// list writes usages as ledger/number@time.
func list(t *testing.T, d *pageusage.DB) []string {
	t.Helper()
	all, err := d.List()
	must(t, err)
	return all
}

// closed returns when a page was closed, in ns since 1970; 0 when that is not known, or it is open.
func closed(t *testing.T, d *pageusage.DB, p pageusage.Page) int64 {
	t.Helper()
	_, at, err := d.Page(p)
	must(t, err)
	if at.IsZero() {
		return 0
	}
	return at.UnixNano()
}

func equal(t *testing.T, what string, got, want []string) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

func TestUsage(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "page_usage_db")
	d, rec := open(t, dir, 1)
	if rec != (pageusage.Recovery{}) {
		t.Errorf("%+v", rec)
	}
	must(t, d.MarkOpened(page("a", 1)))
	must(t, d.MarkOpened(page("a", 2)))
	must(t, d.MarkOpened(page("ab", 1)))
	must(t, d.MarkClosed(page("a", 2), at(50)))
	must(t, d.MarkClosed(page("ab", 1), at(40)))
	must(t, d.MarkClosed(page("b", 1), at(50)))
	equal(t, "list", list(t, d), []string{"a/1@open", "a/2@50", "ab/1@40", "b/1@50"})
	must(t, d.Remove(page("ab", 1)))
	must(t, d.Remove(page("none", 1)))
	if n := closed(t, d, page("ab", 1)); n != 0 {
		t.Errorf("a page that was removed was closed at %d", n)
	}
	equal(t, "list", list(t, d), []string{"a/1@open", "a/2@50", "b/1@50"})
	must(t, d.Close())
	must(t, d.Close())
	for what, err := range map[string]error{"mark": d.MarkOpened(page("a", 1)), "flush": d.Flush(), "name": d.SetPageName(page("a", 1), "x")} {
		if !errors.Is(err, base.ErrClosed) {
			t.Errorf("%s after close: %v", what, err)
		}
	}
	if _, _, err := d.Page(page("a", 1)); !errors.Is(err, base.ErrClosed) {
		t.Errorf("read after close: %v", err)
	}
	// U3
	d, rec = open(t, dir, 100)
	defer d.Close()
	if rec != (pageusage.Recovery{}) {
		t.Errorf("%+v", rec)
	}
	if n := closed(t, d, page("a", 1)); n != 100 {
		t.Errorf("the page that was open was closed at %d", n)
	}
	equal(t, "reopened", list(t, d), []string{"a/1@100", "a/2@50", "b/1@50"})
}

// TestMarksAreLazy is U1: marks cost no transaction until there are many.
func TestMarksAreLazy(t *testing.T) {
	c := &counting{DB: index.NewMemory()}
	d, err := pageusage.New(c, pageusage.Options{Now: at(1)})
	must(t, err)
	c.updates = 0
	for range 10 {
		must(t, d.MarkOpened(page("a", 1)))
		must(t, d.MarkClosed(page("a", 1), at(7)))
	}
	if c.updates != 0 {
		t.Errorf("%d updates for marks", c.updates)
	}
	if n := closed(t, d, page("a", 1)); n != 7 {
		t.Errorf("closed at %d", n)
	}
	for i := range 200 {
		must(t, d.MarkOpened(page("b", byte(i))))
	}
	if c.updates != 3 {
		t.Errorf("%d updates for 201 pages, want 3", c.updates)
	}
	must(t, d.Flush())
	c.updates = 0
	must(t, d.Flush())
	must(t, d.MarkOpened(page("b", 1)))
	must(t, d.Flush())
	if c.updates != 0 {
		t.Errorf("%d updates without a change", c.updates)
	}
	// A failed write keeps the marks.
	must(t, d.MarkClosed(page("b", 1), at(9)))
	c.fail = base.ErrNoSpace
	if err := d.Flush(); !errors.Is(err, base.ErrNoSpace) {
		t.Errorf("flush: %v", err)
	}
	// A change that was to be durable is not made.
	for what, err := range map[string]error{"name": d.SetPageName(page("b", 2), "x"), "forget": d.Forget(page("b", 3))} {
		if !errors.Is(err, base.ErrNoSpace) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if name, _, err := d.Page(page("b", 2)); err != nil || name != "" {
		t.Errorf("a name that could not be written: %q %v", name, err)
	}
	c.fail = nil
	must(t, d.Flush())
	again, err := pageusage.New(c, pageusage.Options{Now: at(30)})
	must(t, err)
	if n := closed(t, again, page("b", 1)); n != 9 {
		t.Errorf("closed at %d", n)
	}
	if n := closed(t, again, page("b", 3)); n != 30 {
		t.Errorf("a page that could not be forgotten was closed at %d", n)
	}
}

// TestSizes: what was noted last is kept until the page is removed.
func TestSizes(t *testing.T) {
	dir := t.TempDir()
	d, _ := open(t, dir, 1)
	must(t, d.MarkClosed(page("a", 1), at(5)))
	must(t, d.Close())
	d, _ = open(t, dir, 2)
	want := func(p pageusage.Page, n int64) {
		t.Helper()
		if got, err := d.Size(p); err != nil || got != n {
			t.Errorf("%d bytes, %v; want %d", got, err, n)
		}
	}
	want(page("a", 1), 0)
	must(t, d.NoteSize(page("a", 1), 70))
	must(t, d.NoteSize(page("a", 1), 80))
	want(page("a", 1), 80)
	if err := d.NoteSize(page("a", 1), -1); !errors.Is(err, base.ErrInvalid) {
		t.Errorf("a size below 0: %v", err)
	}
	must(t, d.Close())
	d, _ = open(t, dir, 3)
	defer d.Close()
	want(page("a", 1), 80)
	must(t, d.Remove(page("a", 1)))
	must(t, d.MarkClosed(page("a", 1), at(5)))
	want(page("a", 1), 0)
}

type counting struct {
	index.DB
	updates int
	fail    error
}

func (c *counting) Update(fn func(index.Tx) error) error {
	if c.fail != nil {
		return c.fail
	}
	c.updates++
	return c.DB.Update(fn)
}

func TestNames(t *testing.T) {
	dir := t.TempDir()
	d, _ := open(t, dir, 1)
	for _, p := range []pageusage.Page{page("a", 2), page("a", 1), page("ab", 1)} {
		must(t, d.SetPageName(p, fmt.Sprintf("page %d of %s", p.ID[15], p.Ledger)))
	}
	must(t, d.MarkOpened(page("a", 1)))
	must(t, d.Remove(page("a", 1)))
	must(t, d.Close())
	d, _ = open(t, dir, 2)
	defer d.Close()
	if name, _, err := d.Page(page("a", 1)); err != nil || name != "page 1 of a" {
		t.Errorf("an evicted page's name: %q %v", name, err)
	}
	must(t, d.Forget(page("a", 2)))
	if name, _, err := d.Page(page("a", 2)); err != nil || name != "" {
		t.Errorf("a forgotten page's name: %q %v", name, err)
	}
	long := strings.Repeat("x", limits.MaxPageNameBytes+1)
	for what, c := range map[string]struct{ got, want error }{
		"empty ledger":    {d.MarkOpened(page("", 1)), base.ErrInvalid},
		"long ledger":     {d.MarkClosed(page(long, 1), at(1)), base.ErrTooLarge},
		"empty page name": {d.SetPageName(page("a", 1), ""), base.ErrInvalid},
		"long page name":  {d.SetPageName(page("a", 1), long), base.ErrTooLarge},
	} {
		if !errors.Is(c.got, c.want) {
			t.Errorf("%s: %v, want %v", what, c.got, c.want)
		}
	}
}

// TestExist: a database that is new knows the pages that there are, and asks for them only then.
func TestExist(t *testing.T) {
	dir := t.TempDir()
	exist := func() ([]pageusage.Page, error) { return []pageusage.Page{page("a", 1), page("b", 7)}, nil }
	d, _, err := pageusage.Open(dir, pageusage.Options{Now: at(99), Exist: exist})
	must(t, err)
	equal(t, "new", list(t, d), []string{"a/1@99", "b/7@99"})
	must(t, d.Remove(page("b", 7)))
	must(t, d.Close())
	d, _, err = pageusage.Open(dir, pageusage.Options{Now: at(100), Exist: exist})
	must(t, err)
	equal(t, "opened again", list(t, d), []string{"a/1@99"})
	must(t, d.Close())
	broken := errors.New("broken")
	_, _, err = pageusage.Open(t.TempDir(), pageusage.Options{Now: at(1), Exist: func() ([]pageusage.Page, error) { return nil, broken }})
	if !errors.Is(err, broken) {
		t.Errorf("open: %v", err)
	}
}

// TestDamaged is U4, for damage of the file and of a row.
func TestDamaged(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"cut": func(path string) error { return os.Truncate(path, 5000) },
		"no database": func(path string) error {
			return os.WriteFile(path, bytes.Repeat([]byte("x"), 20000), 0o600)
		},
		"short row":   put("pages", []byte("a0123456789abcdef"), []byte{1}),
		"short key":   put("pages", []byte("0123456789abcdef"), make([]byte, 20)),
		"checksum":    put("pages", []byte("a0123456789abcdef"), make([]byte, 20)),
		"old version": put("format", []byte("version"), []byte{1}),
		"version":     put("format", []byte("version"), []byte{0}),
		"no bucket": func(path string) error {
			db, err := bbolt.Open(path, 0o600, nil)
			if err != nil {
				return err
			}
			return errors.Join(db.Update(func(tx *bbolt.Tx) error { return tx.DeleteBucket([]byte("pages")) }), db.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "page_usage.db")
			d, _ := open(t, dir, 1)
			must(t, d.MarkOpened(page("a", 1)))
			must(t, d.Close())
			must(t, spoil(path))
			before, err := os.ReadFile(path)
			must(t, err)
			r, rec, err := pageusage.Open(dir, pageusage.Options{Now: at(5), ReadOnly: true})
			must(t, err)
			if !errors.Is(rec.Damage, base.ErrCorrupt) || rec.SavedAs != "" || len(list(t, r)) != 0 {
				t.Errorf("read-only: %+v", rec)
			}
			must(t, r.Close())
			d, rec = open(t, dir, 5)
			defer d.Close()
			if !errors.Is(rec.Damage, base.ErrCorrupt) || rec.SavedAs != path+".damaged" {
				t.Fatalf("%+v", rec)
			}
			if after, err := os.ReadFile(rec.SavedAs); err != nil || !bytes.Equal(before, after) {
				t.Errorf("the damaged file is not kept: %v", err)
			}
			if got := list(t, d); len(got) != 0 {
				t.Errorf("rows from a damaged file: %v", got)
			}
			must(t, d.MarkClosed(page("a", 1), at(6)))
			must(t, d.Flush())
		})
	}
}

func update(path string, fn func(index.Tx) error) error {
	f, err := index.OpenFile(path, index.Options{})
	if err != nil {
		return err
	}
	return errors.Join(f.Update(fn), f.Close())
}

func put(bucket string, k, v []byte) func(string) error {
	return func(path string) error {
		return update(path, func(tx index.Tx) error { return tx.Bucket(bucket).Put(k, v) })
	}
}

func TestNewerFormat(t *testing.T) {
	dir := t.TempDir()
	d, _ := open(t, dir, 1)
	must(t, d.Close())
	must(t, put("format", []byte("version"), []byte{9})(filepath.Join(dir, "page_usage.db")))
	for _, ro := range []bool{false, true} {
		_, _, err := pageusage.Open(dir, pageusage.Options{Now: at(1), ReadOnly: ro})
		if fe := new(base.FormatError); !errors.As(err, &fe) || fe.Found != 9 {
			t.Errorf("read-only %v: %v", ro, err)
		}
	}
}

func TestReadOnly(t *testing.T) {
	dir := t.TempDir()
	r, rec, err := pageusage.Open(filepath.Join(dir, "none"), pageusage.Options{Now: at(1), ReadOnly: true})
	must(t, err)
	if rec.Damage != nil || len(list(t, r)) != 0 {
		t.Errorf("%+v", rec)
	}
	must(t, r.Close())
	d, _ := open(t, dir, 1)
	must(t, d.MarkOpened(page("a", 1)))
	must(t, d.Close())
	r, _, err = pageusage.Open(dir, pageusage.Options{Now: at(1), ReadOnly: true})
	must(t, err)
	defer r.Close()
	must(t, r.MarkClosed(page("a", 1), at(8)))
	equal(t, "rows", list(t, r), []string{"a/1@open"})
	for what, err := range map[string]error{"forget": r.Forget(page("a", 1)), "name": r.SetPageName(page("a", 1), "x")} {
		if !errors.Is(err, base.ErrReadOnly) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, _, err := pageusage.Open(dir, pageusage.Options{}); !errors.Is(err, base.ErrInvalid) {
		t.Errorf("open without a time: %v", err)
	}
}

// TestTimes: any time can be given, and none reads as open.
func TestTimes(t *testing.T) {
	d, err := pageusage.New(index.NewMemory(), pageusage.Options{Now: at(1)})
	must(t, err)
	for _, c := range []struct {
		t    time.Time
		want int64
	}{{at(0), 1}, {at(-5), 1}, {time.Time{}, 1}, {at(77), 77}, {at(limits.MaxTimestamp), limits.MaxTimestamp}, {time.Unix(1<<60, 0), limits.MaxTimestamp}} {
		must(t, d.MarkClosed(page("a", 1), c.t))
		if n := closed(t, d, page("a", 1)); n != c.want {
			t.Errorf("%v: %d", c.t, n)
		}
	}
}

// TestCrashes: after any marks and a crash, a page that the database knows has a time that some
// mark gave it, or that of the next Open; names that were set are there (U1, U2, U3).
func TestCrashes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		disk := index.NewMemory()
		times, names := map[pageusage.Page]map[int64]bool{}, map[pageusage.Page]string{}
		now := int64(0)
		for range rapid.IntRange(1, 5).Draw(rt, "lives") {
			now++
			d, err := pageusage.New(disk, pageusage.Options{Now: at(now)})
			if err != nil {
				rt.Fatal(err)
			}
			reopened := now
			for p := range times {
				_, closed, err := d.Page(p)
				if err != nil || !closed.IsZero() && !times[p][closed.UnixNano()] && closed.UnixNano() != reopened {
					rt.Fatalf("after opening at %d: %v closed at %v, %v", reopened, p, closed, err)
				}
				if closed.IsZero() {
					continue
				}
				times[p][closed.UnixNano()] = true
			}
			if all, err := d.List(); err != nil || slices.ContainsFunc(all, func(s string) bool { return strings.HasSuffix(s, "open") }) {
				rt.Fatalf("after opening: %v %v", all, err) // U3
			}
			for p, name := range names {
				if got, _, err := d.Page(p); err != nil || got != name {
					rt.Fatalf("name %q, want %q, %v", got, name, err)
				}
			}
			for range rapid.IntRange(0, 90).Draw(rt, "marks") {
				p := page(rapid.SampledFrom([]string{"a", "a\x00", "b"}).Draw(rt, "ledger"), rapid.Byte().Draw(rt, "page"))
				now++
				if times[p] == nil {
					times[p] = map[int64]bool{}
				}
				switch rapid.IntRange(0, 6).Draw(rt, "op") {
				case 0:
					names[p] = fmt.Sprint("name ", now)
					err = d.SetPageName(p, names[p])
				case 1:
					err = d.Remove(p)
				case 2, 3:
					times[p][now] = true
					err = d.MarkClosed(p, at(now))
				default:
					err = d.MarkOpened(p)
				}
				if err != nil {
					rt.Fatal(err)
				}
			}
		} // no Close: a crash
	})
}
