package kill_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
	"github.com/ledgerd/ledger/internal/tier"
)

// rounds is how often each command that gives space back is killed.
func rounds() int {
	if testing.Short() {
		return tier.Of(3, 10, 200)
	}
	return tier.Of(3, 20, 200)
}

// inside calls fn with the open repository of a device, without a process of its own.
func (w *world) inside(device string, fn func(ctx context.Context, r *ledger.Repository)) {
	w.t.Helper()
	ctx := context.Background()
	r, err := ledger.Open(ctx, w.path(device), &ledger.Options{LockTimeout: 5 * time.Minute, SegmentBytes: 256 << 10, Sync: ledger.SyncOptions{Manual: true}})
	w.must(err)
	defer func() { w.must(r.Close()) }()
	fn(ctx, r)
}

// overwrite makes commits, each of which replaces a long value and some short ones.
func (w *world) overwrite(r *ledger.Repository, page string, commits int) {
	w.t.Helper()
	ctx := context.Background()
	p, err := r.OpenPage(ctx, ledger.PageRef{Ledger: page})
	w.must(err)
	if w.acked[page] == nil {
		w.acked[page] = map[string][32]byte{}
	}
	for range commits {
		values := map[string][]byte{"long": w.noise(100 << 10)}
		for range 10 {
			values[fmt.Sprint("key ", w.rng.IntN(60))] = w.noise(90)
		}
		_, err := p.Update(ctx, func(tx *ledger.Tx) error {
			var errs []error
			for k, v := range values {
				errs = append(errs, tx.Put(ctx, []byte(k), v))
			}
			return errors.Join(errs...)
		})
		w.must(err)
		for k, v := range values {
			w.acked[page][k] = sha256.Sum256(v)
		}
	}
	w.must(p.Close())
}

var lastOnly = admin.CollectOptions{Retention: &admin.Retention{Commits: 1}}

// killing kills what a command does, at moments within the time that it takes alone, until it has
// been often enough.
func (w *world) killing(whole time.Duration, prepare, look func(), args ...string) {
	w.t.Helper()
	n := rounds()
	for i := 0; w.killed < n && i < 4*n; i++ {
		prepare()
		w.kill(&whole, args...)
		look()
	}
	if w.killed < n {
		w.t.Errorf("only %d of %d were killed, %d had ended", w.killed, n, w.ended)
	}
	w.t.Logf("%d killed, %d had ended", w.killed, w.ended)
}

// loseIndex removes the index of each page now and then: the segments alone have everything.
func (w *world) loseIndex(device string) {
	w.t.Helper()
	if w.rng.IntN(3) > 0 {
		return
	}
	found, err := filepath.Glob(filepath.Join(w.path(device), "*", "ledgers", "*", "*", "page.db"))
	w.must(err)
	if len(found) == 0 {
		w.t.Fatal("no page.db was found")
	}
	for _, f := range found {
		w.must(os.Remove(f))
	}
}

// TestKillGC kills gc while it prunes and deletes.
func TestKillGC(t *testing.T) {
	t.Parallel() // it waits for the disk more than it works
	w := newWorld(t)
	write := func() {
		w.inside("a", func(_ context.Context, r *ledger.Repository) { w.overwrite(r, "notes", 6) })
	}
	write()
	gc := w.on("a", "gc", "--keep-last", "1", "--yes")
	whole := w.measure(gc...)
	w.killing(whole, write, func() { w.loseIndex("a"); w.look("a") }, gc...)
	w.small("a")
}

// small collects and compacts everything, which leaves little.
func (w *world) small(device string) {
	w.t.Helper()
	w.inside(device, func(ctx context.Context, r *ledger.Repository) {
		_, err := admin.Collect(ctx, r, &lastOnly)
		w.must(err)
		_, err = admin.Compact(ctx, r, nil)
		w.must(err)
		u, err := admin.Usage(ctx, r)
		w.must(err)
		if k := u.Kinds; k.Values+k.Nodes+k.Rest > 400<<10 || k.Index > 1<<20 {
			w.t.Errorf("100 KiB of values take %+v", k)
		}
	})
	w.look(device)
}

// TestKillCompact kills gc --compact while it writes, exchanges and removes files.
func TestKillCompact(t *testing.T) {
	t.Parallel() // it waits for the disk more than it works
	w := newWorld(t)
	write := func() {
		w.inside("a", func(ctx context.Context, r *ledger.Repository) {
			w.overwrite(r, "notes", 8)
			_, err := admin.Collect(ctx, r, &lastOnly)
			w.must(err)
		})
	}
	write()
	compact := w.on("a", "gc", "--compact")
	whole := w.measure(compact...)
	w.killing(whole, write, func() { w.loseIndex("a"); w.look("a") }, compact...)
	w.small("a")
}

// TestKillEvict kills evict: a page is there as a whole, or in the cloud only, and comes back from
// there.
func TestKillEvict(t *testing.T) {
	t.Parallel() // it waits for the disk more than it works
	w := newWorld(t)
	w.put("a", "notes", "begin", []byte("x"))
	w.run(w.on("a", append([]string{"cloud", "set"}, w.cloud("bucket")...)...)...)
	away := 0
	write := func() {
		w.inside("a", func(_ context.Context, r *ledger.Repository) {
			w.overwrite(r, "notes", 1)
			w.overwrite(r, "films", 1)
		})
		w.run(w.on("a", "sync")...)
	}
	write()
	evict := w.on("a", "evict", "notes", "films")
	whole := w.measure(evict...)
	w.killing(whole, write, func() {
		w.inside("a", func(ctx context.Context, r *ledger.Repository) {
			pages, err := r.Pages(ctx)
			w.must(err)
			if len(pages) != 2 {
				w.t.Errorf("%d pages are known, of 2", len(pages))
			}
			for _, p := range pages {
				if p.State == ledger.PageEvicted {
					away++
				}
			}
			for page := range w.acked { // what is away comes back
				p, err := r.OpenPage(ctx, ledger.PageRef{Ledger: page})
				w.must(err)
				w.must(p.Close())
			}
		})
		w.look("a")
	}, evict...)
	t.Logf("%d pages were in the cloud only", away)
}
