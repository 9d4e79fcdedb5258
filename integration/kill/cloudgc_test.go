package kill_test

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
)

// month makes everything in a bucket 31 days older by the bucket's clock, which is that of the
// files. Every device must have entered the epochs until then: a real one that sleeps for a
// month knows by the clock that it has to look first.
func (w *world) month(bucketDir string) {
	w.t.Helper()
	w.must(filepath.WalkDir(w.path(bucketDir), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, "=") {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		then := info.ModTime().Add(-31 * 24 * time.Hour)
		return os.Chtimes(path, then, then)
	}))
}

// objects counts what is in a bucket, by the directory below the page's, and returns the sum of the
// sizes.
func (w *world) objects(bucketDir string) (count map[string]int, size int64) {
	w.t.Helper()
	count = map[string]int{}
	w.must(filepath.WalkDir(w.path(bucketDir), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, "=") {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		size += info.Size()
		for _, kind := range []string{"log", "packs", "checkpoints", "epochs"} {
			if strings.Contains(filepath.ToSlash(path), "/"+kind+"+/") {
				count[kind]++
			}
		}
		return nil
	}))
	return count, size
}

// TestKillCloudGC kills cloud gc, and every third time delete --from-history, while it cuts
// the log, writes checkpoints, and deletes what past epochs have left a month ago. Two devices take
// turns, and write between. Nothing that a device acknowledged is lost, both go on, who comes anew
// gets everything, and in the end the bucket is small.
func TestKillCloudGC(t *testing.T) {
	t.Parallel() // it waits for the disk more than it works
	w := newWorld(t)
	w.put("a", "notes", "begin", []byte("x"))
	w.run(w.on("a", append([]string{"cloud", "set"}, w.cloud("bucket")...)...)...)
	w.run(w.on("b", append([]string{"clone"}, w.cloud("bucket")...)...)...)
	w.run(w.on("a", "gc", "notes", "--keep-last", "2", "--yes")...)
	round := 0
	device := func(n int) string { return []string{"a", "b"}[n%2] }
	write := func() {
		w.inside(device(round), func(_ context.Context, r *ledger.Repository) { w.overwrite(r, "notes", 2) })
		w.run(w.on(device(round), "sync")...)
		if round++; round%2 == 0 {
			w.run(w.on(device(round), "sync")...)
			w.month("bucket")
		}
	}
	look := func(n int) {
		w.inside(device(n), func(ctx context.Context, r *ledger.Repository) { // as it was left
			report, err := admin.Check(ctx, r, nil)
			w.must(err)
			if !report.OK() {
				t.Errorf("check of %s: %+v", device(n), report)
			}
		})
		w.run(w.on(device(n), "sync")...) // what the other one has done
		w.look(device(n))
		if n%8 == 7 {
			fresh := fmt.Sprint("fresh", n)
			w.run(w.on(fresh, append([]string{"clone"}, w.cloud("bucket")...)...)...)
			w.settle(device(n), fresh)
			w.must(os.RemoveAll(w.path(fresh)))
		}
	}
	gc := func(n int) []string { return w.on(device(n), "cloud", "gc") }
	erase := func(n int) []string {
		return w.on(device(n), "delete", "notes", "--from-history", "long", "--yes")
	}
	write()
	write()
	whole := w.measure(gc(0)...)
	write()
	wholeErase := w.measure(erase(1)...)
	n := rounds()
	for i := 0; w.killed < n && i < 4*n; i++ {
		write()
		if i%3 == 2 {
			w.kill(&wholeErase, erase(round)...)
		} else {
			w.kill(&whole, gc(round)...)
		}
		look(round)
		if t.Failed() {
			t.Fatalf("after %d kills", w.killed)
		}
	}
	if w.killed < n {
		t.Errorf("only %d of %d were killed, %d had ended", w.killed, n, w.ended)
	}
	// What the last cut has left goes a month later, and a pack when its last value has gone: how
	// soon all of that has been depends on where the kills have been.
	const most = 20
	for cycles := 1; ; cycles++ {
		w.inside("a", func(_ context.Context, r *ledger.Repository) { w.overwrite(r, "notes", 2) })
		w.settle("a", "b")
		w.month("bucket")
		w.run(gc(0)...)
		count, size := w.objects("bucket")
		t.Logf("after %d months the bucket has %v of %d bytes", cycles, count, size)
		// Where it comes to rest: the versions of some months, 200 KiB each, and what checkpoints
		// say; of some 10 MiB. Packs are those of values, and differences to the trees of the
		// heads.
		if size <= 3<<19 && count["log"] <= 10 && count["packs"] <= 10 {
			break
		}
		if cycles == most {
			t.Error("it does not become small")
			break
		}
	}
	w.settle("a", "b")
	t.Logf("%d killed, %d had ended", w.killed, w.ended)
	w.run(w.on("c", append([]string{"clone"}, w.cloud("bucket")...)...)...)
	w.equal("a", "b", "c")
}
