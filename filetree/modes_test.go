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

// F3, F6: without Preserve special bits are dropped and the umask applies, with it modes are what they were.
func TestExportModes(t *testing.T) {
	page, dir := newPage(t), filepath.Join(t.TempDir(), "in")
	writeModes(t, dir, map[string]fs.FileMode{
		"program": 0o755 | fs.ModeSetuid, "group": 0o775 | fs.ModeSetgid, "open": 0o666, "secret": 0o400, "none": 0,
		"empty/": 0o777 | fs.ModeSticky, "private/": 0o700,
	})
	importTree(t, page, dir, filetree.ImportOptions{})
	put(t, page, map[string]string{"by-hand": "x", "made/by-hand": "x"})
	before := modesOf(t, dir)
	out, whole := filepath.Join(t.TempDir(), "out"), filepath.Join(t.TempDir(), "whole")
	withUmask(0o027, func() { export(t, page, ledger.CommitID{}, out, nil) })
	got := modesOf(t, out)
	want := map[string]fs.FileMode{
		".": 0o750, "program": 0o750, "group": 0o750, "open": 0o640, "secret": 0o400, "none": 0, "empty": 0o750, "private": 0o700,
		"by-hand": 0o640, "made": 0o750, "made/by-hand": 0o640,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("modes with umask 027 (-want +got):\n%s", diff)
	}
	withUmask(0o027, func() {
		export(t, page, ledger.CommitID{}, whole, &filetree.ExportOptions{Preserve: true})
	})
	got = modesOf(t, whole)
	for name, want := range before {
		if name != "." && got[name] != want {
			t.Errorf("%s has mode %v with Preserve, want %v", name, got[name], want)
		}
	}
}

// An export over an earlier one works, also where that has made directories which their owner may not write.
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
