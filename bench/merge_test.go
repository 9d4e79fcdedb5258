package bench

import (
	"math/rand/v2"
	"testing"

	"github.com/ledgerd/ledger"
)

// BenchmarkMerge merges two heads of a page of a million keys, warm, with 1000 changes each,
// durable. ratio is to the median of applying 1000 changes as one transaction in the same round,
// which the making of the heads does twice and a third transaction once more. conflicts is the same
// where both heads have changed the same 1000 keys, so that the last one wins a thousand times.
func BenchmarkMerge(b *testing.B) {
	repo, page := openPage(b, copied(b, millionPage(b)), ledger.Options{ManualMerge: true})
	warm(b, page)
	const changes = 1000
	rng := generator(9)
	for _, c := range []struct {
		name string
		same bool
	}{{"changes", false}, {"conflicts", true}} {
		b.Run(c.name, func(b *testing.B) {
			var p pair
			var decided []float64
			for b.Loop() {
				for range scaled(30, 3) {
					keys := rng.Uint64()
					var applied samples
					base := ledger.CommitID{}
					for side := range 2 {
						t, err := page.Begin(b.Context(), &ledger.TxOptions{Base: base})
						must(b, err)
						base = t.Base().ID
						if !c.same {
							keys += uint64(side)
						}
						putRandom(b, t, keys, uint64(side), changes)
						applied.add(timed(func() { _, err = t.Commit(b.Context()) }))
						must(b, err)
					}
					var results []ledger.MergeResult
					p.ours.add(timed(func() {
						var err error
						results, err = page.Merge(b.Context())
						must(b, err)
					}))
					if len(results) != 1 || results[0].How != "three-way" {
						b.Fatalf("merged %+v", results)
					}
					decided = append(decided, float64(results[0].Conflicts))
					t, err := page.Begin(b.Context(), nil)
					must(b, err)
					putRandom(b, t, rng.Uint64(), 2, changes)
					applied.add(timed(func() { _, err = t.Commit(b.Context()) }))
					must(b, err)
					p.theirs.add(applied.median())
				}
			}
			report(b, map[string]float64{
				"ratio": p.ratio(), "merge-ms": ms(p.ours.median()), "apply-ms": ms(p.theirs.median()), "conflicts": median(decided),
			})
		})
	}
	closePage(b, repo, page)
}

// putRandom puts n keys, chosen by the seed, with values that differ from side to side.
func putRandom(b *testing.B, t *ledger.Tx, seed, side uint64, n int) {
	b.Helper()
	d, keys, values := million(), rand.New(rand.NewPCG(21, seed)), rand.New(rand.NewPCG(22+side, seed))
	for range n {
		must(b, t.Put(b.Context(), d.keys[keys.IntN(len(d.keys))][:], d.values[values.IntN(len(d.values))][:]))
	}
}
