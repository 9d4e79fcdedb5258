package bench

import (
	"bytes"
	"go/build"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// BenchmarkImport10000Files imports a tree of 10 000 files of Go source into a new repository with
// the built command. Against it, the tree is copied with cp -r, and sync -f brings the copy's file
// system to the disk. The tree itself is in the page cache.
func BenchmarkImport10000Files(b *testing.B) {
	for _, tool := range []string{"cp", "sync", "go"} {
		if _, err := exec.LookPath(tool); err != nil {
			b.Skipf("no %s here", tool)
		}
	}
	bin := filepath.Join(tempDir(b), "ledgerd")
	command(b, "..", "go", "build", "-o", bin, "./cmd/ledgerd")
	tree := filepath.Join(tempDir(b), "tree")
	files, size := copySources(b, tree, scaled(10_000, 100))
	command(b, ".", "sync", "-f", tree)
	var processor samples
	ours := func() time.Duration {
		dir := tempDir(b)
		command(b, ".", "sync", "-f", dir)
		return timed(func() {
			processor.add(command(b, ".", bin, "--dir", filepath.Join(dir, "repo"), "import", "src", tree))
		})
	}
	theirs := func() time.Duration {
		dir := tempDir(b)
		command(b, ".", "sync", "-f", dir)
		return timed(func() {
			command(b, ".", "cp", "-r", tree, filepath.Join(dir, "copy"))
			command(b, ".", "sync", "-f", dir)
		})
	}
	var p pair
	for b.Loop() {
		p.run(5, ours, theirs)
	}
	report(b, map[string]float64{
		"ratio": p.ratio(), "import-ms": ms(p.ours.median()), "cp+sync-ms": ms(p.theirs.median()),
		"processor-ms": ms(processor.median()),
		"files":        float64(files), "MB": float64(size) / 1e6,
	})
}

// command runs a program to its end and returns what it has used of the processors.
func command(b *testing.B, dir, name string, args ...string) time.Duration {
	b.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		b.Fatalf("%s %v: %v\n%s", name, args, err, &out)
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}

// copySources makes a tree of up to most files of the Go tree and, when those are fewer, of the
// module cache.
func copySources(b *testing.B, to string, most int) (files int, size int64) {
	b.Helper()
	root, cache := build.Default.GOROOT, filepath.Join(build.Default.GOPATH, "pkg", "mod")
	for _, from := range []struct{ dir, as string }{{filepath.Join(root, "src"), "src"}, {filepath.Join(root, "test"), "test"}, {cache, "mod"}} {
		_ = filepath.WalkDir(from.dir, func(name string, e fs.DirEntry, err error) error {
			if files == most {
				return fs.SkipAll
			}
			if err != nil || !e.Type().IsRegular() {
				return nil // what cannot be read is left out
			}
			content, err := os.ReadFile(name)
			if err != nil {
				return nil
			}
			rel, err := filepath.Rel(from.dir, name)
			must(b, err)
			target := filepath.Join(to, from.as, rel)
			must(b, os.MkdirAll(filepath.Dir(target), 0o755))
			must(b, os.WriteFile(target, content, 0o644))
			files, size = files+1, size+int64(len(content))
			return nil
		})
	}
	if files < min(most, 1000) {
		b.Skip("no Go source tree here")
	}
	return files, size
}
