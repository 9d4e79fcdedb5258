package segment_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/vfs/vfstest"
	"github.com/ledgerd/ledger/storage/segment"
)

// TestConcurrent appends through several streams, reads more segments than are kept open, takes
// positions, verifies and closes, all at once. A crash clone taken at any time holds what was
// acknowledged before.
func TestConcurrent(t *testing.T) {
	m := vfstest.NewMem()
	o := options(m)
	o.SegmentBytes = 200
	l, _, err := segment.Open(t.Context(), o, nil, nil)
	must(t, err)
	var mu sync.Mutex
	acked := map[uint64]segment.Place{}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 1))
			s := l.NewStream()
			for i := range 80 {
				if i%20 == 19 {
					s.Release()
					s = l.NewStream()
				}
				a, err := s.Append(batchOf(rec{byte(g), fmt.Sprintf("%060d", i)}))
				if errors.Is(err, base.ErrClosed) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				acked[a.Number] = a.Places[0]
				mu.Unlock()
				for range 3 {
					readOne(t, l, &mu, acked, 1+r.Uint64N(a.Number))
				}
				if a.Number%50 == 0 {
					l.Stats()
				}
			}
		})
	}
	wg.Go(func() {
		for i := range 6 {
			mu.Lock()
			want := len(acked)
			mu.Unlock()
			c := m.CrashClone(vfstest.KeepSome(uint64(i)))
			if _, _, got := open(t, options(c), nil); len(got.numbers) < want {
				t.Errorf("%d batches, %d were acknowledged", len(got.numbers), want)
			}
			if err := l.Verify(t.Context(), nil); err != nil {
				t.Error(err)
			}
		}
	})
	wg.Wait()
	if l.Complete() != 320 || len(acked) != 320 {
		t.Fatalf("complete %d, acknowledged %d", l.Complete(), len(acked))
	}
	for range 2 {
		wg.Go(func() { must(t, l.Close()) })
	}
	wg.Go(func() {
		if _, err := l.NewStream().Append(batchOf()); err != nil && !errors.Is(err, base.ErrClosed) {
			t.Error(err)
		}
	})
	wg.Wait()
}

func readOne(t *testing.T, l *segment.Log, mu *sync.Mutex, acked map[uint64]segment.Place, n uint64) {
	mu.Lock()
	p, ok := acked[n]
	mu.Unlock()
	if !ok {
		return
	}
	if b, err := l.Read(p, nil); err != nil || len(b) != 60 {
		t.Errorf("read batch %d: %d bytes, %v", n, len(b), err)
	}
}
