package dir

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/iotest"

	"github.com/ledgerd/ledger/internal/base"
)

// largeSizes are about the ends of parts and blocks.
var largeSizes = []int{partBytes - 1, partBytes, partBytes + 1, partBytes + blockBytes - 1, partBytes + blockBytes, 2 * partBytes, 3*partBytes + 2*blockBytes + 77}

func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i>>12) ^ byte(i*31)
	}
	return b
}

func TestLargeObjects(t *testing.T) {
	b, err := Open(t.Context(), t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range largeSizes {
		content := pattern(size)
		name := fmt.Sprint(size)
		if err := b.PutIfAbsent(t.Context(), name, int64(size), iotest.HalfReader(bytes.NewReader(content))); err != nil {
			t.Fatalf("put %d bytes: %v", size, err)
		}
		o, err := b.Get(t.Context(), name, 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(o.Body)
		if err = errors.Join(err, o.Body.Close()); err != nil || !bytes.Equal(got, content) {
			t.Errorf("of %d bytes %d are read, the same: %v, error %v", size, len(got), bytes.Equal(got, content), err)
		}
	}
}

// TestLargeWritesThatAreRefused writes from memory that no write past the page cache takes.
func TestLargeWritesThatAreRefused(t *testing.T) {
	odd := *parts.New().(*[]byte)
	odd = odd[1 : 1+partBytes-blockBytes]
	for _, size := range largeSizes {
		path, content := filepath.Join(t.TempDir(), "f"), pattern(size)
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(writeLarge(f, bytes.NewReader(content), odd), f.Close()); err != nil {
			t.Fatalf("write %d bytes: %v", size, err)
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, content) {
			t.Errorf("of %d bytes %d are read, the same: %v, error %v", size, len(got), bytes.Equal(got, content), err)
		}
	}
}

func TestLargeContentThatIsNotAsSaid(t *testing.T) {
	where := t.TempDir()
	b, err := Open(t.Context(), where, Options{})
	if err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	ended, end := context.WithCancelCause(t.Context())
	for _, c := range []struct {
		name    string
		ctx     context.Context
		content io.Reader
		want    error
	}{
		{"shorter", t.Context(), bytes.NewReader(pattern(2*partBytes - 1)), base.ErrInvalid},
		{"longer", t.Context(), bytes.NewReader(pattern(2*partBytes + 1)), base.ErrInvalid},
		{"broken", t.Context(), io.MultiReader(bytes.NewReader(pattern(partBytes+blockBytes)), iotest.ErrReader(broken)), broken},
		{"broken off", t.Context(), io.MultiReader(bytes.NewReader(pattern(partBytes+5)), iotest.ErrReader(io.ErrUnexpectedEOF)), io.ErrUnexpectedEOF},
		{"given up", ended, io.MultiReader(bytes.NewReader(pattern(partBytes)), readerFunc(func(p []byte) (int, error) { end(broken); return len(p), nil })), broken},
	} {
		if err := b.PutIfAbsent(c.ctx, "o", 2*partBytes, c.content); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		if _, err := b.Get(t.Context(), "o", 0, -1); !errors.Is(err, base.ErrNotFound) {
			t.Errorf("%s: the object is there: %v", c.name, err)
		}
		if left, err := os.ReadDir(filepath.Join(where, partial)); err != nil || len(left) > 0 {
			t.Errorf("%s: %d files are left, error %v", c.name, len(left), err)
		}
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
