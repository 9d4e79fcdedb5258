package large_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"testing"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/internal/clock"
	"github.com/ledgerd/ledger/internal/tier"
)

// source gives n bytes that nothing can shrink, the same for the same seed.
func source(seed byte, n int64) io.Reader {
	return io.LimitReader(rand.NewChaCha8([32]byte{seed}), n)
}

// openRoot opens the root page of a ledger in a new repository.
func openRoot(t *testing.T, o *ledger.Options) (*ledger.Repository, *ledger.Page) {
	t.Helper()
	repo, err := ledger.Open(t.Context(), t.TempDir(), o)
	if err != nil {
		t.Fatal(err)
	}
	page, err := repo.OpenPage(t.Context(), ledger.PageRef{Ledger: "large"})
	if err != nil {
		t.Fatal(err)
	}
	return repo, page
}

// heapLimit is what the heap may hold while a value of any size passes through.
const heapLimit = 64 << 20

// watchHeap samples the live and dead objects of the heap until it is told to stop, and returns the
// greatest sum. The collector keeps the memory of the program at heapLimit, if it can: so there are
// few dead objects, however busy the machine is.
func watchHeap(t *testing.T) (stop func() uint64) {
	t.Helper()
	before := debug.SetMemoryLimit(heapLimit)
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	var greatest uint64
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			metrics.Read(sample)
			greatest = max(greatest, sample[0].Value.Uint64())
			tick, release := clock.System.After(2_000_000)
			select {
			case <-done:
				release()
				return
			case <-tick:
			}
		}
	})
	return func() uint64 {
		close(done)
		wg.Wait()
		debug.SetMemoryLimit(before)
		return greatest
	}
}

// TestValueLargerThanMemory streams a value through PutReader, its commit and the folds, and back
// through a ranged reader: 5 GiB with LEDGER_TIER=2, 256 MiB without, which is four times what the
// heap may have.
func TestValueLargerThanMemory(t *testing.T) {
	size := int64(256 << 20)
	if tier.Nightly() {
		size = 5 << 30
	}
	ctx := t.Context()
	repo, page := openRoot(t, nil)
	defer repo.Close()
	defer page.Close()

	stop := watchHeap(t)
	sum := sha256.New()
	key := []byte("value")
	if _, err := page.Update(ctx, func(tx *ledger.Tx) error {
		return tx.PutReader(ctx, key, io.TeeReader(source(1, size), sum), size, ledger.Eager)
	}); err != nil {
		t.Fatal(err)
	}
	want := sum.Sum(nil)
	if err := page.View(ctx, func(s *ledger.Snapshot) error { return readBack(t, s, key, size, want) }); err != nil {
		t.Fatal(err)
	}
	if err := page.Close(); err != nil {
		t.Fatal(err)
	}
	if err := repo.Close(); err != nil {
		t.Fatal(err)
	}
	wantHeap(t, stop(), heapLimit)
}

func readBack(t *testing.T, s *ledger.Snapshot, key []byte, size int64, want []byte) error {
	ctx := t.Context()
	v, err := s.Open(ctx, key)
	if err != nil {
		return err
	}
	defer v.Close()
	if v.Size() != size {
		return fmt.Errorf("the value has %d bytes, want %d", v.Size(), size)
	}
	sum := sha256.New()
	if _, err := v.WriteTo(sum); err != nil {
		return err
	}
	if got := sum.Sum(nil); !bytes.Equal(got, want) {
		return fmt.Errorf("the value read back is another")
	}
	// Ranges, against the same stream read up to there.
	offset := size/2 + 12345
	if _, err := v.Seek(offset, io.SeekStart); err != nil {
		return err
	}
	got, wantRange := make([]byte, 100<<10), make([]byte, 100<<10)
	if _, err := io.ReadFull(v, got); err != nil {
		return err
	}
	r := source(1, size)
	if _, err := io.CopyN(io.Discard, r, offset); err != nil {
		return err
	}
	if _, err := io.ReadFull(r, wantRange); err != nil {
		return err
	}
	if !bytes.Equal(got, wantRange) {
		return fmt.Errorf("the range at %d is another", offset)
	}
	return nil
}

// TestTransactionLargerThanMemory puts more into one transaction than its memory, and finds it
// whole, or not at all.
func TestTransactionLargerThanMemory(t *testing.T) {
	keys := 200_000
	if tier.Nightly() {
		keys = 3_000_000
	}
	ctx := t.Context()
	repo, page := openRoot(t, &ledger.Options{JournalBytes: 2 << 20, CacheBytes: 8 << 20})
	defer repo.Close()
	defer page.Close()
	put := func(tx *ledger.Tx) error {
		var k [16]byte
		rng := rand.New(rand.NewPCG(1, 2))
		for i := range keys {
			binary.BigEndian.PutUint64(k[:], rng.Uint64())
			binary.BigEndian.PutUint64(k[8:], uint64(i))
			if err := tx.Put(ctx, k[:], bytes.Repeat(k[:], 6)); err != nil {
				return err
			}
		}
		return nil
	}
	count := func() (n int) {
		t.Helper()
		err := page.View(ctx, func(s *ledger.Snapshot) error {
			for e, err := range s.Scan(ctx, ledger.ScanOptions{}) {
				if err != nil {
					return err
				}
				v, err := e.Value(ctx)
				if err != nil {
					return err
				}
				if !bytes.Equal(v, bytes.Repeat(e.Key, 6)) {
					return fmt.Errorf("key %x has another value", e.Key)
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
	tx, err := page.Begin(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := put(tx); err != nil {
		t.Fatal(err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if n := count(); n != 0 {
		t.Fatalf("%d keys after a rollback", n)
	}
	stop := watchHeap(t)
	if _, err := page.Update(ctx, put); err != nil {
		t.Fatal(err)
	}
	if n := count(); n != keys {
		t.Fatalf("%d keys, want %d", n, keys)
	}
	wantHeap(t, stop(), 2*heapLimit) // a fold of many small nodes
}

func wantHeap(t *testing.T, got, limit uint64) {
	t.Helper()
	t.Logf("the heap held up to %d MiB", got>>20)
	if got > limit {
		t.Errorf("the heap held up to %d MiB, limit %d MiB", got>>20, limit>>20)
	}
}
