package ledger_test

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
)

func TestReopenKeepsEverything(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir, nil)
	id := idOf(t, r)
	p := page(t, r, "app", "page")
	long := string(pseudo(1, 300_000))
	c := put(t, p, "a", "1", "long", long, "", "empty key", "empty value", "")
	if err := p.Tag(t.Context(), "v1", c); err != nil {
		t.Fatal(err)
	}
	closeIt(t, p)
	closeIt(t, r)

	r = open(t, dir, &ledger.Options{MustExist: true})
	if idOf(t, r) != id {
		t.Errorf("id %s, want %s", idOf(t, r), id)
	}
	p = page(t, r, "app", "page")
	wantContent(t, p, map[string]string{"a": "1", "long": long, "": "empty key", "empty value": ""})
	if got, err := p.Resolve(t.Context(), "v1"); err != nil || got != c {
		t.Errorf("tag: %s, %v", got, err)
	}
	checkClean(t, r)
	closeIt(t, p)
	closeIt(t, r)
}

func TestLayoutOnDisk(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir, nil)
	root, err := r.OpenPage(t.Context(), ledger.PageRef{Ledger: "Notes"})
	if err != nil {
		t.Fatal(err)
	}
	// "Notes" and 16 zero bytes in lower-case base32hex.
	for _, name := range []string{"lock", "1/repository", "1/page_usage_db", "1/ledgers/9pnn8pbj/00000000000000000000000000"} {
		if _, err := os.Stat(filepath.Join(dir, filepath.FromSlash(name))); err != nil {
			t.Error(err)
		}
	}
	closeIt(t, root)
	closeIt(t, r)
}

func TestNamesOfAnyBytes(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir, nil)
	names := []string{"a", "A", "a/../b", "\x00", "con", "\xff\xfe", strings.Repeat("n", 150), strings.Repeat("N", 149)}
	for i, name := range names {
		p := page(t, r, name, name)
		put(t, p, "name", name)
		if p.Name() != name || p.Ref().Ledger != name {
			t.Errorf("name %d differs", i)
		}
		closeIt(t, p)
	}
	check := func(r *ledger.Repository) {
		t.Helper()
		pages, err := r.Pages(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var ledgers []string
		for _, p := range pages {
			ledgers = append(ledgers, p.Ledger)
		}
		if diff := cmp.Diff(slices.Sorted(slices.Values(names)), ledgers); diff != "" {
			t.Errorf("ledgers (-want +got):\n%s", diff)
		}
		for _, p := range pages {
			if p.Name != p.Ledger || p.ID != ledger.DerivePageID(p.Ledger, p.Name) || p.SizeBytes == 0 || p.State != ledger.PageClosed || p.LastClosed.IsZero() {
				t.Errorf("page %+v", p)
			}
		}
	}
	check(r)
	closeIt(t, r)
	check(open(t, dir, &ledger.Options{ReadOnly: true}))
}

func TestPageUsageIsNoTruth(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir, nil)
	long := strings.Repeat("long", 37)
	p := page(t, r, long, "page")
	put(t, p, "k", "v")
	closeIt(t, r)
	usage := filepath.Join(dir, "1", "page_usage_db", "page_usage.db")
	if err := os.WriteFile(usage, bytes.Repeat([]byte("damage"), 5000), 0o600); err != nil {
		t.Fatal(err)
	}
	r = open(t, dir, nil)
	pages, err := r.Pages(t.Context())
	if err != nil || len(pages) != 1 || pages[0].Ledger != long || pages[0].Name != "" {
		t.Fatalf("pages %+v, %v", pages, err)
	}
	p = page(t, r, long, "page")
	wantContent(t, p, map[string]string{"k": "v"})
	if p.Name() != "page" {
		t.Errorf("name %q", p.Name())
	}
	if _, err := os.Stat(usage + ".damaged"); err != nil {
		t.Error(err)
	}
}

func TestOpenRefusals(t *testing.T) {
	t.Run("must exist", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "absent")
		for _, o := range []ledger.Options{{MustExist: true}, {ReadOnly: true}} {
			_, err := ledger.Open(t.Context(), dir, &o)
			wantErr(t, err, ledger.ErrNoRepository)
		}
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("directory was made: %v", err)
		}
	})
	t.Run("newer directory", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, "7"), 0o700); err != nil {
			t.Fatal(err)
		}
		_, err := ledger.Open(t.Context(), dir, nil)
		wantFormat(t, err, 7)
		if got := tree(t, dir); len(got) != 0 {
			t.Errorf("written on refusal: %v", sortedKeys(got))
		}
	})
	t.Run("newer file", func(t *testing.T) {
		dir := t.TempDir()
		closeIt(t, open(t, dir, nil))
		name := filepath.Join(dir, "1", "repository")
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		binary.BigEndian.PutUint32(b[8:], 9)
		binary.BigEndian.PutUint32(b[60:], crc32.Checksum(b[:60], crc32.MakeTable(crc32.Castagnoli)))
		if err := os.WriteFile(name, append(b, "more"...), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err = ledger.Open(t.Context(), dir, nil)
		wantFormat(t, err, 9)
	})
	t.Run("options", func(t *testing.T) {
		for _, c := range []struct {
			o    ledger.Options
			want error
		}{
			{ledger.Options{CacheBytes: -1}, ledger.ErrInvalid},
			{ledger.Options{LockTimeout: -1}, ledger.ErrInvalid},
			{ledger.Options{Device: "\xff"}, ledger.ErrInvalid},
			{ledger.Options{Device: strings.Repeat("d", 257)}, ledger.ErrTooLarge},
			{ledger.Options{InMemory: true, ReadOnly: true}, ledger.ErrInvalid},
		} {
			_, err := ledger.Open(t.Context(), t.TempDir(), &c.o)
			wantErr(t, err, c.want)
		}
		_, err := ledger.Open(t.Context(), "", nil)
		wantErr(t, err, ledger.ErrInvalid)
	})
}

func TestOpenDamagedRepositoryFile(t *testing.T) {
	t.Run("damaged file", func(t *testing.T) {
		dir := t.TempDir()
		closeIt(t, open(t, dir, nil))
		name := filepath.Join(dir, "1", "repository")
		good, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for i := range good {
			bad := bytes.Clone(good)
			bad[i] ^= 0x40
			if err := os.WriteFile(name, bad, 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := ledger.Open(t.Context(), dir, nil)
			if !errors.Is(err, ledger.ErrCorrupt) && !errors.Is(err, ledger.ErrUnsupported) {
				t.Fatalf("byte %d: %v", i, err)
			}
		}
		if err := os.WriteFile(name, good, 0o600); err != nil {
			t.Fatal(err)
		}
		closeIt(t, open(t, dir, nil))
	})
	t.Run("lost file", func(t *testing.T) {
		dir := t.TempDir()
		r := open(t, dir, nil)
		closeIt(t, page(t, r, "app", "page"))
		closeIt(t, r)
		if err := os.Remove(filepath.Join(dir, "1", "repository")); err != nil {
			t.Fatal(err)
		}
		for _, o := range []*ledger.Options{nil, {MustExist: true}, {ReadOnly: true}} {
			_, err := ledger.Open(t.Context(), dir, o)
			wantErr(t, err, ledger.ErrCorrupt)
		}
	})
}

// TestInterruptedBackupIsNoRepository: nothing makes one of it.
func TestInterruptedBackupIsNoRepository(t *testing.T) {
	r := open(t, t.TempDir(), nil)
	p := page(t, r, "app", "page")
	put(t, p, "k", string(pseudo(1, 300_000)))
	dir := filepath.Join(t.TempDir(), "b")
	must(t, admin.Backup(t.Context(), r, dir, nil))
	if _, err := os.Stat(filepath.Join(dir, "1", "incomplete")); err == nil {
		t.Error("a whole backup is marked as one that is not")
	}
	must(t, os.Remove(filepath.Join(dir, "1", "repository"))) // which comes last
	must(t, os.WriteFile(filepath.Join(dir, "1", "incomplete"), nil, 0o600))
	for _, o := range []*ledger.Options{nil, {Mend: true}, {Mend: true, MustExist: true}, {ReadOnly: true}} {
		_, err := ledger.Open(t.Context(), dir, o)
		wantErr(t, err, ledger.ErrNoRepository)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	dir = filepath.Join(t.TempDir(), "c")
	if err := admin.Backup(ctx, r, dir, nil); err == nil {
		t.Fatal("a backup came to its end although its context had ended")
	}
	if _, err := os.Stat(filepath.Join(dir, "1", "incomplete")); err != nil {
		t.Error(err)
	}
	closeIt(t, p)
	closeIt(t, r)
}

// TestMendRepositoryFile makes the file anew: nothing that is stored is lost. With a cloud values
// are cut by its secret again, so that equal ones have the equal root on all devices.
func TestMendRepositoryFile(t *testing.T) {
	ctx := t.Context()
	w := newCloudWorld(t)
	o := w.options()
	o.InMemory = false
	dir, mend := t.TempDir(), *o
	mend.Mend = true
	_, err := ledger.Open(ctx, t.TempDir(), &ledger.Options{Mend: true, ReadOnly: true})
	wantErr(t, err, ledger.ErrInvalid)
	_, err = ledger.Open(ctx, t.TempDir(), &ledger.Options{Mend: true, MustExist: true})
	wantErr(t, err, ledger.ErrNoRepository)
	r := open(t, dir, o)
	_, err = r.SetCloud(ctx, w.cloud())
	must(t, err)
	p := page(t, r, "app", "page")
	long := string(pseudo(3, 300_000))
	put(t, p, "a", long)
	closeIt(t, p)
	closeIt(t, r)
	name := filepath.Join(dir, "1", "repository")
	for _, damage := range []func() error{func() error { return os.Truncate(name, 10) }, func() error { return os.Remove(name) }} {
		must(t, damage())
		_, err := ledger.Open(ctx, dir, o)
		wantErr(t, err, ledger.ErrCorrupt)
		r = open(t, dir, &mend)
		report, err := admin.Check(ctx, r, &admin.CheckOptions{Repair: true})
		must(t, err)
		if !report.OK() || len(report.Repository) != 1 || !report.Repository[0].Repaired {
			t.Errorf("%+v", report)
		}
		p = page(t, r, "app", "page")
		syncAll(t, r) // it connects, as every open page does in the background
		put(t, p, "b", long)
		s, err := p.Snapshot(ctx)
		must(t, err)
		a, err := s.Stat(ctx, []byte("a"))
		must(t, err)
		b, err := s.Stat(ctx, []byte("b"))
		must(t, err)
		if a.Object != b.Object || a.Object == "" {
			t.Errorf("equal values are %q and %q", a.Object, b.Object)
		}
		must(t, s.Close())
		closeIt(t, p)
		closeIt(t, r)
	}
	closeIt(t, open(t, dir, o))
}

// TestCheckTellsOfTheCloudFile: what is remembered of the cloud is damaged.
func TestCheckTellsOfTheCloudFile(t *testing.T) {
	w := newCloudWorld(t)
	dir, o := t.TempDir(), w.options()
	o.InMemory = false
	r := open(t, dir, o)
	_, err := r.SetCloud(t.Context(), w.cloud())
	must(t, err)
	closeIt(t, r)
	must(t, os.Truncate(filepath.Join(dir, "1", "cloud"), 20))
	r = open(t, dir, o)
	report, err := admin.Check(t.Context(), r, nil)
	must(t, err)
	if report.OK() || len(report.Repository) != 1 || report.Repository[0].Where != "file cloud" {
		t.Errorf("%+v", report)
	}
	_, err = r.SetCloud(t.Context(), w.cloud())
	must(t, err)
	checkClean(t, r)
	closeIt(t, r)
}

func wantFormat(t *testing.T, err error, found uint64) {
	t.Helper()
	wantErr(t, err, ledger.ErrUnsupported)
	e, ok := errors.AsType[*ledger.FormatError](err)
	if !ok || e.Found != found || e.Supported != 1 {
		t.Fatalf("got %v", err)
	}
}

func TestReadOnlyWritesNothing(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir, nil)
	p := page(t, r, "app", "page")
	c := put(t, p, "k", "v")
	closeIt(t, r)
	before := tree(t, dir)

	r = open(t, dir, &ledger.Options{ReadOnly: true})
	p = page(t, r, "app", "page")
	wantContent(t, p, map[string]string{"k": "v"})
	_, err := p.Update(t.Context(), func(*ledger.Tx) error { return nil })
	wantErr(t, err, ledger.ErrReadOnly)
	_, err = p.Begin(t.Context(), nil)
	wantErr(t, err, ledger.ErrReadOnly)
	wantErr(t, p.Tag(t.Context(), "x", c), ledger.ErrReadOnly)
	_, err = p.Restore(t.Context(), c, "")
	wantErr(t, err, ledger.ErrReadOnly)
	_, err = r.Page(t.Context(), "app", "absent")
	wantErr(t, err, ledger.ErrNotFound)
	_, err = r.OpenPage(t.Context(), ledger.PageRef{Ledger: "app", ID: ledger.PageID{1}})
	wantErr(t, err, ledger.ErrNotFound)
	_, err = admin.Check(t.Context(), r, &admin.CheckOptions{Repair: true})
	wantErr(t, err, ledger.ErrReadOnly)
	checkClean(t, r)
	closeIt(t, r)
	if diff := cmp.Diff(sortedKeys(before), sortedKeys(tree(t, dir))); diff != "" {
		t.Errorf("files (-before +after):\n%s", diff)
	}
	if diff := cmp.Diff(before, tree(t, dir)); diff != "" {
		t.Error("files were written")
	}
}

func TestInMemoryIsGoneAtClose(t *testing.T) {
	r := open(t, "ignored", &ledger.Options{InMemory: true})
	p := page(t, r, "app", "page")
	put(t, p, "k", "v")
	closeIt(t, p)
	p = page(t, r, "app", "page")
	wantContent(t, p, map[string]string{"k": "v"})
	if st, err := admin.Status(t.Context(), r); err != nil || st.Dir != "" {
		t.Errorf("directory %q, %v", st.Dir, err)
	}
	checkClean(t, r)
	closeIt(t, r)
	if _, err := os.Stat("ignored"); !errors.Is(err, os.ErrNotExist) {
		t.Error("the directory was made")
	}
}

func TestPagesOfALedger(t *testing.T) {
	r := open(t, "", &ledger.Options{InMemory: true})
	root, err := r.OpenPage(t.Context(), ledger.PageRef{Ledger: "app"})
	if err != nil {
		t.Fatal(err)
	}
	a, err := r.OpenPage(t.Context(), ledger.PageRef{Ledger: "app", ID: ledger.PageID{9}})
	if err != nil {
		t.Fatal(err)
	}
	b, err := r.Page(t.Context(), "app", "b")
	if err != nil {
		t.Fatal(err)
	}
	again, err := r.OpenPage(t.Context(), ledger.PageRef{Ledger: "app", ID: b.Ref().ID})
	if err != nil {
		t.Fatal(err)
	}
	if again.Name() != "b" || root.Ref().ID != (ledger.PageID{}) || a.Ref().ID != (ledger.PageID{9}) || a.Name() != "" {
		t.Errorf("%q %s %s", again.Name(), root.Ref().ID, a.Ref().ID)
	}
	put(t, b, "k", "v")
	closeIt(t, b)
	wantContent(t, again, map[string]string{"k": "v"})
	_, err = b.Snapshot(t.Context())
	wantErr(t, err, ledger.ErrClosed)
	wantContent(t, root, map[string]string{})
	for id, want := range map[ledger.PageID]bool{{}: true, a.Ref().ID: true, {1}: false} {
		at := ledger.PageRef{Ledger: "app", ID: id}
		info, err := r.PageInfo(t.Context(), at)
		if got := err == nil; got != want || got && info.PageRef != at || !got && !errors.Is(err, ledger.ErrNotFound) {
			t.Errorf("page %s: %+v, %v", id, info, err)
		}
	}
	for _, at := range [][2]string{{"", "page"}, {strings.Repeat("x", 151), "page"}, {"app", ""}, {"app", strings.Repeat("x", 1025)}} {
		if _, err := r.Page(t.Context(), at[0], at[1]); err == nil {
			t.Errorf("names of %d and %d bytes were accepted", len(at[0]), len(at[1]))
		}
	}
	wantContent(t, page(t, r, "app", strings.Repeat("x", 1024)), map[string]string{})
}

func TestBackup(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir, nil)
	long := strings.Repeat("ledger", 25)
	want := map[string]map[string]string{}
	for _, name := range []string{"app", long} {
		p := page(t, r, name, "page")
		put(t, p, "long", string(pseudo(uint64(len(name)), 100_000)), "name", name)
		want[name] = pageContent(t, p)
	}
	put(t, page(t, r, "app", "other"), "k", "v")

	target := filepath.Join(t.TempDir(), "copy")
	if err := admin.Backup(t.Context(), r, target, nil); err != nil {
		t.Fatal(err)
	}
	wantErr(t, admin.Backup(t.Context(), r, target, nil), ledger.ErrInvalid)
	var b bytes.Buffer
	if err := admin.BackupTo(t.Context(), r, &b, nil); err != nil {
		t.Fatal(err)
	}
	unpacked := t.TempDir()
	unpack(t, &b, unpacked)
	id := idOf(t, r)
	put(t, page(t, r, "app", "page"), "later", "x")
	closeIt(t, r)

	for _, dir := range []string{target, unpacked} {
		c := open(t, dir, &ledger.Options{MustExist: true})
		if idOf(t, c) != id {
			t.Errorf("id %s, want %s", idOf(t, c), id)
		}
		for name, m := range want {
			wantContent(t, page(t, c, name, "page"), m)
		}
		pages, err := c.Pages(t.Context())
		if err != nil || len(pages) != 3 {
			t.Errorf("pages %+v, %v", pages, err)
		}
		for _, p := range pages {
			if p.Name == "" {
				t.Errorf("page %+v has lost its name", p)
			}
		}
		checkClean(t, c)
		closeIt(t, c)
	}
}

func unpack(t *testing.T, r io.Reader, dir string) {
	t.Helper()
	tr := tar.NewReader(r)
	for {
		h, err := tr.Next()
		if err == io.EOF {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(dir, filepath.FromSlash(h.Name))
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(tr)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestStatus(t *testing.T) {
	r := open(t, t.TempDir(), &ledger.Options{ManualMerge: true})
	p := page(t, r, "app", "page")
	put(t, p, "a", "1")
	base := put(t, p, "b", "2")
	closeIt(t, page(t, r, "app", "empty"))
	for i := range 2 {
		tx, err := p.Begin(t.Context(), &ledger.TxOptions{Base: base})
		if err != nil {
			t.Fatal(err)
		}
		if err := tx.Put(t.Context(), key(i), []byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	st, err := admin.Status(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if st.FormatVersion != 1 || len(st.Pages) != 2 || st.Heads != 3 || st.Unsynced != 4 || st.SizeBytes == 0 || st.ID != idOf(t, r) {
		t.Errorf("status %+v", st)
	}
	for _, ps := range st.Pages {
		if ps.Err != nil || (ps.State == ledger.PageOpen) != (ps.Name == "page") {
			t.Errorf("page %+v", ps)
		}
	}
}

func TestCheckTellsWhatTheLogHasLost(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir, nil)
	p := page(t, r, "app", "page")
	put(t, p, "k", "v", "long", string(pseudo(3, 50_000)))
	want := pageContent(t, p)
	closeIt(t, r)
	files := tree(t, pageDir(t, dir))
	for name := range files {
		if filepath.Base(name) == "page.db" {
			continue
		}
		b := []byte(files[name])
		b[len(b)/2] ^= 1
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var events recorder
	r = open(t, dir, &ledger.Options{Observe: events.Observe})
	report, err := admin.Check(t.Context(), r, &admin.CheckOptions{Repair: true})
	if err != nil {
		t.Fatal(err)
	}
	if report.OK() || report.Remaining() == 0 || len(report.Pages) != 1 {
		t.Fatalf("damage was not found: %+v", report)
	}
	report, err = admin.Check(t.Context(), r, nil)
	if err != nil || !report.OK() || report.Pages[0].MissingPieces+len(report.Pages[0].Holes) == 0 {
		t.Fatalf("a second check: %+v, %v", report, err)
	}
	err = page(t, r, "app", "page").View(t.Context(), func(s *ledger.Snapshot) error {
		if got, err := s.Get(t.Context(), []byte("k")); err != nil || string(got) != "v" {
			t.Fatalf("what was not damaged reads %q, %v", got, err)
		}
		_, err := s.Get(t.Context(), []byte("long"))
		return err
	})
	wantErr(t, err, ledger.ErrGone)
	if events.count(ledger.EventCorruption) == 0 {
		t.Error("the observer was not told")
	}
	closeIt(t, r)
	for name := range tree(t, pageDir(t, dir)) {
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	for name, b := range files { // from a backup
		if err := os.WriteFile(name, []byte(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	r = open(t, dir, nil)
	report, err = admin.Check(t.Context(), r, &admin.CheckOptions{Ledger: "app"})
	if err != nil || !report.OK() {
		t.Fatalf("%+v, %v", report, err)
	}
	wantContent(t, page(t, r, "app", "page"), want)
	_, err = admin.Check(t.Context(), r, &admin.CheckOptions{Ledger: "other"})
	wantErr(t, err, ledger.ErrNotFound)
}

// pageDir returns the directory of the only page.
func pageDir(t *testing.T, dir string) string {
	t.Helper()
	pages, err := filepath.Glob(filepath.Join(dir, "1", "ledgers", "*", "*"))
	if err != nil || len(pages) != 1 {
		t.Fatal(pages, err)
	}
	return pages[0]
}

func TestDamagedIndexIsMended(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir, nil)
	p := page(t, r, "app", "page")
	for i := range 50 {
		put(t, p, string(key(i)), "v", "long", string(pseudo(uint64(i), 5_000)))
	}
	want := pageContent(t, p)
	closeIt(t, r)
	name := filepath.Join(pageDir(t, dir), "page.db")
	good, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for at := 100; at < len(good); at += len(good) / 25 {
		bad := bytes.Clone(good)
		for i := at; i < min(at+16, len(bad)); i++ {
			bad[i] ^= 0x55
		}
		if err := os.WriteFile(name, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		r := open(t, dir, nil)
		if _, err := admin.Check(t.Context(), r, &admin.CheckOptions{Repair: true}); err != nil {
			t.Fatalf("damage at %d: %v", at, err)
		}
		wantContent(t, page(t, r, "app", "page"), want)
		report, err := admin.Check(t.Context(), r, nil)
		if err != nil || !report.OK() {
			t.Fatalf("damage at %d: %+v, %v", at, report, err)
		}
		closeIt(t, r)
	}
}
