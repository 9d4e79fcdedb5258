package filetree

import (
	"errors"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ledgerd/ledger"
)

// F5: what the page has of a directory that could not be read is not removed, and its neighbours
// are.
func TestUnreadableDirectoryIsKept(t *testing.T) {
	ctx := t.Context()
	repo, err := ledger.Open(ctx, "", &ledger.Options{InMemory: true})
	if err != nil {
		t.Fatal(err)
	}
	defer repo.Close()
	page, err := repo.OpenPage(ctx, ledger.PageRef{Ledger: "tree"})
	if err != nil {
		t.Fatal(err)
	}
	defer page.Close()
	_, err = page.Update(ctx, func(tx *ledger.Tx) error {
		for _, path := range []string{"a", "dir", "dir-x", "dir/sub/x", "dir/x", "dirt/x", "z"} {
			if err := tx.Put(ctx, AttributesKey([]byte(path)), Attributes{Type: File}.Encode()); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	base, err := page.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer base.Close()
	var removed []string
	w := &walker{base: base, kept: map[string]bool{"dir": true}, send: func(a action) error {
		if a.remove {
			removed = append(removed, a.path)
		}
		return nil
	}}
	next, stop := iter.Pull2(base.Scan(ctx, ledger.ScanOptions{Prefix: []byte(attributesPrefix)}))
	defer stop()
	w.next = next
	if _, err := w.advance(ctx, "", true); err != nil {
		t.Fatal(err)
	}
	if want := []string{"a", "dir-x", "dirt/x", "z"}; !slices.Equal(removed, want) {
		t.Errorf("removed %q, want %q", removed, want)
	}
}

// A short file that is another one when it is opened, or has another length or time when it has
// been read, is not taken.
func TestReadNoticesChanges(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "f")
	stat := func() fs.FileInfo {
		info, err := os.Lstat(name)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	write := func(content string) {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for what, change := range map[string]func(){
		"longer":  func() { write("content and more") },
		"shorter": func() { write("c") },
		"replaced": func() {
			if err := os.WriteFile(name+"2", []byte("content"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(name+"2", name); err != nil {
				t.Fatal(err)
			}
		},
		"link": func() {
			if err := errors.Join(os.WriteFile(name+"2", []byte("content"), 0o600), os.Remove(name), os.Symlink("f2", name)); err != nil {
				t.Fatal(err)
			}
		},
	} {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		write("content")
		info := stat()
		a := action{path: "f", attributes: Attributes{Type: File}, size: info.Size(), info: info}
		change()
		if err := a.read(root, "f"); !errors.Is(err, errChanged) {
			t.Errorf("%s: read gives %v, want errChanged", what, err)
		}
		a.release()
	}
}
