package spool_test

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/internal/spool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func readAll(t interface{ Fatal(args ...any) }, s *spool.Spool) []byte {
	r, err := s.Reader()
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func files(t interface{ Fatal(args ...any) }, dir string) []os.DirEntry {
	list, err := os.ReadDir(dir)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return list
}

// TestSpoolGivesWhatItTook: what was written is read, any number of times and with more written
// between, and stands in a file if and only if there is a directory and it is longer than the
// limit. No file is left.
func TestSpoolGivesWhatItTook(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "when needed")
	rapid.Check(t, func(t *rapid.T) {
		in := dir
		if rapid.Bool().Draw(t, "no directory") {
			in = ""
		}
		limit := rapid.IntRange(0, 200).Draw(t, "limit")
		s := spool.New(in, "some-*", limit)
		var want []byte
		for range rapid.IntRange(0, 8).Draw(t, "steps") {
			p := bytes.Repeat([]byte{byte(len(want))}, rapid.SampledFrom([]int{0, 1, 70, 300, 70 << 10}).Draw(t, "bytes"))
			if n, err := s.Write(p); err != nil || n != len(p) {
				t.Fatalf("wrote %d of %d bytes: %v", n, len(p), err)
			}
			want = append(want, p...)
			clear(p)
			if rapid.Bool().Draw(t, "read") {
				for range 2 {
					if got := readAll(t, s); !bytes.Equal(got, want) {
						t.Fatalf("read %d bytes, want %d, or others", len(got), len(want))
					}
				}
			}
			inFile := in != "" && len(want) > limit
			if n := len(files(t, dir)); s.Size() != int64(len(want)) || inFile != (n == 1) || n > 1 {
				t.Fatalf("%d bytes and %d files for %d bytes with limit %d", s.Size(), n, len(want), limit)
			}
		}
		for range 2 {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if list := files(t, dir); len(list) > 0 {
			t.Fatalf("%d files are left", len(list))
		}
	})
}

// TestSpoolTellsTrouble: that there is no room for a file is told by Write, that it is gone by
// Close.
func TestSpoolTellsTrouble(t *testing.T) {
	dir := t.TempDir()
	notDir := filepath.Join(dir, "file")
	if err := os.WriteFile(notDir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := spool.New(notDir, "some-*", 4)
	if _, err := s.Write([]byte("12345")); err == nil {
		t.Error("written into a directory that is none")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	s = spool.New(filepath.Join(dir, "in"), "some-*", 4)
	if _, err := s.Write([]byte("12345")); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "in")); err != nil {
		t.Skipf("an open file cannot be removed here: %v", err)
	}
	if err := s.Close(); err == nil {
		t.Error("closed without an error though its file is gone")
	}
}
