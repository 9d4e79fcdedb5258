package filetree_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/filetree"
	"github.com/ledgerd/ledger/internal/tier"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) {
	if !tier.Nightly() {
		// A check makes two trees on disk; 40 take a few seconds on a busy core.
		if err := flag.Set("rapid.checks", "40"); err != nil {
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}

// newPage opens the root page of a ledger in a repository in memory.
func newPage(t testing.TB) *ledger.Page {
	t.Helper()
	repo, err := ledger.Open(t.Context(), "", &ledger.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := repo.Close(); err != nil {
			t.Error(err)
		}
	})
	return pageOf(t, repo, "tree")
}

func pageOf(t testing.TB, repo *ledger.Repository, name string) *ledger.Page {
	t.Helper()
	page, err := repo.OpenPage(t.Context(), ledger.PageRef{Ledger: name})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := page.Close(); err != nil {
			t.Error(err)
		}
	})
	return page
}

// file is one file of a tree on disk.
type file struct {
	Mode    fs.FileMode
	ModTime time.Time // zero for directories
	Content string
}

// readTree returns all files and links below dir, and the empty directories.
func readTree(t testing.TB, dir string) map[string]file {
	t.Helper()
	tree := map[string]file{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		f := file{Mode: info.Mode(), ModTime: info.ModTime().UTC()}
		switch {
		case e.IsDir():
			below, err := os.ReadDir(path)
			if err != nil || len(below) > 0 {
				return err
			}
			f.ModTime = time.Time{}
		case info.Mode().Type() == fs.ModeSymlink:
			if f.Content, err = os.Readlink(path); err != nil {
				return err
			}
		case info.Mode().IsRegular():
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			f.Content = string(b)
		}
		tree[filepath.ToSlash(rel)] = f
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// writeTree makes the files of a tree below dir.
func writeTree(t testing.TB, dir string, tree map[string]file) {
	t.Helper()
	for _, path := range slices.Sorted(maps.Keys(tree)) {
		f := tree[path]
		name := filepath.Join(dir, filepath.FromSlash(path))
		must(t, os.MkdirAll(filepath.Dir(name), 0o755))
		switch f.Mode.Type() {
		case fs.ModeDir:
			must(t, os.Mkdir(name, 0o755))
			must(t, os.Chmod(name, f.Mode))
		case fs.ModeSymlink:
			must(t, os.Symlink(f.Content, name))
		default:
			must(t, os.WriteFile(name, []byte(f.Content), 0o600))
			must(t, os.Chmod(name, f.Mode))
			must(t, os.Chtimes(name, f.ModTime, f.ModTime))
		}
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var (
	names    = []string{"a", "b", "a-b", "a.txt", "B", "é", "x y", "日本", ".hidden", "a+", "~", "new\nline", "\xff\xfe", "a\\b"}
	contents = rapid.OneOf(rapid.StringN(0, 20, -1), rapid.Map(rapid.IntRange(0, 200_000), func(n int) string { return strings.Repeat("0123456789abcdef", n/16) }))
)

// treeGen makes trees without paths that leave each other no room.
func treeGen() *rapid.Generator[map[string]file] {
	return rapid.Custom(func(t *rapid.T) map[string]file {
		tree := map[string]file{}
		for range rapid.IntRange(0, 12).Draw(t, "files") {
			path := strings.Join(rapid.SliceOfN(rapid.SampledFrom(names), 1, 4).Draw(t, "path"), "/")
			if !fits(tree, path) {
				continue
			}
			f := file{Mode: 0o600 | fs.FileMode(rapid.Uint16Range(0, 0o177).Draw(t, "mode"))}
			switch rapid.IntRange(0, 5).Draw(t, "type") {
			case 0:
				f.Mode |= fs.ModeDir | 0o700
			case 1:
				f = file{Mode: fs.ModeSymlink | 0o777, Content: rapid.SampledFrom([]string{"a", "../a", "/etc/passwd", "nowhere", "."}).Draw(t, "target")}
			default:
				f.Content = contents.Draw(t, "content")
				f.ModTime = time.Unix(rapid.Int64Range(-1e9, 4e9).Draw(t, "seconds"), rapid.Int64Range(0, 999_999_999).Draw(t, "nanos")).UTC()
				if rapid.IntRange(0, 9).Draw(t, "special") == 0 {
					f.Mode |= fs.ModeSetgid | fs.ModeSticky
				}
			}
			tree[path] = f
		}
		return tree
	})
}

func fits(tree map[string]file, path string) bool {
	for p := range tree {
		if p == path || strings.HasPrefix(p, path+"/") || strings.HasPrefix(path, p+"/") {
			return false
		}
	}
	return true
}

// F1, F2, F3: any two trees, imported one after the other, are in the page as they are on disk, the
// second by one commit whose diff is the difference of the trees, and both come back.
func TestImportExportRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		page := newPage(t)
		var imported []map[string]file
		var commits []ledger.CommitID
		work, err := os.MkdirTemp(t.TempDir(), "")
		must(t, err)
		for i := range 2 {
			dir := filepath.Join(work, fmt.Sprint("in", i))
			must(t, os.Mkdir(dir, 0o755))
			writeTree(t, dir, treeGen().Draw(rt, "tree"))
			tree := readTree(t, dir)
			result, err := filetree.Import(t.Context(), page, dir, &filetree.ImportOptions{Mirror: true, Warn: func(w filetree.Warning) { rt.Errorf("warning: %v", w) }})
			if err != nil {
				rt.Fatal(err)
			}
			again, err := filetree.Import(t.Context(), page, dir, nil)
			if err != nil || again.Committed || again.Unchanged != int64(len(tree)) || again.Bytes != 0 {
				rt.Fatalf("second import of %d files: %+v, %v; want no commit and nothing read", len(tree), again, err)
			}
			imported, commits = append(imported, tree), append(commits, result.Commit)
		}
		for i, tree := range imported {
			out := filepath.Join(work, fmt.Sprint("out", i))
			if r := export(t, page, commits[i], out, &filetree.ExportOptions{Preserve: true}); r.Warnings > 0 || r.Files != int64(len(tree)) {
				rt.Fatalf("export: %+v, want %d files", r, len(tree))
			}
			if diff := cmp.Diff(tree, readTree(t, out)); diff != "" {
				rt.Fatalf("exported tree differs (-imported +exported):\n%s", diff)
			}
		}
		if diff := cmp.Diff(difference(imported[0], imported[1]), changes(t, page, commits[0], commits[1])); diff != "" {
			rt.Fatalf("diff of commits is not that of the trees (-want +got):\n%s", diff)
		}
	})
}

// keyed returns a tree with the paths that its files have in a page.
func keyed(tree map[string]file) map[string]file {
	all := map[string]file{}
	for path, f := range tree {
		if f.Mode.IsDir() {
			path += "/"
		}
		all[path] = f
	}
	return all
}

// difference is what diff must print.
func difference(a, b map[string]file) []string {
	a, b = keyed(a), keyed(b)
	lines := []string{}
	for path := range b {
		if _, ok := a[path]; !ok {
			lines = append(lines, path+" +")
		} else if !cmp.Equal(a[path], b[path]) {
			lines = append(lines, path+" ~")
		}
	}
	for path := range a {
		if _, ok := b[path]; !ok {
			lines = append(lines, path+" -")
		}
	}
	slices.SortFunc(lines, func(x, y string) int { return strings.Compare(x[:len(x)-2], y[:len(y)-2]) })
	return lines
}

func changes(t testing.TB, page *ledger.Page, from, to ledger.CommitID) []string {
	t.Helper()
	lines := []string{}
	for c, err := range filetree.Diff(t.Context(), page, from, to, nil) {
		must(t, err)
		lines = append(lines, fmt.Sprintf("%s %c", c.Path, c.Kind()))
	}
	return lines
}

func export(t testing.TB, page *ledger.Page, id ledger.CommitID, out string, o *filetree.ExportOptions) filetree.ExportResult {
	t.Helper()
	snap, err := page.At(t.Context(), id)
	must(t, err)
	defer snap.Close()
	r, err := filetree.Export(t.Context(), snap, out, o)
	must(t, err)
	return r
}

func put(t testing.TB, page *ledger.Page, entries map[string]string) {
	t.Helper()
	_, err := page.Update(t.Context(), func(tx *ledger.Tx) error {
		for k, v := range entries {
			if err := tx.Put(t.Context(), []byte(k), []byte(v)); err != nil {
				return err
			}
		}
		return nil
	})
	must(t, err)
}

// F4: whatever the keys and link targets are, nothing outside the target is made, changed or
// removed.
func TestExportStaysInside(t *testing.T) {
	link := string(filetree.Attributes{Type: filetree.Link}.Encode())
	directory := string(filetree.Attributes{Type: filetree.Directory, Mode: 0o700}.Encode())
	for name, entries := range map[string]map[string]string{
		"dots":             {"../up": "x", "a/../../up": "x", "..": "x", ".": "x", "a/..": "x", "./a": "x"},
		"absolute":         {"/abs": "x", "//abs": "x", "/": "x"},
		"odd":              {"": "x", "a//b": "x", "b/": "x", "c\x00d": "x", "\x00": "x", "\x00attr\x00": "x", "\x00attr": "x"},
		"long":             {strings.Repeat("n", 300): "x", strings.Repeat("d/", 2000) + "x": "x"},
		"through a link":   {"l": "..", "\x00attr\x00l": link, "l/up": "x"},
		"through a link 2": {"l": "../outside", "\x00attr\x00l": link, "l/file": "x", "l/new": "x"},
		"link to file":     {"l": "../outside/file", "\x00attr\x00l": link},
		"bad links":        {"l": "", "\x00attr\x00l": link, "m": "a\x00b", "\x00attr\x00m": link, "n": strings.Repeat("n", 5000), "\x00attr\x00n": link},
		"file and dir":     {"a": "x", "a/b": "x", "a/b/c": "x"},
		"directory key":    {"d/": "", "\x00attr\x00d/": directory, "d/e": "x", "f/": "x", "\x00attr\x00f/": directory},
		"bad attributes":   {"a": "x", "\x00attr\x00a": "nonsense", "b": "x", "\x00attr\x00b": strings.Repeat("x", 9999)},
		"only attributes":  {"\x00attr\x00a": link, "\x00attr\x00../b": link},
	} {
		for _, overwrite := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, overwrite %v", name, overwrite), func(t *testing.T) {
				work := t.TempDir()
				writeTree(t, work, map[string]file{"outside/file": {Mode: 0o644, Content: "precious"}})
				target := filepath.Join(work, "target")
				before := readTree(t, work)
				if overwrite {
					writeTree(t, target, map[string]file{
						"l": {Mode: fs.ModeSymlink, Content: "../outside"}, "a": {Mode: fs.ModeSymlink, Content: "../outside/file"}, "keep": {Mode: 0o600, Content: "kept"},
					})
				}
				page := newPage(t)
				put(t, page, entries)
				export(t, page, ledger.CommitID{}, target, &filetree.ExportOptions{Overwrite: overwrite})
				after := readTree(t, work)
				if f, ok := after["target/keep"]; overwrite && (!ok || f.Content != "kept") {
					t.Errorf("a file of the target that no key names is now %+v", f)
				}
				maps.DeleteFunc(after, func(path string, _ file) bool { return path == "target" || strings.HasPrefix(path, "target/") })
				if diff := cmp.Diff(before, after); diff != "" {
					t.Errorf("something outside the target has changed (-before +after):\n%s", diff)
				}
			})
		}
	}
}

// F5: each path that has no room is told once; the others are written.
func TestExportWarnings(t *testing.T) {
	page := newPage(t)
	put(t, page, map[string]string{"../up": "x", "a": "1", "a/b": "2", "fine": "3", "d/e": "4", "bad": "5", "\x00attr\x00bad": "nonsense"})
	var warned []string
	out := filepath.Join(t.TempDir(), "out")
	r := export(t, page, ledger.CommitID{}, out, &filetree.ExportOptions{Warn: func(w filetree.Warning) { warned = append(warned, w.Path) }})
	if diff := cmp.Diff([]string{"../up", "a/b", "bad"}, warned); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
	if r.Files != 4 || r.Warnings != 3 {
		t.Errorf("result is %+v, want 4 files and 3 warnings", r)
	}
	tree := readTree(t, out)
	for path, content := range map[string]string{"a": "1", "fine": "3", "d/e": "4", "bad": "5"} {
		if tree[path].Content != content || tree[path].Mode != 0o644 {
			t.Errorf("%s is %+v, want a file of mode 0644 with %q", path, tree[path], content)
		}
	}
}

func TestExportPrefixAndOverwrite(t *testing.T) {
	page := newPage(t)
	put(t, page, map[string]string{"a/1": "x", "a/2": "y", "b": "z"})
	out := filepath.Join(t.TempDir(), "out")
	export(t, page, ledger.CommitID{}, out, &filetree.ExportOptions{Prefix: []byte("a/")})
	if got := slices.Sorted(maps.Keys(readTree(t, out))); !slices.Equal(got, []string{"a/1", "a/2"}) {
		t.Errorf("exported %q", got)
	}
	snap, err := page.Snapshot(t.Context())
	must(t, err)
	defer snap.Close()
	if _, err := filetree.Export(t.Context(), snap, out, nil); !errors.Is(err, filetree.ErrNotEmpty) {
		t.Errorf("export to a directory that is not empty: %v, want ErrNotEmpty", err)
	}
	must(t, os.Remove(filepath.Join(out, "a/1")))
	must(t, os.Mkdir(filepath.Join(out, "a/1"), 0o755)) // an empty directory where a file must be is not removed
	var warned []string
	o := &filetree.ExportOptions{Overwrite: true, Warn: func(w filetree.Warning) { warned = append(warned, w.Path) }}
	_, err = filetree.Export(t.Context(), snap, out, o)
	if must(t, err); !slices.Equal(warned, []string{"a/1"}) {
		t.Errorf("warned of %q, want a/1", warned)
	}
}

// A canceled export leaves no half file, and a canceled import no commit.
func TestCanceled(t *testing.T) {
	page := newPage(t)
	dir := t.TempDir()
	for i := range 60 {
		must(t, os.WriteFile(filepath.Join(dir, fmt.Sprint(i)), bytes.Repeat([]byte{byte(i)}, 300_000), 0o600))
	}
	head, err := page.Resolve(t.Context(), "HEAD")
	must(t, err)
	for _, at := range []int64{0, 1, 30} {
		ctx, cancel := context.WithCancel(t.Context())
		_, err := filetree.Import(ctx, page, dir, &filetree.ImportOptions{Progress: func(p ledger.Progress) {
			if p.Done >= at {
				cancel()
			}
		}})
		cancel()
		if !errors.Is(err, context.Canceled) {
			t.Errorf("import canceled at %d: %v", at, err)
		}
		if now, err := page.Resolve(t.Context(), "HEAD"); err != nil || now != head {
			t.Errorf("head is %v, %v after a canceled import", now, err)
		}
	}
	_, err = filetree.Import(t.Context(), page, dir, nil)
	must(t, err)
	snap, err := page.Snapshot(t.Context())
	must(t, err)
	defer snap.Close()
	ctx, cancel := context.WithCancel(t.Context())
	out := filepath.Join(t.TempDir(), "out")
	_, err = filetree.Export(ctx, snap, out, &filetree.ExportOptions{Progress: func(p ledger.Progress) {
		if p.Bytes >= 1_000_000 {
			cancel()
		}
	}})
	if cancel(); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled export: %v", err)
	}
	for path, f := range readTree(t, out) {
		if len(f.Content) != 300_000 {
			t.Errorf("%s has %d bytes", path, len(f.Content))
		}
	}
}
