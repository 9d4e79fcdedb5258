package storage_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ledgerd/ledger/storage"
)

// TestCopyWhileWriting copies a page while it is written, and opens the copies: each has all that
// was acknowledged before.
func TestCopyWhileWriting(t *testing.T) {
	w := newWorld(t, 1, storage.Options{SegmentBytes: 16 << 10, FoldRows: 100})
	w.open()
	w.commit(many(0, 20))
	var done atomic.Bool
	var wg sync.WaitGroup
	for i := range 3 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(1, uint64(i)))
			for k := 0; k < 60 && !done.Load(); k++ {
				if _, err := w.tryCommit(nil, edit{fmt.Sprint("k", k%10): noise(rng, 100+rng.IntN(8000))}, k%3); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 5 {
		p := w.promise()
		o := options(t)
		if err := os.MkdirAll(o.Dir, 0o700); err != nil {
			t.Fatal(err)
		}
		err := w.s.CopyTo(t.Context(), func(name string, size int64) (io.WriteCloser, error) {
			return os.Create(filepath.Join(o.Dir, name))
		})
		if err != nil {
			t.Fatal(err)
		}
		s := open(t, o)
		if err := w.verify(s, p, rand.New(rand.NewPCG(1, 2))); err != nil {
			t.Error(err)
		}
		wantClean(t, s)
		closeStore(t, s)
	}
	done.Store(true)
	wg.Wait()
	w.close()
}
