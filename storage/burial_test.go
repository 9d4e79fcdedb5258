package storage_test

import (
	"fmt"
	"testing"

	"github.com/ledgerd/ledger/storage"
)

// TestCompactKeepsBurials compacts a page again and again in which nodes are gone to which others
// are stored as differences: the log goes on to say that they are gone, so that a fold from the
// beginning, as Check does it, gives the rows of page.db. Three of these seeds fail when what a
// replacement says of such nodes is forgotten.
func TestCompactKeepsBurials(t *testing.T) {
	bases := 0
	for seed := uint64(1); seed <= 20; seed++ {
		w := newWorld(t, seed, storage.Options{Cache: storage.NewNodeCache(1), SegmentBytes: 4 << 10})
		w.open()
		all := edit{}
		for i := range 60 {
			all[fmt.Sprintf("key %04d", i)] = noise(w.rng, 100)
		}
		w.commit(all)
		c := w.s.NewCollector(storage.CollectOptions{Deletions: 1 + w.rng.IntN(6)})
		for round := range 20 {
			for range 1 + w.rng.IntN(5) {
				w.commit(edit{fmt.Sprintf("key %04d", w.rng.IntN(60)): noise(w.rng, 100)})
			}
			if w.rng.IntN(3) > 0 {
				w.pruneAll()
			}
			for range w.rng.IntN(12) {
				_, err := c.Step(t.Context())
				w.must(err)
			}
			r, err := w.s.Space(t.Context())
			w.must(err)
			bases += r.Bases.Count
			if w.rng.IntN(2) == 0 {
				continue
			}
			share := []float64{0.05, 0.2, 0.4, 0.6}[w.rng.IntN(4)]
			if _, err := w.s.Compact(t.Context(), storage.CompactOptions{MinDeadShare: share}); err != nil {
				t.Fatal(err)
			}
			if err := checkClean(w.s); err != nil {
				t.Fatalf("seed %d, round %d: %v", seed, round, err)
			}
		}
		w.must(w.verifyContent(w.s, w.s.NewestHead()))
		w.close()
	}
	if bases == 0 {
		t.Error("no node was gone that others need")
	}
}
