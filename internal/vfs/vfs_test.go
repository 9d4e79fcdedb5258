package vfs_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/vfs"
	"github.com/ledgerd/ledger/internal/vfs/vfstest"
)

// anyTime lets infos be equal that differ by when the file was written.
var anyTime = cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Modified" }, cmp.Ignore())

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantIs(t *testing.T, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("error %v, want one that is %v", err, target)
	}
}

func create(t testing.TB, fsys vfs.FS, name, content string) vfs.File {
	t.Helper()
	f, err := fsys.Create(name)
	must(t, err)
	_, err = f.WriteAt([]byte(content), 0)
	must(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// eachFS runs a test on the machine's file system, on Mem, and on the Mem of tests, alone and
// behind both wrappers.
func eachFS(t *testing.T, fn func(t *testing.T, fsys vfs.FS, dir string)) {
	t.Run("os", func(t *testing.T) { fn(t, vfs.OS, t.TempDir()) })
	for name, fsys := range map[string]vfs.FS{"mem": vfs.NewMem(), "crashing": vfstest.NewMem()} {
		t.Run(name, func(t *testing.T) {
			must(t, fsys.MkdirAll("/a/b"))
			fn(t, fsys, "/a/b")
		})
	}
	t.Run("wrapped", func(t *testing.T) {
		w := vfstest.NewHooked(vfstest.NewFaulty(vfstest.NewMem(), func(vfstest.Op) error { return nil }), func(vfstest.Op) {})
		must(t, w.MkdirAll("a/b"))
		fn(t, w, "a/b")
	})
}

func TestFiles(t *testing.T) {
	eachFS(t, func(t *testing.T, fsys vfs.FS, dir string) {
		name := filepath.Join(dir, "f")
		_, err := fsys.Open(name)
		wantIs(t, err, fs.ErrNotExist)
		f := create(t, fsys, name, "hello")
		_, err = fsys.Create(name)
		wantIs(t, err, fs.ErrExist)
		must(t, f.Preallocate(1<<16))
		_, err = f.WriteAt([]byte("x"), 5000)
		must(t, err)
		must(t, f.Sync())
		must(t, fsys.SyncDir(dir))
		size, err := f.Size()
		must(t, err)
		if size != 5001 {
			t.Fatalf("size %d, want 5001", size)
		}
		must(t, f.Truncate(3))
		must(t, f.Truncate(6))
		got, err := vfs.ReadFile(fsys, name, 100)
		must(t, err)
		if string(got) != "hel\x00\x00\x00" {
			t.Fatalf("content %q", got)
		}
		r, err := fsys.OpenRead(name)
		must(t, err)
		if _, err := r.WriteAt([]byte("y"), 0); err == nil {
			t.Fatal("a file open for reading was written")
		}
		n, err := r.ReadAt(make([]byte, 10), 2)
		if n != 4 || err != io.EOF {
			t.Fatalf("read %d bytes, %v; want 4, EOF", n, err)
		}
		must(t, r.Close())
		_, err = r.ReadAt(make([]byte, 1), 0)
		wantIs(t, err, fs.ErrClosed)
		_, err = vfs.ReadFile(fsys, name, 5)
		wantIs(t, err, base.ErrTooLarge)
	})
}

func TestNames(t *testing.T) {
	eachFS(t, func(t *testing.T, fsys vfs.FS, dir string) {
		in := func(name string) string { return filepath.Join(dir, name) }
		must(t, vfs.WriteFile(fsys, in("a"), []byte("1")))
		wantIs(t, vfs.WriteFile(fsys, in("a"), nil), fs.ErrExist)
		must(t, vfs.WriteFile(fsys, in("b"), []byte("22")))
		must(t, fsys.Rename(in("b"), in("a")))
		must(t, fsys.MkdirAll(in("d/e/f")))
		must(t, fsys.MkdirAll(in("d")))
		must(t, vfs.WriteFile(fsys, in("d/e/g"), nil))
		got, err := fsys.ReadDir(dir)
		must(t, err)
		if d := cmp.Diff([]vfs.Info{{Name: "a", Size: 2}, {Name: "d", Dir: true}}, got, anyTime); d != "" {
			t.Fatal(d)
		}
		if err := fsys.Remove(in("d")); err == nil {
			t.Fatal("a directory that is not empty was removed")
		}
		if err := fsys.MkdirAll(in("a/x")); err == nil {
			t.Fatal("a directory was made below a file")
		}
		must(t, fsys.RemoveAll(in("d")))
		must(t, fsys.RemoveAll(in("d")))
		_, err = fsys.Stat(in("d"))
		wantIs(t, err, fs.ErrNotExist)
		wantIs(t, fsys.Remove(in("d")), fs.ErrNotExist)
		info, err := fsys.Stat(in("a"))
		must(t, err)
		if d := cmp.Diff(vfs.Info{Name: "a", Size: 2}, info, anyTime); d != "" {
			t.Fatal(d)
		}
		must(t, fsys.Remove(in("a")))
		_, err = fsys.ReadDir(in("a"))
		wantIs(t, err, fs.ErrNotExist)
	})
}

// TestMemIsAFile compares a file of a Mem with a slice of bytes.
func TestMemIsAFile(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := vfs.NewMem()
		f, err := m.Create("f")
		must(t, err)
		var want []byte
		for range rapid.IntRange(1, 20).Draw(rt, "ops") {
			if rapid.Bool().Draw(rt, "truncate") {
				size := rapid.IntRange(0, 20000).Draw(rt, "size")
				must(t, f.Truncate(int64(size)))
				want = slices.Grow(want[:min(size, len(want))], size)
				clear(want[len(want):size])
				want = want[:size]
			} else {
				off := rapid.IntRange(0, 12000).Draw(rt, "off")
				b := bytes.Repeat([]byte{byte(rapid.IntRange(1, 255).Draw(rt, "byte"))}, rapid.IntRange(1, 6000).Draw(rt, "len"))
				_, err := f.WriteAt(b, int64(off))
				must(t, err)
				want = append(want, make([]byte, max(0, off+len(b)-len(want)))...)
				copy(want[off:], b)
			}
			got, err := vfs.ReadFile(m, "f", 1<<20)
			must(t, err)
			if !bytes.Equal(got, want) {
				rt.Fatalf("%d bytes, want %d", len(got), len(want))
			}
		}
	})
}

func TestMemConcurrent(t *testing.T) {
	m := vfs.NewMem()
	var wg sync.WaitGroup
	for g := range 4 {
		name := string(rune('a' + g))
		wg.Go(func() {
			f, err := m.Create(name)
			if err != nil {
				t.Error(err)
				return
			}
			for i := range 50 {
				_, _ = f.WriteAt([]byte{byte(i)}, int64(i)*700)
				_ = f.Sync()
				_ = m.SyncDir("/")
				_, _ = vfs.ReadFile(m, "/"+name, 1<<20)
			}
		})
	}
	wg.Wait()
}
