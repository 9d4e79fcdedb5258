//go:build unix

package filetree_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/filetree"
	"golang.org/x/sys/unix"
)

func init() {
	unix.Umask(0o022) // that of most machines: tests look at modes
}

// modesOf returns the modes of everything below dir, and of dir under ".".
func modesOf(t *testing.T, dir string) map[string]fs.FileMode {
	t.Helper()
	modes := map[string]fs.FileMode{}
	must(t, filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		must(t, err)
		info, err := e.Info()
		must(t, err)
		modes[rel] = info.Mode() &^ fs.ModeDir
		return nil
	}))
	return modes
}

// writeModes makes files, and directories where a name ends with a slash, with the modes given.
func writeModes(t *testing.T, dir string, modes map[string]fs.FileMode) {
	t.Helper()
	for name := range modes {
		path := filepath.Join(dir, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		if name[len(name)-1] == '/' {
			must(t, os.MkdirAll(path, 0o755))
		} else {
			must(t, os.WriteFile(path, []byte(name), 0o600))
		}
	}
	for name, mode := range modes {
		must(t, os.Chmod(filepath.Join(dir, name), mode))
	}
}

// withUmask runs fn under a umask.
func withUmask(mask int, fn func()) {
	defer unix.Umask(unix.Umask(mask))
	fn()
}

// F3, F6: without Preserve special bits are dropped and the umask applies, with it modes are what
// they were.
func TestExportModes(t *testing.T) {
	page, dir := newPage(t), filepath.Join(t.TempDir(), "in")
	out, whole := filepath.Join(t.TempDir(), "out"), filepath.Join(t.TempDir(), "whole")
	t.Cleanup(func() {
		for _, tree := range []string{dir, out, whole} {
			must(t, os.Chmod(filepath.Join(tree, "readonly"), 0o755)) // so that it can be removed
		}
	})
	modes := map[string]fs.FileMode{
		"program": 0o755 | fs.ModeSetuid, "group": 0o775 | fs.ModeSetgid, "open": 0o666, "secret": 0o400,
		"empty/": 0o777 | fs.ModeSticky, "private/": 0o700, "private/key": 0o600, "shared/": 0o775 | fs.ModeSetgid, "shared/below/f": 0o644,
		"readonly/": 0o555, "readonly/f": 0o644,
	}
	want := map[string]fs.FileMode{
		".": 0o700, "private/key": 0o600, "shared": 0o750, "shared/below": 0o750, "shared/below/f": 0o640, "shared/link": fs.ModeSymlink | 0o777,
		"readonly": 0o550, "readonly/f": 0o640, "program": 0o750, "group": 0o750, "open": 0o640, "secret": 0o400, "empty": 0o750, "private": 0o700,
		"by-hand": 0o640, "made": 0o750, "made/by-hand": 0o640,
	}
	if os.Geteuid() == 0 { // others cannot read it
		modes["none"], want["none"] = 0, 0
	}
	writeModes(t, dir, modes)
	must(t, os.Symlink("f", filepath.Join(dir, "shared/link")))
	must(t, os.Chmod(dir, 0o700))
	importTree(t, page, dir, filetree.ImportOptions{})
	put(t, page, map[string]string{"by-hand": "x", "made/by-hand": "x"})
	before := modesOf(t, dir)
	withUmask(0o027, func() { export(t, page, ledger.CommitID{}, out, nil) })
	got := modesOf(t, out)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("modes with umask 027 (-want +got):\n%s", diff)
	}
	withUmask(0o027, func() {
		export(t, page, ledger.CommitID{}, whole, &filetree.ExportOptions{Preserve: true})
	})
	got = modesOf(t, whole)
	for name, want := range before {
		if got[name] != want {
			t.Errorf("%s has mode %v with Preserve, want %v", name, got[name], want)
		}
	}
}

// An export over an earlier one works, also where that has made directories which their owner may
// not write.
func TestExportOverwriteTwice(t *testing.T) {
	page, dir := newPage(t), t.TempDir()
	writeModes(t, dir, map[string]fs.FileMode{"empty/": 0o500, "full/file": 0o644, "full/link": 0o644})
	must(t, os.Remove(filepath.Join(dir, "full/link")))
	must(t, os.Symlink("file", filepath.Join(dir, "full/link")))
	importTree(t, page, dir, filetree.ImportOptions{})
	out := filepath.Join(t.TempDir(), "out")
	for _, preserve := range []bool{false, true} {
		for range 2 {
			var warned []string
			r := export(t, page, ledger.CommitID{}, out, &filetree.ExportOptions{Overwrite: true, Preserve: preserve, Warn: func(w filetree.Warning) { warned = append(warned, w.Error()) }})
			if r.Warnings > 0 || r.Files != 3 {
				t.Fatalf("result %+v, warnings %q", r, warned)
			}
			if got := modesOf(t, out)["empty"]; got != 0o500 {
				t.Errorf("empty directory has mode %v", got)
			}
		}
	}
}

// F1, F2: the mode of a directory that is not empty is an attribute as that of a file is: a change
// of it is one commit, listed as one change; the directory itself is neither counted nor listed.
func TestImportDirectoryModes(t *testing.T) {
	page, dir := newPage(t), t.TempDir()
	writeModes(t, dir, map[string]fs.FileMode{"d/": 0o700, "d/f": 0o644, "e/": 0o755, "x": 0o644})
	commits := []ledger.CommitID{}
	step := func(want filetree.Result, diff ...string) {
		t.Helper()
		r, _ := importTree(t, page, dir, filetree.ImportOptions{})
		if len(commits) > 0 {
			if got := changes(t, page, commits[len(commits)-1], r.Commit); !cmp.Equal(got, diff) {
				t.Errorf("changes are %q, want %q", got, diff)
			}
		}
		commits = append(commits, r.Commit)
		if r.Commit, r.Bytes = (ledger.CommitID{}), 0; r != want {
			t.Errorf("result %+v, want %+v", r, want)
		}
	}
	step(filetree.Result{Added: 3, Committed: true})
	must(t, os.Chmod(filepath.Join(dir, "d"), 0o750))
	step(filetree.Result{Changed: 1, Unchanged: 3, Committed: true}, "d/ ~")
	must(t, os.Chmod(dir, 0o711))
	step(filetree.Result{Changed: 1, Unchanged: 3, Committed: true}, " ~")
	must(t, os.WriteFile(filepath.Join(dir, "e", "new"), nil, 0o644))
	step(filetree.Result{Added: 1, Removed: 1, Unchanged: 2, Committed: true}, "e/ -", "e/new +")
	must(t, os.Remove(filepath.Join(dir, "d", "f")))
	step(filetree.Result{Added: 1, Removed: 1, Unchanged: 2, Committed: true}, "d/ +", "d/f -")
	must(t, os.RemoveAll(filepath.Join(dir, "e")))
	step(filetree.Result{Removed: 1, Unchanged: 2, Committed: true}, "e/new -")
	must(t, os.Mkdir(filepath.Join(dir, "n"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "n", "f"), nil, 0o644))
	step(filetree.Result{Added: 1, Unchanged: 2, Committed: true}, "n/f +")
	step(filetree.Result{Unchanged: 3}, []string{}...)

	// A commit that is restored has the modes of its directories.
	_, err := filetree.Restore(t.Context(), page, commits[0], []byte("d"), "")
	must(t, err)
	out := filepath.Join(t.TempDir(), "out")
	export(t, page, ledger.CommitID{}, out, nil)
	if got := modesOf(t, out); got["d"] != 0o700 || got["d/f"] != 0o644 || got["."] != 0o711 {
		t.Errorf("modes after restoring are %v", got)
	}
}

// A value that was put at the path of a directory is no part of the tree: it stays, and is told
// when there is no room for both.
func TestValueAtTheDirectory(t *testing.T) {
	page, dir := newPage(t), t.TempDir()
	writeModes(t, dir, map[string]fs.FileMode{"d/": 0o700, "d/f": 0o644})
	importTree(t, page, dir, filetree.ImportOptions{})
	put(t, page, map[string]string{"d": "by hand", "": "by hand too"})
	must(t, os.Chmod(filepath.Join(dir, "d"), 0o750))
	importTree(t, page, dir, filetree.ImportOptions{})
	if got := keys(t, page); !cmp.Equal(got, []string{"", "d", "d/f"}) {
		t.Errorf("page has %q", got)
	}
	var warned []string
	out := filepath.Join(t.TempDir(), "out")
	export(t, page, ledger.CommitID{}, out, &filetree.ExportOptions{Warn: func(w filetree.Warning) { warned = append(warned, w.Path) }})
	if !cmp.Equal(warned, []string{"", "d/f"}) || modesOf(t, out)["d"] != 0o644 {
		t.Errorf("warned of %q, modes %v", warned, modesOf(t, out))
	}
}
