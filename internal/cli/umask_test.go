//go:build linux || darwin

package cli_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestUmaskOfWrittenFiles writes a value and JSON lines to files: the umask applies to new files,
// and a file that is replaced keeps its mode.
func TestUmaskOfWrittenFiles(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o077))
	dir := t.TempDir()
	repo, value, lines := filepath.Join(dir, "r"), filepath.Join(dir, "value"), filepath.Join(dir, "lines.jsonl")
	want := func(path string, mode os.FileMode) {
		t.Helper()
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode() != mode {
			t.Errorf("%s has mode %v, want %v", filepath.Base(path), info.Mode(), mode)
		}
	}
	do(t, 0, "", "--dir", repo, "init")
	do(t, 0, "", "--dir", repo, "put", "notes", "k", "v")
	do(t, 0, "", "--dir", repo, "get", "notes", "k", "-o", value)
	want(value, 0o600)
	do(t, 0, "", "--dir", repo, "export", "notes", lines)
	want(lines, 0o600)
	if err := os.Chmod(value, 0o644); err != nil {
		t.Fatal(err)
	}
	do(t, 0, "", "--dir", repo, "get", "notes", "k", "-o", value)
	want(value, 0o644)
}
