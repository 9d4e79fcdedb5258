package index_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/storage/index"
)

// TestCopyTo: a copy has the rows and no free pages, while readers go on.
func TestCopyTo(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.db")
	f, err := index.OpenFile(path, index.Options{})
	if err != nil {
		t.Fatal(err)
	}
	fill := func(from, to int, del bool) {
		err := f.Update(func(tx index.Tx) error {
			b := tx.Bucket("b")
			for i := from; i < to; i++ {
				k := fmt.Appendf(nil, "%08d", i)
				if del {
					err = b.Delete(k)
				} else {
					err = b.Put(k, make([]byte, 100))
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	count := func(f *index.File) (n int) {
		err := f.View(func(tx index.Tx) error {
			c := tx.Bucket("b").Cursor()
			for k, v := c.First(); k != nil; k, v = c.Next() {
				if len(v) != 100 {
					return errors.New("a wrong value")
				}
				n++
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	fill(0, 20000, false)
	fill(100, 20000, true)
	free, total, err := f.FreeBytes()
	if err != nil || free < total*8/10 || free > total {
		t.Fatalf("%d of %d bytes are free, %v", free, total, err)
	}
	stop, done := make(chan struct{}), make(chan error, 1)
	go func() { // readers go on
		for {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			if err := f.View(func(tx index.Tx) error {
				if v := tx.Bucket("b").Get([]byte("00000042")); len(v) != 100 {
					return fmt.Errorf("value %x", v)
				}
				return nil
			}); err != nil {
				done <- err
				return
			}
		}
	}()
	if err := os.WriteFile(path+".new", []byte("left by a crash"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := f.CopyTo(t.Context(), path+".new"); err != nil {
		t.Fatal(err)
	}
	close(stop)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.CopyTo(t.Context(), path+".new"); !errors.Is(err, base.ErrClosed) {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	if f, err = index.OpenFile(path, index.Options{}); err != nil {
		t.Fatal(err)
	}
	if _, n, err := f.FreeBytes(); err != nil || n > total/4 || count(f) != 100 {
		t.Fatalf("%d bytes after %d, %d rows", n, total, count(f))
	}
	fill(200, 300, false)
	if _, err := index.OpenFile(path, index.Options{}); !errors.Is(err, base.ErrLocked) {
		t.Fatalf("opened twice: %v", err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if f, err = index.OpenFile(path, index.Options{}); err != nil || count(f) != 200 {
		t.Fatalf("%v, %d rows", err, count(f))
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Fatalf("left %v, %v", entries, err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}
