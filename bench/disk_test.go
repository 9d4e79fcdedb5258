package bench

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// filesIn returns the regular files in and below dir.
func filesIn(b *testing.B, dir string) (names []string) {
	b.Helper()
	must(b, filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			names = append(names, name)
		}
		return err
	}))
	return names
}

// sizes returns the lengths of the files in and below dir, and what they take on the disk.
func sizes(b *testing.B, dir string) (length, onDisk int64) {
	b.Helper()
	for _, name := range filesIn(b, dir) {
		fi, err := os.Stat(name)
		must(b, err)
		length += fi.Size()
		onDisk += allocated(fi)
	}
	return length, onDisk
}

// copied returns a copy of a directory that is nobody else's, durable, so that its write-back
// disturbs nothing later.
func copied(b *testing.B, dir string) string {
	b.Helper()
	to := filepath.Join(tempDir(b), "copy")
	must(b, os.CopyFS(to, os.DirFS(dir)))
	for _, name := range filesIn(b, to) {
		f, err := os.Open(name)
		must(b, err)
		must(b, f.Sync())
		must(b, f.Close())
	}
	return to
}

// appender writes to the end of a file and syncs it.
type appender struct {
	f   *os.File
	end int64
}

func newAppender(b *testing.B, dir string) *appender {
	b.Helper()
	f, err := os.CreateTemp(dir, "append-")
	must(b, err)
	b.Cleanup(func() { f.Close() })
	return &appender{f: f}
}

func (a *appender) append(b *testing.B, p []byte) {
	n, err := a.f.WriteAt(p, a.end)
	must(b, err)
	a.end += int64(n)
}

func (a *appender) appendAndSync(b *testing.B, p []byte) {
	a.append(b, p)
	must(b, fdatasync(a.f))
}
