package bench

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
)

// BenchmarkSpaceAfterRewrites writes the whole content of a page of 64 MiB anew a hundred times,
// and then keeps the last commit, collects and compacts: "share" is what segments and page.db take
// then, of the content; "peak-share" what they took before. Beside it, a page of 8 MiB of short
// values, which stand in the nodes of the tree, of which a tenth is changed twelve times: that
// leaves differences to nodes that nothing else needs.
func BenchmarkSpaceAfterRewrites(b *testing.B) {
	for _, c := range []struct {
		name    string
		size    int // of a value
		total   int
		changed int // of so many values one
		times   int
	}{
		{"long", 64 << 10, scaled(64<<20, 2<<20), 1, 100},
		{"short", 100, scaled(8<<20, 1<<20), 10, 12},
	} {
		b.Run(c.name, func(b *testing.B) {
			var peak, after float64
			content := 0
			for b.Loop() {
				dir := tempDir(b)
				content, peak, after = rewritten(b, filepath.Join(dir, "repo"), c.total, c.size, c.changed, c.times)
			}
			report(b, map[string]float64{"share": after / float64(content), "peak-share": peak / float64(content), "content-MB": float64(content) / 1e6})
		})
	}
}

func rewritten(b *testing.B, dir string, total, size, changed, times int) (content int, peak, after float64) {
	b.Helper()
	ctx := b.Context()
	repo, err := ledger.Open(ctx, dir, nil)
	must(b, err)
	p, err := repo.Page(ctx, benchLedger, benchPage)
	must(b, err)
	values := total / (size + 16)
	rng := generator(99)
	value := make([]byte, size)
	write := func(every int) {
		offset := rng.IntN(every)
		_, err := p.Update(ctx, func(tx *ledger.Tx) error {
			for i := offset; i < values; i += every {
				fill(rng, value)
				if err := tx.Put(ctx, fmt.Appendf(nil, "key %012d", i), value); err != nil {
					return err
				}
			}
			return nil
		})
		must(b, err)
	}
	write(1)
	for range times {
		write(changed)
	}
	_, err = admin.Collect(ctx, repo, &admin.CollectOptions{Retention: &admin.Retention{Commits: 1}})
	must(b, err)
	r, err := admin.Compact(ctx, repo, nil)
	must(b, err)
	must(b, p.Close())
	must(b, repo.Close())
	return values * (size + 16), float64(r[0].Before), float64(r[0].After)
}

// fill fills v with bytes that cannot be compressed.
func fill(rng *rand.Rand, v []byte) {
	for i := range v {
		v[i] = byte(rng.Uint32())
	}
}
