package ingest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/ingest"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/vfs/vfstest"
	"github.com/ledgerd/ledger/storage"
	"github.com/ledgerd/ledger/storage/index"
)

// spoiled is a bucket whose Get number at does something else than it should.
type spoiled struct {
	bucket.Bucket
	at, n int
	spoil func(o bucket.Object, err error) (bucket.Object, error)
}

func (s *spoiled) Get(ctx context.Context, name string, off, n int64) (bucket.Object, error) {
	o, err := s.Bucket.Get(ctx, name, off, n)
	if s.n++; s.n-1 == s.at {
		return s.spoil(o, err)
	}
	return o, err
}

// spoils are what buckets do to their users.
var spoils = map[string]func(o bucket.Object, err error) (bucket.Object, error){
	"fails": func(o bucket.Object, err error) (bucket.Object, error) {
		if err == nil {
			o.Body.Close()
		}
		return bucket.Object{}, bucket.NewStatusError(bucket.OpGet, "name", 503, errBroken)
	},
	"flips": change(func(b []byte) []byte {
		if len(b) > 0 {
			b[len(b)/2] ^= 4
		}
		return b
	}),
	"cuts":  change(func(b []byte) []byte { return b[:len(b)/2] }),
	"HTML":  change(func([]byte) []byte { return []byte("<html><body>sign in</body></html>") }),
	"empty": change(func([]byte) []byte { return nil }),
	"zeros": change(func(b []byte) []byte { return make([]byte, len(b)) }),
}

func change(fn func([]byte) []byte) func(o bucket.Object, err error) (bucket.Object, error) {
	return func(o bucket.Object, err error) (bucket.Object, error) {
		if err != nil {
			return o, err
		}
		b, err := io.ReadAll(o.Body)
		o.Body.Close()
		if err != nil {
			return o, err
		}
		o.Body = io.NopCloser(bytes.NewReader(fn(b)))
		return o, nil
	}
}

// TestBucketFaults lets each get of the story go wrong in each way. What is wrong is told, nothing
// half is visible, and when the bucket is well the page takes the rest.
func TestBucketFaults(t *testing.T) {
	s := newStory(t)
	for name, spoil := range spoils {
		t.Run(name, func(t *testing.T) {
			gets := 1
			for at := 0; at < gets; at++ {
				b := &spoiled{Bucket: s.bucket, at: at, spoil: spoil}
				d := s.deviceWith(t, memoryOptions(), b)
				adopt := at%2 == 1
				if adopt {
					if _, _, err := d.page.Adopt(t.Context(), s.number); err == nil {
						d.read = int(s.number)
					} else {
						s.told(d, err)
					}
				}
				if _, err := d.apply(s.log[d.read:]...); err != nil {
					s.told(d, err)
					value, err := d.s.Metadata(t.Context(), format.MetadataPosition)
					if err != nil {
						t.Fatal(err)
					}
					if value != nil {
						p, err := format.ParsePosition(value)
						if err != nil {
							t.Fatal(err)
						}
						d.read = int(p.Number)
					}
					for _, h := range d.s.Heads() {
						d.wholly(h)
					}
					d.pull()
				}
				s.same(d)
				gets = max(gets, b.n)
			}
			if gets < 5 {
				t.Fatalf("%d gets", gets)
			}
		})
	}
}

// told fails the test unless err says what is wrong with the bucket.
func (s *story) told(d *device, err error) {
	d.t.Helper()
	var e *ingest.EntryError
	switch {
	case errors.As(err, &e):
		if !errors.Is(err, base.ErrCorrupt) {
			d.t.Fatalf("an EntryError that is not corrupt: %v", err)
		}
	case errors.Is(err, base.ErrCorrupt), errors.Is(err, base.ErrNetwork), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, base.ErrUnsupported):
	default:
		d.t.Fatalf("error %v", err)
	}
}

func memoryOptions() storage.Options {
	return storage.Options{FS: vfstest.NewMem(), Dir: "page", Page: testPage, MemoryIndex: index.NewMemory()}
}

// TestDiskFaults lets operations of the disk fail while the story is taken in. That is not the
// fault of an entry, and the page is sound when it is opened again.
func TestDiskFaults(t *testing.T) {
	s := newStory(t)
	for at := 0; ; at++ {
		if testDiskFault(t, s, at) {
			if at < 10 {
				t.Fatalf("only %d operations", at)
			}
			return
		}
	}
}

// testDiskFault lets operation at fail, and reports whether there were fewer.
func testDiskFault(t *testing.T, s *story, at int) (clean bool) {
	n := -1 << 30 // opening does not fail
	disk := vfstest.NewMem()
	o := memoryOptions()
	o.FS = vfstest.NewFaulty(disk, func(vfstest.Op) error {
		if n++; n-1 == at {
			return errBroken
		}
		return nil
	})
	d := s.deviceWith(t, o, s.bucket)
	d.broken = true
	n = 0
	_, err := d.apply(s.log...)
	reached := n > at
	n = -1 << 30
	var e *ingest.EntryError
	if errors.As(err, &e) {
		t.Fatalf("operation %d: %v", at, err)
	}
	if err == nil && !reached {
		return true
	}
	if err := d.s.Close(); err != nil && !errors.Is(err, errBroken) && !errors.Is(err, base.ErrReadOnly) {
		t.Fatalf("operation %d: close: %v", at, err)
	}
	again := memoryOptions()
	again.FS = disk
	store, err := storage.Open(t.Context(), again)
	if err != nil {
		t.Fatalf("operation %d: open: %v", at, err)
	}
	defer store.Close()
	r, err := store.Check(t.Context(), storage.CheckOptions{})
	if err != nil || !r.Clean() {
		t.Fatalf("operation %d: %v, %v", at, err, r)
	}
	return false
}

// TestClosed calls what needs the page after its end.
func TestClosed(t *testing.T) {
	s := newStory(t)
	d := s.device(t)
	if err := d.s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := d.apply(s.log...); !errors.Is(err, base.ErrClosed) {
		t.Error(err)
	}
	if _, _, err := d.page.Adopt(t.Context(), s.number); !errors.Is(err, base.ErrClosed) {
		t.Error(err)
	}
	if err := d.page.BuildTree(t.Context(), s.cs[0].ID, past(s.history)); !errors.Is(err, base.ErrClosed) {
		t.Error(err)
	}
}

// TestErrors looks at the text of errors, and what they match.
func TestErrors(t *testing.T) {
	e := &ingest.EntryError{Object: "log/1", Err: fmt.Errorf("commit: %w", errBroken)}
	if got, want := e.Error(), "take in log/1: commit: broken on purpose"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if !errors.Is(e, base.ErrCorrupt) || !errors.Is(e, errBroken) || errors.Is(e, base.ErrNeedsFetch) {
		t.Error("an EntryError matches something else")
	}
	n := &ingest.NeedsTreeError{Object: "log/2"}
	if !errors.Is(n, base.ErrNeedsFetch) || errors.Is(n, base.ErrCorrupt) || n.Error() == "" {
		t.Error("a NeedsTreeError matches something else")
	}
}
