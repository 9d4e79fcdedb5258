package filetree_test

import (
	"bytes"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/filetree"
)

// importTree imports dir and returns the result and the paths warned of.
func importTree(t testing.TB, page *ledger.Page, dir string, o filetree.ImportOptions) (filetree.Result, []string) {
	t.Helper()
	var warned []string
	o.Warn = func(w filetree.Warning) { warned = append(warned, w.Path) }
	r, err := filetree.Import(t.Context(), page, dir, &o)
	must(t, err)
	return r, warned
}

func keys(t testing.TB, page *ledger.Page) []string {
	t.Helper()
	found := []string{}
	snap, err := page.Snapshot(t.Context())
	must(t, err)
	defer snap.Close()
	for item, err := range filetree.List(t.Context(), snap, filetree.ListOptions{}) {
		must(t, err)
		found = append(found, string(item.Entry.Key))
	}
	return found
}

// F5: a socket is left out and told; a file of that name that the page has goes.
func TestImportSkipsSpecialFiles(t *testing.T) {
	page, dir := newPage(t), t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "a"), []byte("x"), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "s"), []byte("x"), 0o600))
	importTree(t, page, dir, filetree.ImportOptions{})
	must(t, os.Remove(filepath.Join(dir, "s")))
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Skip(err)
	}
	defer l.Close()
	r, warned := importTree(t, page, dir, filetree.ImportOptions{})
	if diff := cmp.Diff([]string{"s"}, warned); diff != "" || r.Warnings != 1 || r.Removed != 1 {
		t.Errorf("result %+v, warnings (-want +got):\n%s", r, diff)
	}
	if got := keys(t, page); !cmp.Equal(got, []string{"a"}) {
		t.Errorf("page has %q", got)
	}
}

// The repository is not of the tree that it lies in.
func TestImportExcludes(t *testing.T) {
	page, dir := newPage(t), t.TempDir()
	writeTree(t, dir, map[string]file{"a": {Mode: 0o600}, "repo/page.db": {Mode: 0o600}, "d/repo/x": {Mode: 0o600}})
	info, err := os.Stat(filepath.Join(dir, "repo"))
	must(t, err)
	importTree(t, page, dir, filetree.ImportOptions{Exclude: info})
	if got := keys(t, page); !cmp.Equal(got, []string{"a", "d/repo/x"}) {
		t.Errorf("page has %q", got)
	}
}

// A file that changes while it is read keeps what the page has of it, also when its size stays.
func TestImportOfChangingFile(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, f *os.File){
		"grows": func(t *testing.T, f *os.File) {
			_, err := f.WriteAt([]byte("more"), 2_000_000)
			must(t, err)
		},
		"shrinks": func(t *testing.T, f *os.File) { must(t, f.Truncate(1_999_999)) },
		"keeps its size": func(t *testing.T, f *os.File) {
			_, err := f.WriteAt([]byte("x"), 0)
			must(t, err)
			must(t, os.Chtimes(f.Name(), time.Unix(1, 0), time.Unix(1, 0)))
		},
	} {
		t.Run(name, func(t *testing.T) { testChangingFile(t, change) })
	}
}

func testChangingFile(t *testing.T, change func(*testing.T, *os.File)) {
	page, dir := newPage(t), t.TempDir()
	name := filepath.Join(dir, "long")
	must(t, os.WriteFile(name, bytes.Repeat([]byte("old"), 100_000), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "z"), []byte("1"), 0o600))
	importTree(t, page, dir, filetree.ImportOptions{})
	must(t, os.WriteFile(name, bytes.Repeat([]byte("new!"), 500_000), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "z"), []byte("22"), 0o600))
	changed := false
	r, warned := importTree(t, page, dir, filetree.ImportOptions{Progress: func(p ledger.Progress) {
		if p.Now == "long" && !changed {
			changed = true
			f, err := os.OpenFile(name, os.O_RDWR, 0)
			must(t, err)
			change(t, f)
			must(t, f.Close())
		}
	}})
	if !changed || !cmp.Equal(warned, []string{"long"}) || r.Changed != 1 {
		t.Errorf("changed %v, warned of %q, result %+v", changed, warned, r)
	}
	must(t, page.View(t.Context(), func(s *ledger.Snapshot) error {
		if v, err := s.Get(t.Context(), []byte("long")); err != nil || !bytes.Equal(v, bytes.Repeat([]byte("old"), 100_000)) {
			t.Errorf("the page has %d bytes of the file that changed, %v; want the old ones", len(v), err)
		}
		if v, err := s.Get(t.Context(), []byte("z")); err != nil || string(v) != "22" {
			t.Errorf("z is %q, %v", v, err)
		}
		return nil
	}))
}

func TestImportSingleFile(t *testing.T) {
	page, dir := newPage(t), t.TempDir()
	put(t, page, map[string]string{"other": "x"})
	name := filepath.Join(dir, "file")
	must(t, os.WriteFile(name, []byte("content"), 0o640))
	for _, want := range []filetree.Result{{Added: 1, Bytes: 7, Committed: true}, {Unchanged: 1, Bytes: 7}} {
		r, _ := importTree(t, page, name, filetree.ImportOptions{})
		if r.Commit = (ledger.CommitID{}); r != want {
			t.Errorf("result %+v, want %+v", r, want)
		}
	}
	if got := keys(t, page); !cmp.Equal(got, []string{"file", "other"}) {
		t.Errorf("page has %q", got)
	}
	if _, err := filetree.Import(t.Context(), page, filepath.Join(dir, "absent"), nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("import of nothing: %v", err)
	}
}

func TestImportMessageAndPriority(t *testing.T) {
	page, dir := newPage(t), t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "long"), bytes.Repeat([]byte("x"), 100_000), 0o600))
	r, _ := importTree(t, page, dir, filetree.ImportOptions{Message: "hello", Lazy: true})
	c, err := page.Commit(t.Context(), r.Commit)
	if must(t, err); c.Message != "hello" {
		t.Errorf("message is %q", c.Message)
	}
	must(t, page.View(t.Context(), func(s *ledger.Snapshot) error {
		if e, err := s.Stat(t.Context(), []byte("long")); err != nil || e.Priority != ledger.Lazy {
			t.Errorf("priority is %v, %v", e.Priority, err)
		}
		return nil
	}))
}

// JSON lines carry long values of both forms, and a failing line or reader leaves the page as it
// was.
func TestImportJSONLines(t *testing.T) {
	page := newPage(t)
	long := map[string]string{
		"text":   strings.Repeat("a\"é\n\u2028", 50_000),
		"binary": strings.Repeat("\xff\x00", 100_000),
		"mixed":  strings.Repeat("x", 65_535) + "\xff",
		"short":  "v", "empty": "", "\xff": "binary key", "\x00attr\x00x": "y",
	}
	put(t, page, long)
	snap, err := page.Snapshot(t.Context())
	must(t, err)
	defer snap.Close()
	var lines bytes.Buffer
	r, err := filetree.ExportJSONLines(t.Context(), snap, &lines, nil)
	if must(t, err); r.Files != int64(len(long)) {
		t.Errorf("exported %+v", r)
	}
	other := newPage(t)
	got, err := filetree.ImportJSONLines(t.Context(), other, iotest.HalfReader(bytes.NewReader(lines.Bytes())), nil)
	if must(t, err); got.Added != int64(len(long)) || !got.Committed {
		t.Errorf("imported %+v", got)
	}
	must(t, other.View(t.Context(), func(s *ledger.Snapshot) error {
		for k, want := range long {
			if v, err := s.Get(t.Context(), []byte(k)); err != nil || string(v) != want {
				t.Errorf("%q has %d bytes, %v; want %d", k, len(v), err, len(want))
			}
		}
		return nil
	}))
	// The other repository has cut values by a secret of its own.
	if again, err := filetree.ImportJSONLines(t.Context(), page, bytes.NewReader(lines.Bytes()), nil); err != nil || again.Committed {
		t.Errorf("equal content makes a commit: %+v, %v", again, err)
	}
	head, err := other.Resolve(t.Context(), "HEAD")
	must(t, err)
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		r    interface{ Read([]byte) (int, error) }
		want error
	}{
		"bad line":   {strings.NewReader("{\"key\":\"new\",\"value\":\"v\"}\nnonsense\n"), ledger.ErrInvalid},
		"bad reader": {iotest.TimeoutReader(iotest.OneByteReader(strings.NewReader(`{"key":"new","value":"v"}`))), iotest.ErrTimeout},
		"bad value":  {&failing{r: strings.NewReader(`{"key":"text","value":"` + strings.Repeat("x", 200_000)), err: broken}, broken},
	} {
		if _, err := filetree.ImportJSONLines(t.Context(), other, c.r, nil); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
		if now, err := other.Resolve(t.Context(), "HEAD"); err != nil || now != head {
			t.Errorf("%s: the page has a new commit", name)
		}
	}
}

// failing fails at the end of r.
type failing struct {
	r   *strings.Reader
	err error
}

func (f *failing) Read(p []byte) (int, error) {
	if f.r.Len() == 0 {
		return 0, f.err
	}
	return f.r.Read(p)
}

// A put over an imported file changes what an import and an export see of it.
func TestTouchAndRemove(t *testing.T) {
	page, dir := newPage(t), t.TempDir()
	writeTree(t, dir, map[string]file{"f": {Mode: 0o755, Content: "old"}, "l": {Mode: fs.ModeSymlink, Content: "f"}, "p/a": {Mode: 0o600}, "p/b": {Mode: 0o600}})
	importTree(t, page, dir, filetree.ImportOptions{})
	info, err := os.Stat(dir)
	must(t, err)
	_, err = page.Update(t.Context(), func(tx *ledger.Tx) error {
		for _, k := range []string{"f", "l", "new"} {
			must(t, tx.Put(t.Context(), []byte(k), []byte("written")))
			must(t, filetree.Touch(t.Context(), tx, []byte(k), info.ModTime()))
		}
		must(t, filetree.RemovePrefix(t.Context(), tx, []byte("p/")))
		for k, want := range map[string]bool{"new": true, "absent": false} {
			if removed, err := filetree.Remove(t.Context(), tx, []byte(k)); err != nil || removed != want {
				t.Errorf("remove %s: %v, %v", k, removed, err)
			}
		}
		return nil
	})
	must(t, err)
	out := filepath.Join(t.TempDir(), "out")
	export(t, page, ledger.CommitID{}, out, nil)
	want := map[string]file{
		"f": {Mode: 0o755, ModTime: info.ModTime().UTC(), Content: "written"},
		"l": {Mode: 0o644, ModTime: info.ModTime().UTC(), Content: "written"},
	}
	if diff := cmp.Diff(want, readTree(t, out)); diff != "" {
		t.Errorf("exported (-want +got):\n%s", diff)
	}
	must(t, page.View(t.Context(), func(s *ledger.Snapshot) error {
		for e, err := range s.Scan(t.Context(), ledger.ScanOptions{}) {
			if must(t, err); bytes.Contains(e.Key, []byte("p/")) {
				t.Errorf("%q is left", e.Key)
			}
		}
		return nil
	}))
}

// List gives every entry that holds no attributes, in order, whatever the prefix.
func TestListPrefixes(t *testing.T) {
	page := newPage(t)
	put(t, page, map[string]string{"": "", "\x00": "", "\x00attr": "", "\x00attr\x00a": "", "\x00attr\x01": "", "\x00b": "", "a": "", "b": ""})
	all := []string{"", "\x00", "\x00attr", "\x00attr\x01", "\x00b", "a", "b"}
	snap, err := page.Snapshot(t.Context())
	must(t, err)
	defer snap.Close()
	for _, prefix := range append([]string{"\x00attr\x00", "\x00attr\x00a", "\x00attr\x00b", "zz"}, all...) {
		for _, reverse := range []bool{false, true} {
			for _, limit := range []int{0, 1, 3} {
				want := []string{}
				for _, k := range all {
					if strings.HasPrefix(k, prefix) {
						want = append(want, k)
					}
				}
				if reverse {
					slices.Reverse(want)
				}
				if limit > 0 && len(want) > limit {
					want = want[:limit]
				}
				got := []string{}
				o := filetree.ListOptions{Prefix: []byte(prefix), Reverse: reverse, Limit: limit}
				for item, err := range filetree.List(t.Context(), snap, o) {
					must(t, err)
					got = append(got, string(item.Entry.Key))
				}
				if !cmp.Equal(want, got) {
					t.Errorf("prefix %q, reverse %v, limit %d: %q, want %q", prefix, reverse, limit, got, want)
				}
			}
		}
	}
}
