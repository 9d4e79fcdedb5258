package bench

import (
	"bytes"
	"math/rand/v2"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ledgerd/ledger"
)

const gib = 1 << 30

// ingest stores data as one value in one transaction. When it returns the value is durable.
func ingest(b *testing.B, page *ledger.Page, key string, data []byte) error {
	tx, err := page.Begin(b.Context(), nil)
	if err != nil {
		return err
	}
	if err := tx.PutReader(b.Context(), []byte(key), bytes.NewReader(data), int64(len(data)), ledger.Eager); err != nil {
		return err
	}
	_, err = tx.Commit(b.Context())
	return err
}

// BenchmarkIngest1GiB stores a random value of 1 GiB in a new page, durable at the end. Against it,
// the same bytes are written to a file with fdatasync every 16 MiB. What is written is counted
// until the repository is closed, index included.
func BenchmarkIngest1GiB(b *testing.B) {
	data := incompressible(b, scaled(gib, 1<<20))
	var p pair
	var closing, processor samples
	var given, disk, kept []float64
	ours := func() time.Duration {
		dir := filepath.Join(tempDir(b), "repo")
		repo, page := openPage(b, dir, ledger.Options{CacheBytes: ledger.DefaultCacheBytes})
		before := writtenSoFar(b)
		used := processorTime(b)
		d := settled(func() { must(b, ingest(b, page, "value", data)) })
		processor.add(processorTime(b) - used)
		closing.add(timed(func() { closePage(b, repo, page) }))
		after := writtenSoFar(b)
		_, onDisk := sizes(b, dir)
		given = append(given, float64(after.given-before.given)/float64(len(data)))
		disk = append(disk, float64(after.disk-before.disk)/float64(len(data)))
		kept = append(kept, float64(onDisk)/float64(len(data)))
		return d
	}
	theirs := func() time.Duration { return settled(func() { writeFile(b, tempDir(b), data) }) }
	for b.Loop() {
		p.run(3, ours, theirs)
	}
	report(b, map[string]float64{
		"ratio":       1 / p.ratio(), // of speeds
		"ledger-MB/s": mbPerSecond(len(data), p.ours.median()), "file-MB/s": mbPerSecond(len(data), p.theirs.median()),
		"close-ms": ms(closing.median()), "processor-ms": ms(processor.median()),
		"written/stored": median(given), "disk/stored": median(disk), "kept/stored": median(kept), "MiB": float64(len(data)) / (1 << 20),
	})
}

// writeFile writes data in pieces of 1 MiB with fdatasync every 16 MiB and at the end.
func writeFile(b *testing.B, dir string, data []byte) {
	a := newAppender(b, dir)
	for n := 1; len(data) > 0; n++ {
		part := data[:min(1<<20, len(data))]
		data = data[len(part):]
		a.append(b, part)
		if n%16 == 0 || len(data) == 0 {
			must(b, fdatasync(a.f))
		}
	}
}

// BenchmarkSmallCommitsDuringIngest commits one key after another, each durable, alone and then
// while 1 GiB is stored in the same page. median-ratio is that of the medians; p99-ratio is that of
// the 99th percentile under load to the median time that it takes to append 4 MiB to a file and
// sync it, measured before the load and after it.
func BenchmarkSmallCommitsDuringIngest(b *testing.B) {
	data := incompressible(b, scaled(gib, 16<<20))
	var medians, p99s, ledgerMS, quietMS, p99MS, batchMS []float64
	var commits int
	for b.Loop() {
		for range 3 {
			dir := tempDir(b)
			repo, page := openPage(b, filepath.Join(dir, "repo"), ledger.Options{CacheBytes: ledger.DefaultCacheBytes})
			c := newCommitter(page, generator(3))
			var quiet, batch samples
			file := newAppender(b, dir)
			between := func() {
				quiet = append(quiet, c.commits(b, scaled(500, 20), nil)...)
				for range scaled(100, 10) { // as many as the ingest writes, in all: a disk may take the first ones faster than it can go on
					batch.add(timed(func() { file.appendAndSync(b, data[:4<<20]) }))
				}
			}
			between()
			var done atomic.Bool
			finished := make(chan error, 1)
			go func() {
				err := ingest(b, page, "value", data)
				done.Store(true)
				finished <- err
			}()
			busy := c.commits(b, 1<<30, &done)
			must(b, <-finished)
			between()
			closePage(b, repo, page)
			commits += len(busy)
			medians = append(medians, busy.median().Seconds()/quiet.median().Seconds())
			p99s = append(p99s, busy.percentile(0.99).Seconds()/batch.median().Seconds())
			ledgerMS, quietMS = append(ledgerMS, ms(busy.median())), append(quietMS, ms(quiet.median()))
			p99MS, batchMS = append(p99MS, ms(busy.percentile(0.99))), append(batchMS, ms(batch.median()))
		}
	}
	report(b, map[string]float64{
		"median-ratio": median(medians), "p99-ratio": median(p99s),
		"busy-median-ms": median(ledgerMS), "quiet-median-ms": median(quietMS),
		"busy-p99-ms": median(p99MS), "batch-ms": median(batchMS), "busy-commits": float64(commits),
	})
}

// committer makes commits of one key each among a few thousand.
type committer struct {
	page *ledger.Page
	rng  *rand.Rand
}

func newCommitter(page *ledger.Page, rng *rand.Rand) *committer { return &committer{page, rng} }

// commits makes up to n commits, until stop is set, and returns how long each took.
func (c *committer) commits(b *testing.B, n int, stop interface{ Load() bool }) (s samples) {
	d := million()
	for range n {
		if stop != nil && stop.Load() {
			break
		}
		key, value := c.rng.IntN(min(4096, len(d.keys))), c.rng.IntN(len(d.values))
		s.add(timed(func() { must(b, put(b, c.page, d.keys[key][:], d.values[value][:])) }))
	}
	return s
}

// put commits one key.
func put(b *testing.B, page *ledger.Page, key, value []byte) error {
	_, err := page.Update(b.Context(), func(tx *ledger.Tx) error { return tx.Put(b.Context(), key, value) })
	return err
}
