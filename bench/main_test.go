package bench

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/ledgerd/ledger"
)

// warmCache is enough for every node of a page of a million keys, so that "warm" means: no node is
// read from the disk.
const warmCache = 512 << 20

// scale multiplies the sizes of all benchmarks, for trying them out; figures count at 1 only.
var scale = 1.0

// scratch is where everything is written. It is removed at the end.
var scratch string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if s := os.Getenv("BENCH_SCALE"); s != "" {
		f, err := strconv.ParseFloat(s, 64)
		if err != nil || f <= 0 {
			fmt.Fprintf(os.Stderr, "BENCH_SCALE is %q, want a number above 0\n", s)
			return 2
		}
		scale = f
	}
	dir, err := os.MkdirTemp("", "ledger-bench-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	defer os.RemoveAll(dir)
	if inMemory(dir) {
		fmt.Fprintf(os.Stderr, "%s is a file system in memory: set TMPDIR to a directory on a disk\n", dir)
		return 2
	}
	scratch = dir
	return m.Run()
}

// scaled returns n times the scale, at least least.
func scaled(n, least int) int { return max(least, int(float64(n)*scale)) }

// tempDir returns a new directory in scratch, which is removed when the benchmark ends.
func tempDir(b *testing.B) string {
	b.Helper()
	dir, err := os.MkdirTemp(scratch, "run-")
	must(b, err)
	b.Cleanup(func() { must(b, os.RemoveAll(dir)) })
	return dir
}

func must(tb testing.TB, err error) {
	if err != nil {
		tb.Helper() // looks at the stack: where all is well, it would be in each measured row
		tb.Fatal(err)
	}
}

// openPage opens the page that the benchmarks use, in the repository in dir, with a cache that
// holds all of it.
func openPage(b *testing.B, dir string, o ledger.Options) (*ledger.Repository, *ledger.Page) {
	b.Helper()
	if o.CacheBytes == 0 {
		o.CacheBytes = warmCache
	}
	repo, err := ledger.Open(b.Context(), dir, &o)
	must(b, err)
	page, err := repo.Page(b.Context(), benchLedger, benchPage)
	must(b, err)
	return repo, page
}

func closePage(b *testing.B, repo *ledger.Repository, page *ledger.Page) {
	b.Helper()
	must(b, page.Close())
	must(b, repo.Close())
}

// pageDir returns the directory of the only page in a repository.
func pageDir(b *testing.B, repo string) string {
	b.Helper()
	found, err := filepath.Glob(filepath.Join(repo, "*", "ledgers", "*", "*", "page.db"))
	must(b, err)
	if len(found) != 1 {
		b.Fatalf("%d pages in %s, want 1", len(found), repo)
	}
	return filepath.Dir(found[0])
}
