package index_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/storage/index"
)

// each runs a test on both implementations.
func each(t *testing.T, fn func(t *testing.T, db index.DB)) {
	t.Run("file", func(t *testing.T) {
		f := open(t, filepath.Join(t.TempDir(), "page.db"))
		defer f.Close()
		fn(t, f)
	})
	t.Run("memory", func(t *testing.T) { fn(t, index.NewMemory()) })
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fill puts n rows with values of size bytes into a bucket.
func fill(tx index.Tx, bucket string, n, size int) error {
	b := tx.Bucket(bucket)
	for i := range n {
		if err := b.Put(keyOf(i), bytes.Repeat([]byte{'v'}, size)); err != nil {
			return err
		}
	}
	return nil
}

func TestArguments(t *testing.T) {
	each(t, func(t *testing.T, db index.DB) {
		must(t, db.Update(func(tx index.Tx) error {
			b := tx.Bucket("b")
			for _, c := range []struct {
				name string
				err  error
				want error
			}{
				{"empty key", b.Put(nil, nil), base.ErrInvalid},
				{"long key", b.Put(make([]byte, index.MaxKeyBytes+1), nil), base.ErrTooLarge},
				{"longest key", b.Put(make([]byte, index.MaxKeyBytes), nil), nil},
				{"delete nothing", b.Delete([]byte("none")), nil},
				{"delete empty key", b.Delete(nil), nil},
			} {
				if !errors.Is(c.err, c.want) {
					t.Errorf("%s: %v, want %v", c.name, c.err, c.want)
				}
			}
			if b.Get(nil) != nil {
				t.Error("something where nothing is")
			}
			return nil
		}))
		must(t, db.View(func(tx index.Tx) error {
			if tx.Bucket("none") != nil || tx.Bucket("") != nil {
				t.Error("a bucket where none is")
			}
			b := tx.Bucket("b")
			for _, err := range []error{b.Put([]byte("k"), nil), b.Delete([]byte("k"))} {
				if !errors.Is(err, base.ErrReadOnly) {
					t.Errorf("change in a view: %v", err)
				}
			}
			return nil
		}))
	})
}

func TestTransactionIsOver(t *testing.T) {
	each(t, func(t *testing.T, db index.DB) {
		var tx index.Tx
		var b index.Bucket
		var c index.Cursor
		keep := func(x index.Tx) error {
			tx, b = x, x.Bucket("b")
			c = b.Cursor()
			c.First()
			return nil
		}
		must(t, db.Update(func(tx index.Tx) error { return fill(tx, "b", 3, 3) }))
		for _, run := range []func(func(index.Tx) error) error{db.View, db.Update} {
			must(t, run(keep))
			if k, _ := c.Next(); k != nil || b.Get(keyOf(1)) != nil || tx.Bucket("b") != nil {
				t.Error("rows from a transaction that is over")
			}
			if err := b.Put(keyOf(1), nil); !errors.Is(err, base.ErrTxDone) && !errors.Is(err, base.ErrReadOnly) {
				t.Errorf("put: %v", err)
			}
		}
		must(t, db.View(func(tx index.Tx) error { return nil })) // and the database is none the worse
	})
}

func TestCallersPanic(t *testing.T) {
	each(t, func(t *testing.T, db index.DB) {
		for name, run := range map[string]func(func(index.Tx) error) error{"view": db.View, "update": db.Update} {
			func() {
				defer func() {
					if r := recover(); r != "mine" {
						t.Errorf("%s: recovered %v", name, r)
					}
				}()
				_ = run(func(tx index.Tx) error {
					if name == "update" {
						must(t, fill(tx, "lost", 5, 5))
					}
					panic("mine")
				})
			}()
			// runtime.Goexit, which is what t.Fatal does
			var wg sync.WaitGroup
			wg.Go(func() { _ = run(func(index.Tx) error { runtime.Goexit(); return nil }) })
			wg.Wait()
		}
		must(t, db.Update(func(tx index.Tx) error { return nil }))
		must(t, db.View(func(tx index.Tx) error {
			if tx.Bucket("lost") != nil {
				t.Error("the panicking update was not rolled back")
			}
			return nil
		}))
	})
}

func TestViewSeesOneState(t *testing.T) {
	each(t, func(t *testing.T, db index.DB) {
		must(t, db.Update(func(tx index.Tx) error { return fill(tx, "b", 500, 100) }))
		var wg sync.WaitGroup
		defer wg.Wait()
		for range 3 {
			wg.Go(func() {
				for range 20 {
					_ = db.View(func(tx index.Tx) error {
						want := -1
						for range 3 {
							n, c := 0, tx.Bucket("b").Cursor()
							for k, _ := c.First(); k != nil; k, _ = c.Next() {
								n++
							}
							if want < 0 {
								want = n
							}
							if n != want || n%10 != 0 {
								t.Errorf("%d rows after %d in one view", n, want)
							}
						}
						return nil
					})
				}
			})
		}
		for i := range 30 {
			must(t, db.Update(func(tx index.Tx) error {
				b := tx.Bucket("b")
				for j := range 10 {
					if err := b.Put(keyOf(1000+10*i+j), bytes.Repeat([]byte{1}, 2000)); err != nil {
						return err
					}
				}
				return nil
			}))
		}
	})
}

func TestFileReopens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.db")
	f, err := index.OpenFile(path, index.Options{})
	must(t, err)
	must(t, f.Update(func(tx index.Tx) error { return fill(tx, "b", 300, 300) }))
	if _, size, err := f.FreeBytes(); err != nil || size < 300*300 {
		t.Errorf("size %d, %v", size, err)
	}
	want := dump(t, f)
	must(t, f.Close())
	must(t, f.Close())
	if err := f.View(nil); !errors.Is(err, base.ErrClosed) {
		t.Errorf("view after close: %v", err)
	}
	if err := f.Update(nil); !errors.Is(err, base.ErrClosed) {
		t.Errorf("update after close: %v", err)
	}
	r, err := index.OpenFile(path, index.Options{ReadOnly: true})
	must(t, err)
	defer r.Close()
	r2, err := index.OpenFile(path, index.Options{ReadOnly: true})
	must(t, err)
	defer r2.Close()
	if got := dump(t, r2); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Error("rows differ after reopening")
	}
	if err := r.Update(func(index.Tx) error { return nil }); !errors.Is(err, base.ErrReadOnly) {
		t.Errorf("update of a read-only file: %v", err)
	}
}

func TestFileIsLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.db")
	f := open(t, path)
	defer f.Close()
	if _, err := index.OpenFile(path, index.Options{}); !errors.Is(err, base.ErrLocked) {
		t.Errorf("second open: %v", err)
	}
}

func TestOpenMissing(t *testing.T) {
	dir := t.TempDir()
	if _, err := index.OpenFile(filepath.Join(dir, "none.db"), index.Options{ReadOnly: true}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("read-only: %v", err)
	}
	if _, err := index.OpenFile(filepath.Join(dir, "none", "page.db"), index.Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
	empty := filepath.Join(dir, "empty.db")
	must(t, os.WriteFile(empty, nil, 0o600))
	must(t, open(t, empty).Close())
}

// TestGetVerifies: the first thing that a reopened file is asked for is found, and its leaf
// verified then.
func TestGetVerifies(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.db")
	sample(t, path)
	f := open(t, path)
	defer f.Close()
	must(t, f.View(func(tx index.Tx) error {
		for i := range 90 {
			if v := tx.Bucket("deep").Get(longKey(i)); len(v) != 120 || v[0] != byte(i) {
				t.Errorf("row %d: %d bytes", i, len(v))
			}
		}
		return nil
	}))
}

// TestEmptied: an update passes leaves that it has emptied, of a file whose leaves nothing else has
// verified.
func TestEmptied(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.db")
	f := open(t, path)
	must(t, f.Update(func(tx index.Tx) error { return fill(tx, "b", 300, 200) }))
	must(t, f.Close())
	f = open(t, path)
	defer f.Close()
	must(t, f.Update(func(tx index.Tx) error {
		b := tx.Bucket("b")
		for i := 1; i < 299; i++ {
			if err := b.Delete(keyOf(i)); err != nil {
				return err
			}
		}
		c := b.Cursor()
		if k, _ := c.First(); !bytes.Equal(k, keyOf(0)) {
			t.Errorf("first row %q", k)
		}
		if k, _ := c.Next(); !bytes.Equal(k, keyOf(299)) {
			t.Errorf("row after those that are gone: %q", k)
		}
		if k, _ := b.Cursor().Seek(keyOf(150)); !bytes.Equal(k, keyOf(299)) {
			t.Errorf("row at or after one that is gone: %q", k)
		}
		return nil
	}))
}
