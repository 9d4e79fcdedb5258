package filetree_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/filetree"
)

// makeFiles makes files with their names as content in a new directory.
func makeFiles(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	addFiles(t, dir, names...)
	return dir
}

func addFiles(t *testing.T, dir string, names ...string) {
	t.Helper()
	for _, name := range names {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(name), 0o644))
	}
}

// refused imports what must be refused, and returns why. The page stays as it is.
func refused(t *testing.T, page *ledger.Page, path string) *filetree.RemovalError {
	t.Helper()
	before, err := page.Resolve(t.Context(), "HEAD")
	must(t, err)
	read := int64(0)
	r, err := filetree.Import(t.Context(), page, path, &filetree.ImportOptions{Progress: func(p ledger.Progress) { read = p.Bytes }})
	removal, ok := errors.AsType[*filetree.RemovalError](err)
	if !ok || !errors.Is(err, ledger.ErrConflict) {
		t.Fatalf("import gives %+v, %v; want a *RemovalError", r, err)
	}
	if after, err := page.Resolve(t.Context(), "HEAD"); err != nil || after != before {
		t.Errorf("the refused import has made a commit: %v", err)
	}
	if read > 0 {
		t.Errorf("%d bytes were read for an import that is refused", read)
	}
	return removal
}

// F7: another directory is refused when anything would go or be written over, before a file of it
// is read.
func TestImportOfAnotherDirectory(t *testing.T) {
	page := newPage(t)
	first, second := makeFiles(t, "a", "b", "c", "d"), makeFiles(t, "a", "b", "c", "e")
	importTree(t, page, first, filetree.ImportOptions{})
	got := refused(t, page, second)
	want := &filetree.RemovalError{Reason: fmt.Sprintf("the page was imported from %q", first), Removed: 1, Changed: 3, Known: 4, Paths: []string{"d"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("refused with (-want +got):\n%s", diff)
	}

	r, _ := importTree(t, page, second, filetree.ImportOptions{NoDelete: true})
	if r.Added != 1 || r.Changed != 3 || r.Removed != 0 {
		t.Errorf("import without deletions gives %+v", r)
	}
	if got := keys(t, page); !cmp.Equal(got, []string{"a", "b", "c", "d", "e"}) {
		t.Errorf("page has %q", got)
	}
	for _, dir := range []string{first, second} { // it is the page of neither now
		if got := refused(t, page, dir); got.Reason != "the page was imported from several places" {
			t.Errorf("refused since %s", got.Reason)
		}
	}
	r, _ = importTree(t, page, second, filetree.ImportOptions{Mirror: true})
	if r.Removed != 1 {
		t.Errorf("mirror gives %+v", r)
	}
	r, _ = importTree(t, page, second, filetree.ImportOptions{})
	if r.Committed {
		t.Errorf("another import gives %+v", r)
	}
	refused(t, page, first)
}

// A directory that only adds to the page may be another.
func TestImportOfALargerDirectory(t *testing.T) {
	page := newPage(t)
	first := makeFiles(t, "a", "b")
	importTree(t, page, first, filetree.ImportOptions{})
	second := filepath.Join(t.TempDir(), "moved")
	must(t, os.Rename(first, second))
	if r, _ := importTree(t, page, second, filetree.ImportOptions{}); r.Committed {
		t.Errorf("an equal directory gives %+v", r)
	}
	addFiles(t, second, "c")
	if r, _ := importTree(t, page, second, filetree.ImportOptions{}); r.Added != 1 {
		t.Errorf("a larger directory gives %+v", r)
	}
	must(t, os.Remove(filepath.Join(second, "c"))) // it is the page's directory now
	if r, _ := importTree(t, page, second, filetree.ImportOptions{}); r.Removed != 1 {
		t.Errorf("a smaller directory gives %+v", r)
	}
}

// F7: what is missing in a directory is refused when that is more than half, or everything.
func TestImportOfAVanishedTree(t *testing.T) {
	page := newPage(t)
	names := []string{"a", "b", "c/1", "c/2", "d"}
	dir := makeFiles(t, names...)
	importTree(t, page, dir, filetree.ImportOptions{})
	put(t, page, map[string]string{"by": "hand", "by2": "hand"})
	must(t, os.RemoveAll(filepath.Join(dir, "c")))
	if r, _ := importTree(t, page, dir, filetree.ImportOptions{}); r.Removed != 2 {
		t.Errorf("two of five: %+v", r)
	}
	must(t, os.Remove(filepath.Join(dir, "a")))
	must(t, os.Remove(filepath.Join(dir, "b")))
	got := refused(t, page, dir)
	if got.Removed != 2 || got.Known != 3 || !cmp.Equal(got.Paths, []string{"a", "b"}) {
		t.Errorf("two of three: %+v", got)
	}
	must(t, os.Remove(filepath.Join(dir, "d")))
	if got := refused(t, page, dir); got.Reason != "there is nothing to import in it" || got.Removed != 3 {
		t.Errorf("an empty directory: %+v", got)
	}
	if r, _ := importTree(t, page, dir, filetree.ImportOptions{NoDelete: true}); r.Committed || r.Removed != 0 {
		t.Errorf("without deletions: %+v", r)
	}
	if r, _ := importTree(t, page, dir, filetree.ImportOptions{Mirror: true}); r.Removed != 3 {
		t.Errorf("mirror: %+v", r)
	}
	if got := keys(t, page); !cmp.Equal(got, []string{"by", "by2"}) {
		t.Errorf("page has %q", got)
	}
}

// A file that was imported by itself is not removed by the next import of the directory, nor a
// directory in its place.
func TestImportBesideSingleFiles(t *testing.T) {
	page := newPage(t)
	dir, single := makeFiles(t, "a", "b", "c"), makeFiles(t, "x", "a/below")
	importTree(t, page, dir, filetree.ImportOptions{})
	importTree(t, page, filepath.Join(single, "x"), filetree.ImportOptions{})
	if got := refused(t, page, dir); got.Removed != 1 || !cmp.Equal(got.Paths, []string{"x"}) {
		t.Errorf("refused with %+v", got)
	}
	importTree(t, page, single, filetree.ImportOptions{NoDelete: true})
	if got := keys(t, page); !cmp.Equal(got, []string{"a", "a/below", "b", "c", "x"}) {
		t.Errorf("page has %q", got)
	}
	if _, err := filetree.Import(t.Context(), page, dir, &filetree.ImportOptions{Mirror: true, NoDelete: true}); !errors.Is(err, ledger.ErrInvalid) {
		t.Errorf("both options: %v", err)
	}
}

// A directory that is filled is no removal, and what cannot be read is not missing.
func TestImportOfAFilledDirectory(t *testing.T) {
	page, dir := newPage(t), t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "empty"), 0o755))
	importTree(t, page, dir, filetree.ImportOptions{})
	addFiles(t, dir, "empty/now/full")
	if r, _ := importTree(t, page, dir, filetree.ImportOptions{}); r.Added != 1 {
		t.Errorf("import gives %+v", r)
	}
}
