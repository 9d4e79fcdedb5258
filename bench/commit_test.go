package bench

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
)

// BenchmarkCommitOneKey changes one key of a million in a commit of its own, durable, in a warm
// page. ratio is to appending 4 KiB to a file and syncing it, bbolt-ratio to a transaction of bbolt
// that puts 8 random keys among the same million. Each of the two takes turns with ours in one
// directory, one after the other: what bbolt leaves to be written back would count against who
// comes next. A round is 100 of each and counts by its medians.
func BenchmarkCommitOneKey(b *testing.B) {
	dir := copied(b, millionPage(b))
	repo, page := openPage(b, dir, ledger.Options{})
	warm(b, page)
	db, err := openBolt(boltCopy(b, dir))
	must(b, err)
	file := newAppender(b, dir)
	d, rng := million(), generator(4)
	block := incompressible(b, 4096)
	const each = 100
	ours := func() (s samples) {
		for range each {
			key, value := rng.IntN(len(d.keys)), rng.IntN(len(d.values))
			s.add(timed(func() { must(b, put(b, page, d.keys[key][:], d.values[value][:])) }))
		}
		return s
	}
	appends := func() (s samples) {
		for range each {
			s.add(timed(func() { file.appendAndSync(b, block) }))
		}
		return s
	}
	bolts := func() (s samples) {
		for range each {
			s.add(timed(func() { must(b, boltPut(db, rng, 8)) }))
		}
		return s
	}
	var disk, bolt pair
	var p99, processor samples
	for b.Loop() {
		ours() // the first ones make the segment
		for range scaled(20, 3) {
			used := processorTime(b)
			o := ours()
			processor.add((processorTime(b) - used) / each)
			p99 = append(p99, o...)
			disk.ours.add(o.median())
			disk.theirs.add(appends().median())
		}
		for range scaled(6, 2) {
			bolt.ours.add(ours().median())
			bolt.theirs.add(bolts().median())
		}
	}
	stats, err := admin.Stats(page)
	must(b, err)
	closePage(b, repo, page)
	must(b, db.Close())
	report(b, map[string]float64{
		"ratio": disk.ratio(), "bbolt-ratio": bolt.ratio(), "ledger-us": us(disk.ours.median()), "ledger-p99-us": us(p99.percentile(0.99)),
		"append-us": us(disk.theirs.median()), "bbolt-us": us(bolt.theirs.median()), "logged-B/commit": float64(stats.WrittenBytes) / float64(stats.Commits),
		"processor-us": us(processor.median()), "syncs/commit": float64(stats.Syncs) / float64(stats.Commits),
	})
}

// boltCopy returns a copy of the million keys in bbolt, in dir.
func boltCopy(b *testing.B, dir string) string {
	b.Helper()
	content, err := os.ReadFile(millionBolt(b))
	must(b, err)
	f, err := os.CreateTemp(dir, "bolt-")
	must(b, err)
	_, err = f.Write(content)
	must(b, err)
	must(b, f.Sync())
	must(b, f.Close())
	return f.Name()
}

// boltPut puts n random keys of the million in one transaction.
func boltPut(db *bbolt.DB, rng *rand.Rand, n int) error {
	d := million()
	return db.Update(func(tx *bbolt.Tx) error {
		bucket := tx.Bucket(boltBucket)
		for range n {
			if err := bucket.Put(d.keys[rng.IntN(len(d.keys))][:], d.values[rng.IntN(len(d.values))][:]); err != nil {
				return err
			}
		}
		return nil
	})
}

// BenchmarkCommits10000 makes 10 000 commits of one key each on a page of a million: a third
// updates, a third insertions, a third deletions. What is written and kept is counted until the
// repository is closed, so folds and the last fold are in it.
//
// written-B is what the process gave to calls that write; disk-B is what the whole machine gave to
// the disk meanwhile, in blocks of 4 KiB and with the file system's own journal, so it counts on a
// machine that does nothing else. index-% is what page.db takes on the disk at the end, of what the
// segments take.
func BenchmarkCommits10000(b *testing.B) {
	n := scaled(10_000, 30)
	var given, disk, logged, length, onDisk, perCommit, processor, index []float64
	for b.Loop() {
		dir := copied(b, millionPage(b))
		lengthBefore, diskBefore := sizes(b, dir)
		repo, page := openPage(b, dir, ledger.Options{})
		warm(b, page)
		before := writtenSoFar(b)
		used := processorTime(b)
		d := timed(func() { mixedCommits(b, page, n, generator(5)) })
		stats, err := admin.Stats(page)
		must(b, err)
		closePage(b, repo, page)
		processor = append(processor, us(processorTime(b)-used)/float64(n))
		after := writtenSoFar(b)
		lengthAfter, diskAfter := sizes(b, dir)
		index = append(index, indexShare(b, dir))
		per := func(v float64) float64 { return v / float64(n) }
		given, disk = append(given, per(float64(after.given-before.given))), append(disk, per(float64(after.disk-before.disk)))
		logged = append(logged, per(float64(stats.WrittenBytes)))
		length, onDisk = append(length, per(float64(lengthAfter-lengthBefore))), append(onDisk, per(float64(diskAfter-diskBefore)))
		perCommit = append(perCommit, us(d)/float64(n))
	}
	report(b, map[string]float64{
		"written-B/commit": median(given), "disk-B/commit": median(disk), "logged-B/commit": median(logged),
		"kept-B/commit": median(onDisk), "kept-length-B/commit": median(length), "us/commit": median(perCommit),
		"processor-us/commit": median(processor), "commits": float64(n), "index-%": 100 * median(index),
	})
}

// indexShare returns what the index files in a directory take on the disk, relative to the
// segments.
func indexShare(b *testing.B, dir string) float64 {
	b.Helper()
	var index, rest int64
	for _, name := range filesIn(b, dir) {
		fi, err := os.Stat(name)
		must(b, err)
		switch {
		case fi.Name() == "page.db":
			index += allocated(fi)
		case filepath.Ext(name) == ".seg":
			rest += allocated(fi)
		}
	}
	if rest == 0 {
		b.Fatalf("no segments in %s", dir)
	}
	return float64(index) / float64(rest)
}

// mixedCommits makes n commits: in turn an update of a random key, an insertion of a new one, and a
// deletion.
func mixedCommits(b *testing.B, page *ledger.Page, n int, rng *rand.Rand) {
	d := million()
	fresh := rand.NewChaCha8(seed(6))
	order := rng.Perm(len(d.keys)) // deletions from the front, updates of what lies behind them
	deleted := 0
	for i := range n {
		value := d.values[rng.IntN(len(d.values))][:]
		switch i % 3 {
		case 0:
			must(b, put(b, page, d.keys[order[deleted+rng.IntN(len(order)-deleted)]][:], value))
		case 1:
			var key [16]byte
			_, _ = fresh.Read(key[:])
			must(b, put(b, page, key[:], value))
		default:
			key := d.keys[order[deleted]][:]
			deleted++
			_, err := page.Update(b.Context(), func(tx *ledger.Tx) error { return tx.Delete(b.Context(), key) })
			must(b, err)
		}
	}
}

// rates counts the calls of commitRate.
var rates uint64

// BenchmarkGroupCommit64 lets 64 goroutines commit one key each to one page, again and again, and
// in turn a single one. ratio is that of commits per second; commits/sync counts those of the 64.
func BenchmarkGroupCommit64(b *testing.B) {
	repo, page := openPage(b, copied(b, millionPage(b)), ledger.Options{})
	warm(b, page)
	period := time.Duration(float64(time.Second) * min(1, scale))
	var ratios, many, one []float64
	var commits, syncs uint64
	for b.Loop() {
		for range 5 {
			single := commitRate(b, page, 1, period)
			before, err := admin.Stats(page)
			must(b, err)
			group := commitRate(b, page, 64, period)
			after, err := admin.Stats(page)
			must(b, err)
			commits, syncs = commits+after.Commits-before.Commits, syncs+after.Syncs-before.Syncs
			ratios, many, one = append(ratios, group/single), append(many, group), append(one, single)
		}
	}
	closePage(b, repo, page)
	report(b, map[string]float64{
		"ratio": median(ratios), "64-commits/s": median(many), "1-commits/s": median(one), "commits/sync": float64(commits) / float64(syncs),
	})
}

// commitRate returns how many commits a second so many writers make.
//
// No two calls write the same: a commit that changes nothing is none.
func commitRate(b *testing.B, page *ledger.Page, writers int, period time.Duration) float64 {
	d := million()
	rates++
	var n atomic.Int64
	var wg sync.WaitGroup
	start := time.Now()
	for w := range writers {
		wg.Go(func() {
			rng := generator(1000*rates + uint64(w))
			for time.Since(start) < period {
				if err := put(b, page, d.keys[rng.IntN(len(d.keys))][:], d.values[rng.IntN(len(d.values))][:]); err != nil {
					b.Error(err)
					return
				}
				n.Add(1)
			}
		})
	}
	wg.Wait()
	return float64(n.Load()) / time.Since(start).Seconds()
}
