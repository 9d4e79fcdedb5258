package ledger

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ledgerd/ledger/internal/vfs/vfstest"
)

// TestFailedSyncTakesTheWholeChainBack lets the disk fail while many wait for it: all of them are
// told, the page is read-only, and after a new open exactly what was reported is there.
func TestFailedSyncTakesTheWholeChainBack(t *testing.T) {
	for _, after := range []int64{1, 3, 10} {
		t.Run(fmt.Sprint(after), func(t *testing.T) { failSync(t, after) })
	}
}

func failSync(t *testing.T, after int64) {
	ctx := t.Context()
	boom := errors.New("boom")
	var armed atomic.Bool
	var syncs atomic.Int64
	fs := vfstest.NewFaulty(vfstest.NewMem(), func(op vfstest.Op) error {
		if op.Kind == vfstest.OpSync && armed.Load() && syncs.Add(1) > after {
			return boom
		}
		return nil
	})
	r, err := openFiles(ctx, fs, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p, err := r.Page(ctx, "app", "page")
	if err != nil {
		t.Fatal(err)
	}
	armed.Store(true)
	var mu sync.Mutex
	done := map[string]bool{}
	var wg sync.WaitGroup
	for w := range 16 {
		wg.Go(func() {
			for i := 0; ; i++ {
				key := fmt.Sprintf("%d/%d", w, i)
				_, err := p.Update(ctx, func(tx *Tx) error { return tx.Put(ctx, []byte(key), []byte("v")) })
				if err != nil {
					if !errors.Is(err, boom) && !errors.Is(err, ErrReadOnly) {
						t.Errorf("got %v", err)
					}
					return
				}
				mu.Lock()
				done[key] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if _, err := p.Update(ctx, func(tx *Tx) error { return tx.Put(ctx, nil, nil) }); !errors.Is(err, ErrReadOnly) {
		t.Errorf("update after a failed sync: %v", err)
	}
	_ = p.Close() // the page cannot fold any more
	armed.Store(false)
	p, err = r.Page(ctx, "app", "page")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	err = p.View(ctx, func(s *Snapshot) error {
		for e, err := range s.Scan(ctx, ScanOptions{}) {
			if err != nil {
				return err
			}
			got[string(e.Key)] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for key := range done {
		if !got[key] {
			t.Errorf("%s was reported as done and is lost", key)
		}
	}
	if err := admin.Check(ctx, r); err != nil {
		t.Error(err)
	}
}
