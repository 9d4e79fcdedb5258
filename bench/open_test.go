package bench

import (
	"bytes"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/ledgerd/ledger"
)

// BenchmarkOpenCold opens a page of 1 GiB, in values of 1 MiB, and an empty page, each after its
// repository's files have been taken out of the page cache with posix_fadvise (BENCH_DROP_CACHES=1:
// after the whole cache has been dropped). ratio is that of opening the page alone, the repository
// being open; with-repository-ratio is that of opening both.
func BenchmarkOpenCold(b *testing.B) {
	full, empty := filepath.Join(tempDir(b), "full"), filepath.Join(tempDir(b), "empty")
	fillPage(b, full, scaled(gib, 4<<20))
	fillPage(b, empty, 0)
	var pages, both pair
	warmBytes := 0
	open := func(dir string, whole *samples) func() time.Duration {
		return func() time.Duration {
			files := filesIn(b, dir)
			forget(b, files)
			warmBytes = max(warmBytes, resident(b, files))
			var repo *ledger.Repository
			var page *ledger.Page
			first := timed(func() {
				var err error
				repo, err = ledger.Open(b.Context(), dir, nil)
				must(b, err)
			})
			second := timed(func() {
				var err error
				page, err = repo.Page(b.Context(), benchLedger, benchPage)
				must(b, err)
			})
			whole.add(first + second)
			closePage(b, repo, page)
			return second
		}
	}
	for b.Loop() {
		pages.run(11, open(full, &both.ours), open(empty, &both.theirs))
	}
	report(b, map[string]float64{
		"ratio": pages.ratio(), "full-ms": ms(pages.ours.median()), "empty-ms": ms(pages.theirs.median()),
		"with-repository-ratio": both.ratio(), "with-repository-full-ms": ms(both.ours.median()), "with-repository-empty-ms": ms(both.theirs.median()),
		"left-in-cache-KiB": float64(warmBytes) / 1024,
	})
}

// fillPage makes a repository whose page holds size random bytes in values of 1 MiB.
func fillPage(b *testing.B, dir string, size int) {
	b.Helper()
	data := incompressible(b, size)
	repo, page := openPage(b, dir, ledger.Options{})
	for n := 0; len(data) > 0; {
		_, err := page.Update(b.Context(), func(tx *ledger.Tx) error {
			for range 64 {
				part := data[:min(1<<20, len(data))]
				if len(part) == 0 {
					return nil
				}
				data = data[len(part):]
				if err := tx.PutReader(b.Context(), fmt.Appendf(nil, "value %06d", n), bytes.NewReader(part), int64(len(part)), ledger.Eager); err != nil {
					return err
				}
				n++
			}
			return nil
		})
		must(b, err)
	}
	closePage(b, repo, page)
}
