package filetree_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/filetree"
)

const benchFiles = 10_000

// sourceTree copies the first 10 000 files of the Go distribution's sources into a directory and returns it with their size.
func sourceTree(b *testing.B) (dir string, size int64) {
	b.Helper()
	root := filepath.Join(runtime.GOROOT(), "src")
	dir = filepath.Join(b.TempDir(), "tree")
	n := 0
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		to := filepath.Join(dir, rel)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		size += int64(len(content))
		if n++; n == benchFiles {
			return os.WriteFile(to, content, 0o644)
		}
		if n > benchFiles {
			return fs.SkipAll
		}
		return os.WriteFile(to, content, 0o644)
	})
	if err != nil || n < benchFiles {
		b.Skipf("no tree of %d files at %s: %d, %v", benchFiles, root, n, err)
	}
	return dir, size
}

// BenchmarkImport imports 10 000 source files into a new repository, durable at the end, beside cp -r and sync of the same
// tree, and imports it once more unchanged:
//
//	go test ./filetree -run '^$' -bench Import -benchtime 5x
func BenchmarkImport(b *testing.B) {
	dir, size := sourceTree(b)
	out := b.TempDir()
	sync := func() {
		if err := exec.Command("sync").Run(); err != nil {
			b.Skip(err)
		}
	}
	n := 0
	fresh := func() string {
		n++
		return filepath.Join(out, fmt.Sprint(n))
	}
	b.Run("cp", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			b.StopTimer()
			to := fresh()
			sync()
			b.StartTimer()
			if msg, err := exec.Command("cp", "-r", dir, to).CombinedOutput(); err != nil {
				b.Skip(string(bytes.TrimSpace(msg)))
			}
			sync()
			b.StopTimer()
			if err := os.RemoveAll(to); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
	})
	b.Run("import", func(b *testing.B) {
		b.SetBytes(size)
		b.ReportAllocs()
		for b.Loop() {
			b.StopTimer()
			to := fresh()
			sync()
			b.StartTimer()
			importOnce(b, to, dir)
			b.StopTimer()
			if err := os.RemoveAll(to); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
		}
	})
	b.Run("unchanged", func(b *testing.B) {
		to := fresh()
		importOnce(b, to, dir)
		b.SetBytes(size)
		b.ReportAllocs()
		for b.Loop() {
			importOnce(b, to, dir)
		}
	})
}

// importOnce opens the repository, imports dir, and closes it.
func importOnce(b *testing.B, repoDir, dir string) {
	b.Helper()
	ctx := b.Context()
	repo, err := ledger.Open(ctx, repoDir, nil)
	if err != nil {
		b.Fatal(err)
	}
	l, err := repo.Ledger("src")
	if err != nil {
		b.Fatal(err)
	}
	page, err := l.RootPage(ctx)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := filetree.Import(ctx, page, dir, nil); err != nil {
		b.Fatal(err)
	}
	if err := page.Close(); err != nil {
		b.Fatal(err)
	}
	if err := repo.Close(); err != nil {
		b.Fatal(err)
	}
}
