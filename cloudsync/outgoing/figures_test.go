package outgoing_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/outgoing"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/split"
	"github.com/ledgerd/ledger/storage"
)

// drain is a bucket that keeps nothing but lengths.
type drain struct {
	mu    sync.Mutex
	sizes map[string]int64 // guarded by mu
	up    int64            // guarded by mu
	puts  int              // guarded by mu
}

func (b *drain) PutIfAbsent(_ context.Context, name string, _ int64, content io.Reader) error {
	n, err := io.Copy(io.Discard, content)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sizes[name] = n
	b.up += n
	b.puts++
	return err
}

func (b *drain) Get(context.Context, string, int64, int64) (bucket.Object, error) {
	return bucket.Object{}, &bucket.Error{Op: bucket.OpGet, Class: bucket.ClassNotFound, Err: base.ErrNotFound}
}

func (b *drain) List(context.Context, string, string, int) ([]bucket.Info, error) { return nil, nil }
func (b *drain) Delete(context.Context, string) error                             { return nil }
func (b *drain) String() string                                                   { return "drain:" }

// disk is a page on disk that uploads into a drain.
type disk struct {
	t    testing.TB
	s    *storage.Store
	b    *drain
	seal *seal.Sealer
	n    format.PageNames
	page *outgoing.Page
}

func newDisk(t testing.TB) *disk {
	t.Helper()
	o := storage.Options{Dir: filepath.Join(t.TempDir(), "page"), Page: testPage, Cache: storage.NewNodeCache(8 << 20)}
	if err := storage.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	s, err := storage.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	ring, err := seal.NewKeyring(seal.AES256GCM, nil)
	if err != nil {
		t.Fatal(err)
	}
	d := &disk{t: t, s: s, b: &drain{sizes: map[string]int64{}}, seal: seal.NewSealer(ring, nil), n: format.NamesOf(ring, "l", testPage)}
	t.Cleanup(func() { _ = s.Close() })
	d.page = outgoing.New(outgoing.Options{
		Store: s, Bucket: d.b, Sealer: d.seal, Names: d.n, Device: format.ID{1}, NewID: func() (id format.ID) {
			binary.BigEndian.PutUint64(id[:], rand.Uint64()|1)
			return id
		},
	})
	return d
}

// write commits changes.
func (d *disk) write(changes func(j *storage.Journal) iter.Seq2[btree.Change, error]) {
	d.t.Helper()
	ctx := d.t.Context()
	j := d.s.NewJournal()
	defer j.Rollback()
	head := d.s.NewestHead()
	root, err := btree.Tree{Page: testPage, Source: j, Root: head.Root}.Apply(ctx, j, changes(j))
	if err != nil {
		d.t.Fatal(err)
	}
	c, err := commit.New(commit.Params{Now: time.Unix(1, 0), Root: root, Parents: []*commit.Commit{head}, Device: "laptop"})
	if err != nil {
		d.t.Fatal(err)
	}
	p, err := d.s.Submit(ctx, j, c)
	if err == nil {
		err = p.Wait()
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// keys puts n keys of 16 bytes with 100 bytes each.
func (d *disk) keys(n int) {
	d.t.Helper()
	d.write(func(*storage.Journal) iter.Seq2[btree.Change, error] {
		rng := rand.New(rand.NewPCG(1, uint64(n)))
		return func(yield func(btree.Change, error) bool) {
			for i := range n {
				v := make([]byte, 100)
				for k := 0; k < len(v); k += 4 {
					binary.LittleEndian.PutUint32(v[k:], rng.Uint32())
				}
				if !yield(btree.Change{Entry: fb.Entry{Key: fmt.Appendf(nil, "key %012d", i), Value: v, Inline: true, Size: 100}}, nil) {
					return
				}
			}
		}
	})
}

// value puts n bytes that do not compress.
func (d *disk) value(n int64) {
	d.t.Helper()
	d.write(func(j *storage.Journal) iter.Seq2[btree.Change, error] {
		r := io.LimitReader(rand.NewChaCha8([32]byte{1}), n)
		root, size, err := split.Split(d.t.Context(), split.DefaultTable(), object.Chunk, r, func(ctx context.Context, p split.Piece) error {
			return j.PutPiece(ctx, p.Digest, p.Content)
		})
		return func(yield func(btree.Change, error) bool) {
			yield(btree.Change{Entry: fb.Entry{Key: []byte("big"), Digest: root, Size: size}}, err)
		}
	})
}

// push sends everything and returns how many bytes went up.
func (d *disk) push() int64 {
	d.t.Helper()
	before := d.b.up
	for number, hash := uint64(1), (format.Hash{}); ; number++ {
		out, err := d.page.Next(d.t.Context())
		if err != nil {
			d.t.Fatal(err)
		}
		if out == nil {
			return d.b.up - before
		}
		if number > 200 {
			d.t.Fatal("there is always more to send")
		}
		stored, h, err := format.SealEntry(d.seal, d.n, number, hash, out.Body)
		if err != nil {
			d.t.Fatal(err)
		}
		hash = h
		d.b.up += int64(len(stored))
		p, err := d.s.SubmitSync(d.t.Context(), nil, out.Settle(number))
		if err == nil {
			err = p.Wait()
		}
		if err != nil {
			d.t.Fatal(err)
		}
	}
}

// peak returns the greatest heap, over what is there before, while fn runs.
func peak(fn func()) uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	before, most := m.HeapAlloc, uint64(0)
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			most = max(most, m.HeapAlloc)
			select {
			case <-done:
				return
			case <-tick.C:
			}
		}
	})
	fn()
	close(done)
	wg.Wait()
	return most - min(before, most)
}

// figure is a number that LEDGER_FIGURES=full makes as large as the promise says.
func figure(t testing.TB, full, quick int) int {
	t.Helper()
	if os.Getenv("LEDGER_FIGURES") == "full" {
		return full
	}
	return quick
}

// go test -run TestFigureSmallChange -v ./cloudsync/outgoing, with LEDGER_FIGURES=full for 1 M
// keys.
func TestFigureSmallChange(t *testing.T) {
	d := newDisk(t)
	n := figure(t, 1_000_000, 20_000)
	d.keys(n)
	all := d.push()
	d.write(func(*storage.Journal) iter.Seq2[btree.Change, error] {
		return func(yield func(btree.Change, error) bool) {
			yield(btree.Change{Entry: fb.Entry{Key: []byte("key 000000000777"), Value: []byte(noise(5, 100)), Inline: true, Size: 100}}, nil)
		}
	})
	up := d.push()
	t.Logf("%d keys: %d bytes for all of them, %d bytes for a change of 100 bytes", n, all, up)
	if up > 1024 {
		t.Errorf("%d bytes for a change of 100", up)
	}
}

// go test -run TestFigureLargeValue -v ./cloudsync/outgoing, with LEDGER_FIGURES=full for 1 GiB.
func TestFigureLargeValue(t *testing.T) {
	d := newDisk(t)
	n := int64(figure(t, 1<<30, 24<<20))
	d.value(n)
	var up int64
	start := time.Now()
	heap := peak(func() { up = d.push() })
	t.Logf("%d bytes: %d bytes up, factor %.4f, %d puts, heap %d MiB, %s", n, up, float64(up)/float64(n), d.b.puts, heap>>20, time.Since(start))
	if float64(up) > 1.02*float64(n) {
		t.Errorf("%d bytes up for %d", up, n)
	}
	if heap > 128<<20 {
		t.Errorf("%d MiB of heap", heap>>20)
	}
}

// go test -run TestFigureManyChanges -v ./cloudsync/outgoing, with LEDGER_FIGURES=full for 1 M
// keys.
func TestFigureManyChanges(t *testing.T) {
	d := newDisk(t)
	n := figure(t, 1_000_000, 50_000)
	d.keys(n)
	var up int64
	heap := peak(func() { up = d.push() })
	t.Logf("%d changed keys: %d bytes up, %d puts, heap %d MiB", n, up, d.b.puts, heap>>20)
	if heap > 128<<20 {
		t.Errorf("%d MiB of heap", heap>>20)
	}
	dir := d.s.TempDir()
	if left, err := os.ReadDir(dir); len(left) > 0 || err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%d temporary files are left, %v", len(left), err)
	}
}

func BenchmarkNextSmall(b *testing.B) {
	d := newDisk(b)
	d.keys(100_000)
	d.push()
	before := d.b.up
	i := 0
	for b.Loop() {
		i++
		d.write(func(*storage.Journal) iter.Seq2[btree.Change, error] {
			return func(yield func(btree.Change, error) bool) {
				yield(btree.Change{Entry: fb.Entry{Key: fmt.Appendf(nil, "key %012d", i%100_000), Value: []byte(strconv.Itoa(i)), Inline: true, Size: uint64(len(strconv.Itoa(i)))}}, nil)
			}
		})
		d.push()
	}
	b.ReportMetric(float64(d.b.up-before)/float64(b.N), "up-B/op")
}
