package bench

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
	"github.com/ledgerd/ledger/cloudsync/mem"
	"github.com/ledgerd/ledger/keys"
)

// BenchmarkSyncRequests counts the requests of three devices: for a commit of one key, after which
// the writer syncs and then both readers, and for a look at a page that nobody changes.
func BenchmarkSyncRequests(b *testing.B) {
	cloud := newCloud(b)
	writer, readers := cloud.device(b), []*device{cloud.device(b), cloud.device(b)}
	commits := scaled(320, 32)
	var w, r, idle usage
	add := func(sum *usage, u usage) { *sum = sum.minus(usage{}.minus(u)) }
	for b.Loop() {
		for i := range 3 { // until all are in a steady state
			must(b, put(b, writer.page, []byte("key"), []byte{byte(i)}))
			writer.sync()
			for _, d := range readers {
				d.sync()
			}
		}
		w, r, idle = usage{}, usage{}, usage{}
		d := million()
		for i := range commits {
			must(b, put(b, writer.page, d.keys[i%1000][:], d.values[i%1000][:]))
			add(&w, writer.sync())
			for _, d := range readers {
				add(&r, d.sync())
			}
		}
		for range commits {
			for _, d := range append(readers, writer) {
				add(&idle, d.sync())
			}
		}
		for _, d := range readers {
			if d.head() != writer.head() {
				b.Fatal("the devices have come to different heads")
			}
		}
	}
	n := float64(commits)
	report(b, map[string]float64{
		"writer-PUT/commit": float64(total(w.puts)) / n,
		"writer-GET/commit": float64(total(w.gets)) / n,
		"reader-GET/commit": float64(total(r.gets)-r.misses) / 2 / n, "reader-GET-nothing/commit": float64(r.misses) / 2 / n,
		"reader-PUT/commit": float64(total(r.puts)) / 2 / n,
		"idle-GET/poll":     float64(total(idle.gets)) / 3 / n, "idle-PUT/poll": float64(total(idle.puts)) / 3 / n,
		"LIST": float64(w.lists + r.lists + idle.lists),
	})
	for _, d := range append(readers, writer) {
		d.close()
	}
}

// BenchmarkSyncCycle fills a page with a million keys and syncs it, makes commits of many keys
// until the first checkpoint is written, and then commits of one key, each with an entry of its
// own, until the next one is: a whole cycle. upload-B/commit is all that went up in it, the
// checkpoint that ends it included. Then a device is cloned from the bucket as it was just before
// that checkpoint.
//
// entries are the commits of the cycle; BENCH_CYCLE_KEYS says how many keys each of them changes
// instead of one.
func BenchmarkSyncCycle(b *testing.B) {
	keys := cycleKeys(b)
	for b.Loop() {
		cloud := newCloud(b)
		c := &cycle{b: b, cloud: cloud, writer: cloud.device(b), rng: generator(11)}
		c.fill()
		c.untilCheckpoint(1000)
		start := time.Now()
		commits, up := c.untilCheckpoint(keys)
		elapsed := time.Since(start)
		c.writer.close()
		c.writer = nil // and with it what it has in memory
		metrics := map[string]float64{
			"commits": float64(commits), "cycle-s": elapsed.Seconds(),
			"upload-B/commit":     float64(total(up.upBytes)) / float64(commits),
			"entry-B/commit":      float64(up.upBytes[kindEntry]) / float64(commits),
			"checkpoint-B/commit": float64(up.upBytes[kindCheckpoint]+up.upBytes[kindPack]) / float64(commits),
			"PUT/commit":          float64(total(up.puts)) / float64(commits), "GET/commit": float64(total(up.gets)) / float64(commits),
		}
		c.firstSync(metrics, "")
		c.worst = c.worstBefore
		c.firstSync(metrics, "first-cycle-")
		report(b, metrics)
	}
}

func cycleKeys(b *testing.B) int {
	b.Helper()
	s := os.Getenv("BENCH_CYCLE_KEYS")
	if s == "" {
		return 1
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		b.Fatalf("BENCH_CYCLE_KEYS is %q, want a number above 0", s)
	}
	return n
}

// cycle is a page of a million keys whose log grows until checkpoints are written.
type cycle struct {
	b           *testing.B
	cloud       *cloud
	writer      *device
	rng         *rand.Rand
	commits     int
	worst       mem.State // the bucket just before the last checkpoint
	worstBefore mem.State // and before the one before it
}

// fill puts the million keys in one commit and syncs it, and measures nothing.
func (c *cycle) fill() {
	must(c.b, putAll(c.b, c.writer.page))
	c.commits++
	c.writer.sync()
}

// change commits new random values for random keys. Pages of the benchmarks do not grow.
func (c *cycle) change(keys int) {
	d := million()
	_, err := c.writer.page.Update(c.b.Context(), func(tx *ledger.Tx) error {
		for range keys {
			if err := tx.Put(c.b.Context(), d.keys[c.rng.IntN(len(d.keys))][:], randomBytes(c.rng, 100)); err != nil {
				return err
			}
		}
		return nil
	})
	must(c.b, err)
	c.commits++
}

func randomBytes(rng *rand.Rand, n int) []byte {
	v := make([]byte, 0, n+8)
	for len(v) < n {
		v = binary.LittleEndian.AppendUint64(v, rng.Uint64())
	}
	return v[:n]
}

// reopenEvery is after how many commits the page of a cycle is opened anew: a sync looks at all
// that is not folded into the index yet, which is little then. What is opened proves its place in
// the log anew: a get each time.
const reopenEvery = 128

// untilCheckpoint makes commits until a checkpoint is written. It returns how many, and what they
// have asked of the bucket.
func (c *cycle) untilCheckpoint(keys int) (commits int, asked usage) {
	c.b.Helper()
	c.writer.t.beforeCheckpoint = func() { c.worstBefore, c.worst = c.worst, c.cloud.bucket.State() }
	most := 1_000_000
	for asked.puts[kindCheckpoint] == 0 && commits < most {
		if c.commits%reopenEvery == 0 {
			c.writer.reopen()
		}
		c.change(keys)
		commits++
		u := c.writer.sync()
		asked = asked.minus(usage{}.minus(u))
	}
	if commits == most {
		c.b.Fatalf("no checkpoint after %d commits", most)
	}
	return commits, asked
}

// firstSync clones a device at the worst moment, and states what that costs for each byte of
// content. Content are the keys and values that the page has at that moment.
func (c *cycle) firstSync(metrics map[string]float64, prefix string) {
	cloud := c.cloud.at(c.worst)
	start, used := time.Now(), processorTime(c.b)
	var d *device
	heap := peakHeap(func() { d = cloud.clone(c.b) })
	took, cpu := time.Since(start), processorTime(c.b)-used
	u, content := d.t.usage(), float64(million().bytes())
	entries := d.at
	d.close()
	metrics[prefix+"first-read/content"] = float64(total(u.dnBytes)) / content
	metrics[prefix+"first-requests"] = float64(u.requests())
	metrics[prefix+"first-requests-allowed"] = content/(4<<20) + 200 + float64(u.gets[kindEntry])
	metrics[prefix+"first-s"] = took.Seconds()
	metrics[prefix+"first-cpu-s"] = cpu.Seconds()
	metrics[prefix+"first-heap-MB"] = heap / 1e6
	metrics[prefix+"first-entries"] = float64(entries)
	metrics[prefix+"first-checkpoint/content"] = float64(u.dnBytes[kindCheckpoint]) / content
	metrics[prefix+"first-log/content"] = float64(u.dnBytes[kindEntry]+u.dnBytes[kindPack]) / content
}

// BenchmarkSyncSmallChange changes a value of 100 bytes of a page of a million keys and syncs it,
// many times.
func BenchmarkSyncSmallChange(b *testing.B) {
	cloud := newCloud(b)
	c := &cycle{b: b, cloud: cloud, writer: cloud.device(b), rng: generator(12)}
	c.fill()
	var bytes []float64
	for b.Loop() {
		for range 200 {
			c.change(1)
			bytes = append(bytes, float64(total(c.writer.sync().upBytes)))
		}
	}
	most := 0.0
	for _, n := range bytes {
		most = max(most, n)
	}
	c.writer.close()
	report(b, map[string]float64{"upload-B": median(bytes), "most-upload-B": most})
}

// BenchmarkSyncUpload1GiB uploads a page with a random value of 1 GiB, sealed, into a new bucket
// that is a directory. Against it, a file of the same bytes is copied with cp and brought to the
// disk with sync -f. Both are read from the page cache.
func BenchmarkSyncUpload1GiB(b *testing.B) {
	data := incompressible(b, scaled(gib, 16<<20))
	dir := tempDir(b)
	key, source := filepath.Join(dir, "key"), filepath.Join(dir, "source")
	must(b, keys.CreateFile(key, nil))
	must(b, os.WriteFile(source, data, 0o600))
	options := ledger.Options{CacheBytes: ledger.DefaultCacheBytes, Sync: ledger.SyncOptions{Manual: true}}
	repo, page := openPage(b, filepath.Join(dir, "repo"), options)
	must(b, ingest(b, page, "value", data))
	command(b, ".", "sync", "-f", dir)
	var p pair
	var uploaded, puts []float64
	var processor samples
	ours := func() time.Duration {
		to := tempDir(b)
		_, err := repo.SetCloud(b.Context(), &ledger.Cloud{URL: "dir:" + filepath.Join(to, "bucket"), KeyFile: key})
		must(b, err)
		closePage(b, repo, page) // so that the index knows that the new bucket has nothing
		repo, page = openPage(b, filepath.Join(dir, "repo"), options)
		command(b, ".", "sync", "-f", dir)
		before, used := admin.Metrics(repo), processorTime(b)
		d := settled(func() { must(b, page.Sync(b.Context())) })
		processor.add(processorTime(b) - used)
		after := admin.Metrics(repo)
		uploaded = append(uploaded, float64(after.Up-before.Up)/float64(len(data)))
		puts = append(puts, float64(after.A-before.A))
		must(b, os.RemoveAll(filepath.Join(to, "bucket")))
		return d
	}
	theirs := func() time.Duration {
		to := filepath.Join(tempDir(b), "copy")
		command(b, ".", "sync", "-f", dir)
		d := timed(func() { copyAndSync(b, source, to) })
		must(b, os.Remove(to))
		return d
	}
	heap := peakHeap(func() { ours() })
	processor = nil // collecting garbage more often counts there
	for b.Loop() {
		p.run(3, ours, theirs)
	}
	closePage(b, repo, page)
	report(b, map[string]float64{
		"ratio":     1 / p.ratio(), // of speeds
		"sync-MB/s": mbPerSecond(len(data), p.ours.median()), "cp+sync-MB/s": mbPerSecond(len(data), p.theirs.median()),
		"processor-ms": ms(processor.median()), "uploaded/value": median(uploaded), "PUT": median(puts), "heap-MB": heap / 1e6,
	})
}

// BenchmarkSyncFirst clones pages from a bucket in memory, onto the disk: one with a random EAGER
// value of 256 MiB, and one with a million keys and 64 commits of 1000 of them. The times are for
// comparing two builds: run them by turns.
func BenchmarkSyncFirst(b *testing.B) {
	for _, page := range []struct {
		name string
		fill func(b *testing.B, cloud *cloud, d *device)
	}{
		{"value", func(b *testing.B, _ *cloud, d *device) {
			must(b, ingest(b, d.page, "value", incompressible(b, scaled(gib/4, 16<<20))))
			d.sync()
		}},
		{"keys", func(b *testing.B, cloud *cloud, d *device) {
			c := &cycle{b: b, cloud: cloud, writer: d, rng: generator(13)}
			c.fill()
			for range 64 {
				c.change(1000)
				d.sync()
			}
		}},
	} {
		b.Run(page.name, func(b *testing.B) {
			cloud := newCloud(b)
			d := cloud.device(b)
			page.fill(b, cloud, d)
			d.close()
			var first, processor samples
			for b.Loop() {
				for range 3 {
					used := processorTime(b)
					var clone *device
					first.add(settled(func() { clone = cloud.clone(b) }))
					processor.add(processorTime(b) - used)
					clone.close()
				}
			}
			report(b, map[string]float64{"first-ms": ms(first.median()), "processor-ms": ms(processor.median())})
		})
	}
}
