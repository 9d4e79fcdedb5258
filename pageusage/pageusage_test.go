package pageusage_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
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

func open(t *testing.T, dir string, now int64) (*pageusage.DB, *pageusage.Recovery) {
	t.Helper()
	d, rec, err := pageusage.Open(dir, pageusage.Options{Now: at(now)})
	must(t, err)
	return d, rec
}

// list writes usages as ledger/number@time.
func list(t interface {
	Helper()
	Fatal(...any)
}, seq func(func(pageusage.Usage, error) bool)) (got []string) {
	t.Helper()
	for u, err := range seq {
		if err != nil {
			t.Fatal(err)
		}
		s := fmt.Sprintf("%s/%d@", u.Page.Ledger, u.Page.ID[15])
		if u.Open {
			s += "open"
		} else {
			s += fmt.Sprint(u.Closed.UnixNano())
		}
		got = append(got, s)
	}
	return got
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
	if !rec.Created || rec.Damage != nil || rec.Closed != 0 {
		t.Errorf("%+v", rec)
	}
	must(t, d.MarkOpened(page("a", 1)))
	must(t, d.MarkOpened(page("a", 2)))
	must(t, d.MarkOpened(page("ab", 1)))
	must(t, d.MarkClosed(page("a", 2), at(50)))
	must(t, d.MarkClosed(page("ab", 1), at(40)))
	must(t, d.MarkClosed(page("b", 1), at(50)))
	equal(t, "list", list(t, d.List()), []string{"a/1@open", "a/2@50", "ab/1@40", "b/1@50"})
	must(t, d.Remove(page("ab", 1)))
	must(t, d.Remove(page("none", 1)))
	if _, err := d.Get(page("ab", 1)); !errors.Is(err, base.ErrNotFound) {
		t.Errorf("get removed: %v", err)
	}
	must(t, d.MarkClosed(page("c", 1), at(60)))
	must(t, d.MarkClosed(page("c", 2), at(61)))
	must(t, d.RemoveClosed([]pageusage.Usage{
		{Page: page("c", 1), Closed: at(60)},
		{Page: page("c", 2), Closed: at(60)}, // closed again since
		{Page: page("a", 1), Closed: at(60)}, // opened since
		{Page: page("none", 1), Closed: at(60)},
	}))
	equal(t, "list", list(t, d.List()), []string{"a/1@open", "a/2@50", "b/1@50", "c/2@61"})
	must(t, d.Close())
	must(t, d.Close())
	for what, err := range map[string]error{"mark": d.MarkOpened(page("a", 1)), "flush": d.Flush(), "name": d.SetPageName(page("a", 1), "x")} {
		if !errors.Is(err, base.ErrClosed) {
			t.Errorf("%s after close: %v", what, err)
		}
	}
	for _, err := range d.List() {
		if !errors.Is(err, base.ErrClosed) {
			t.Errorf("list after close: %v", err)
		}
	}
	// U3
	d, rec = open(t, dir, 100)
	defer d.Close()
	if rec.Created || rec.Closed != 1 {
		t.Errorf("%+v", rec)
	}
	equal(t, "reopened", list(t, d.List()), []string{"a/1@100", "a/2@50", "b/1@50", "c/2@61"})
	u, err := d.Get(page("a", 1))
	if err != nil || u.Open || !u.Closed.Equal(at(100)) {
		t.Errorf("%+v %v", u, err)
	}
}

// TestMarksAreLazy is U1: marks cost no transaction until there are many.
func TestMarksAreLazy(t *testing.T) {
	c := &counting{DB: index.NewMemory()}
	d, _, err := pageusage.New(c, at(1))
	must(t, err)
	c.updates = 0
	for range 10 {
		must(t, d.MarkOpened(page("a", 1)))
		must(t, d.MarkClosed(page("a", 1), at(7)))
	}
	if c.updates != 0 {
		t.Errorf("%d updates for marks", c.updates)
	}
	if u, err := d.Get(page("a", 1)); err != nil || u.Closed != at(7) {
		t.Errorf("%+v %v", u, err)
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
	c.fail = nil
	must(t, d.Flush())
	if again, _, err := pageusage.New(c, at(30)); err != nil {
		t.Error(err)
	} else if u, err := again.Get(page("b", 1)); err != nil || u.Closed != at(9) {
		t.Errorf("%+v %v", u, err)
	}
}

// TestSizes: what was noted last is kept until the page is removed, also by a database of a program
// that noted none.
func TestSizes(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "page_usage.db")
	d, _ := open(t, dir, 1)
	must(t, d.MarkClosed(page("a", 1), at(5)))
	must(t, d.Close())
	must(t, update(path, func(tx index.Tx) error { return tx.DeleteBucket("sizes") }))
	d, rec := open(t, dir, 2)
	if rec.Damage != nil {
		t.Fatalf("%+v", rec)
	}
	want := func(p pageusage.Page, n int64) {
		t.Helper()
		if u, err := d.Get(p); err != nil || u.SizeBytes != n {
			t.Errorf("%d bytes, %v; want %d", u.SizeBytes, err, n)
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
	for u, err := range d.List() {
		if err != nil || u.SizeBytes != 80 {
			t.Errorf("listed with %d bytes, %v", u.SizeBytes, err)
		}
	}
	must(t, d.Remove(page("a", 1)))
	must(t, d.MarkClosed(page("a", 1), at(5)))
	want(page("a", 1), 0)
	must(t, d.NoteSize(page("a", 1), 90))
	if _, _, err := d.Reconcile(nil, at(9)); err != nil {
		t.Error(err)
	}
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
	if name, err := d.PageName(page("a", 1)); err != nil || name != "page 1 of a" {
		t.Errorf("an evicted page's name: %q %v", name, err)
	}
	must(t, d.Forget(page("a", 2)))
	if name, err := d.PageName(page("a", 2)); !errors.Is(err, base.ErrNotFound) {
		t.Errorf("a forgotten page's name: %q %v", name, err)
	}
	long := strings.Repeat("x", limits.MaxLedgerNameBytes+1)
	for what, c := range map[string]struct{ got, want error }{
		"empty ledger":    {d.MarkOpened(page("", 1)), base.ErrInvalid},
		"long ledger":     {d.MarkClosed(page(long, 1), at(1)), base.ErrTooLarge},
		"empty page name": {d.SetPageName(page("a", 1), ""), base.ErrInvalid},
		"long page name":  {d.SetPageName(page("a", 1), long), base.ErrTooLarge},
		"no page":         {second(d.PageName(page("q", 1))), base.ErrNotFound},
		"bad page":        {second(d.PageName(page("", 1))), base.ErrNotFound},
	} {
		if !errors.Is(c.got, c.want) {
			t.Errorf("%s: %v, want %v", what, c.got, c.want)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestReconcile(t *testing.T) {
	d, _ := open(t, t.TempDir(), 1)
	defer d.Close()
	must(t, d.MarkClosed(page("a", 1), at(10)))
	must(t, d.MarkClosed(page("a", 2), at(20)))
	must(t, d.MarkOpened(page("a", 3)))
	must(t, d.SetPageName(page("a", 2), "kept"))
	added, removed, err := d.Reconcile([]pageusage.Page{page("a", 1), page("a", 3), page("b", 7)}, at(99))
	if err != nil || added != 1 || removed != 1 {
		t.Errorf("added %d, removed %d, %v", added, removed, err)
	}
	equal(t, "reconciled", list(t, d.List()), []string{"a/1@10", "a/3@open", "b/7@99"})
	if name, err := d.PageName(page("a", 2)); err != nil || name != "kept" {
		t.Errorf("name %q %v", name, err)
	}
}

// TestDamaged is U4, for damage of the file and of a row.
func TestDamaged(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"cut": func(path string) error { return os.Truncate(path, 5000) },
		"no database": func(path string) error {
			return os.WriteFile(path, bytes.Repeat([]byte("x"), 20000), 0o600)
		},
		"short row":  put("opened", []byte("a0123456789abcdef"), []byte{1}),
		"short key":  put("opened", []byte("0123456789abcdef"), make([]byte, 8)),
		"time":       put("opened", []byte("a0123456789abcdef"), bytes.Repeat([]byte{0xff}, 8)),
		"name":       put("pages", []byte("a0123456789abcdef"), []byte("\x00\x00\x00\x00name")),
		"name's key": put("pages", []byte("a"), []byte("\x00\x00\x00\x00name")),
		"size":       put("sizes", []byte("a0123456789abcdef"), bytes.Repeat([]byte{0xff}, 8)),
		"version":    put("format", []byte("version"), []byte{0}),
		"no bucket": func(path string) error {
			return update(path, func(tx index.Tx) error { return tx.DeleteBucket("pages") })
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
			if !errors.Is(rec.Damage, base.ErrCorrupt) || rec.SavedAs != "" || len(list(t, r.List())) != 0 {
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
			if got := list(t, d.List()); len(got) != 0 {
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
	if !rec.Created || len(list(t, r.List())) != 0 {
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
	equal(t, "rows", list(t, r.List()), []string{"a/1@open"})
	for what, err := range map[string]error{"remove": r.Remove(page("a", 1)), "name": r.SetPageName(page("a", 1), "x"), "reconcile": third(r.Reconcile(nil, at(1)))} {
		if !errors.Is(err, base.ErrReadOnly) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, _, err := pageusage.Open(dir, pageusage.Options{}); !errors.Is(err, base.ErrInvalid) {
		t.Errorf("open without a time: %v", err)
	}
}

func third(_, _ int, err error) error { return err }

// TestTimes: any time can be given, and none reads as open.
func TestTimes(t *testing.T) {
	d, _, err := pageusage.New(index.NewMemory(), at(1))
	must(t, err)
	for _, c := range []struct {
		t    time.Time
		want int64
	}{{at(0), 1}, {at(-5), 1}, {time.Time{}, 1}, {at(77), 77}, {at(limits.MaxTimestamp), limits.MaxTimestamp}, {time.Unix(1<<60, 0), limits.MaxTimestamp}} {
		must(t, d.MarkClosed(page("a", 1), c.t))
		if u, err := d.Get(page("a", 1)); err != nil || u.Open || u.Closed.UnixNano() != c.want {
			t.Errorf("%v: %+v %v", c.t, u, err)
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
			d, _, err := pageusage.New(disk, at(now))
			if err != nil {
				rt.Fatal(err)
			}
			reopened := now
			for u, err := range d.List() {
				if err != nil || u.Open || !times[u.Page][u.Closed.UnixNano()] && u.Closed.UnixNano() != reopened {
					rt.Fatalf("after opening at %d: %+v %v", reopened, u, err)
				}
				times[u.Page][u.Closed.UnixNano()] = true
			}
			for p, name := range names {
				if got, err := d.PageName(p); err != nil || got != name {
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
