package bench

import (
	"context"
	"io"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/mem"
	"github.com/ledgerd/ledger/keys"
)

// Kinds of objects in a bucket.
const (
	kindEntry      = iota
	kindPack       // and differences that are objects of their own
	kindCheckpoint // and runs, and epochs
	kindOther
	kinds
)

func kindOf(name string) int {
	switch {
	case strings.Contains(name, "/log/"):
		return kindEntry
	case strings.Contains(name, "/packs/"):
		return kindPack
	case strings.Contains(name, "/checkpoints/"), strings.Contains(name, "/epochs/"):
		return kindCheckpoint
	}
	return kindOther
}

// usage is what was asked of a bucket. Gets that found nothing are misses, and count as gets too.
type usage struct {
	puts, gets       [kinds]int64
	misses, lists    int64
	upBytes, dnBytes [kinds]int64
}

func (u usage) minus(v usage) usage {
	for i := range kinds {
		u.puts[i] -= v.puts[i]
		u.gets[i] -= v.gets[i]
		u.upBytes[i] -= v.upBytes[i]
		u.dnBytes[i] -= v.dnBytes[i]
	}
	u.misses -= v.misses
	u.lists -= v.lists
	return u
}

func total(n [kinds]int64) (sum int64) {
	for _, v := range n {
		sum += v
	}
	return sum
}

func (u usage) requests() int64 { return total(u.puts) + total(u.gets) + u.lists }

// tally is a bucket that counts what a device asks of another, by kind of object. Its sums are held
// against those of bucket.Meter, which stands below it and counts what the command `status` shows.
type tally struct {
	*bucket.Meter

	mu  sync.Mutex
	sum usage // guarded by mu
	// beforeCheckpoint, if not nil, is called before the first part of a checkpoint is put, and
	// checkpoints is the directory of the last one.
	beforeCheckpoint func()
	checkpoints      string
}

func (t *tally) count(fn func(u *usage)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fn(&t.sum)
}

func (t *tally) usage() (u usage) {
	t.count(func(sum *usage) { u = *sum })
	return u
}

func (t *tally) PutIfAbsent(ctx context.Context, name string, size int64, content io.Reader) error {
	kind := kindOf(name)
	if dir := path.Dir(name); strings.Contains(dir, "/checkpoints/") && dir != t.checkpoints && t.beforeCheckpoint != nil {
		t.checkpoints = dir
		t.beforeCheckpoint()
	}
	t.count(func(u *usage) {
		u.puts[kind]++
		u.upBytes[kind] += size
	})
	return t.Meter.PutIfAbsent(ctx, name, size, content)
}

func (t *tally) Get(ctx context.Context, name string, off, n int64) (bucket.Object, error) {
	o, err := t.Meter.Get(ctx, name, off, n)
	kind := kindOf(name)
	t.count(func(u *usage) {
		u.gets[kind]++
		if err != nil {
			u.misses++
		}
	})
	if err == nil {
		o.Body = &talliedBody{o.Body, t, kind}
	}
	return o, err
}

func (t *tally) List(ctx context.Context, after, prefix string, limit int) ([]bucket.Info, error) {
	t.count(func(u *usage) { u.lists++ })
	return t.Meter.List(ctx, after, prefix, limit)
}

type talliedBody struct {
	io.ReadCloser
	t    *tally
	kind int
}

func (r *talliedBody) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.t.count(func(u *usage) { u.dnBytes[r.kind] += int64(n) })
	return n, err
}

// cloud is a bucket in memory and the key with which it is sealed.
type cloud struct {
	bucket *mem.Bucket
	key    string
}

func newCloud(b *testing.B) *cloud {
	b.Helper()
	c := &cloud{bucket: mem.New(mem.Options{}), key: filepath.Join(tempDir(b), "key")}
	must(b, keys.CreateFile(c.key, nil))
	return c
}

// at returns a cloud that has what this one had at a moment.
func (c *cloud) at(s mem.State) *cloud {
	earlier := &cloud{bucket: mem.New(mem.Options{}), key: c.key}
	earlier.bucket.Rollback(s)
	return earlier
}

// device is a repository with one page, that syncs when it is told, with the requests that it
// makes.
type device struct {
	b    *testing.B
	repo *ledger.Repository
	page *ledger.Page
	t    *tally
	at   uint64 // number of the last entry that a clone has read
}

func (c *cloud) options(t *tally, inMemory bool) ledger.Options {
	open := func(context.Context, string, bucket.OpenOptions) (bucket.Bucket, error) { return t, nil }
	return ledger.Options{InMemory: inMemory, CacheBytes: warmCache,
		Buckets: map[string]bucket.Opener{"mem": open}, Sync: ledger.SyncOptions{Manual: true}}
}

func (c *cloud) name() *ledger.Cloud {
	return &ledger.Cloud{URL: "mem:bench", KeyFile: c.key}
}

// device returns a device in memory.
func (c *cloud) device(b *testing.B) *device {
	b.Helper()
	d := &device{b: b, t: &tally{Meter: bucket.NewMeter(c.bucket, bucket.MeterOptions{})}}
	d.repo, d.page = openPage(b, "", c.options(d.t, true))
	_, err := d.repo.SetCloud(b.Context(), c.name())
	must(b, err)
	return d
}

// clone makes a device on the disk of what the bucket has. Its page is open.
func (c *cloud) clone(b *testing.B) *device {
	b.Helper()
	d := &device{b: b, t: &tally{Meter: bucket.NewMeter(c.bucket, bucket.MeterOptions{})}}
	o := c.options(d.t, false)
	o.CacheBytes = ledger.DefaultCacheBytes
	repo, err := ledger.Clone(b.Context(), filepath.Join(tempDir(b), "clone"), &o, c.name())
	must(b, err)
	pages, err := repo.Sync(b.Context())
	must(b, err)
	if len(pages) != 1 {
		b.Fatalf("%d pages were cloned", len(pages))
	}
	page, err := repo.Page(b.Context(), benchLedger, benchPage)
	must(b, err)
	d.repo, d.page, d.at = repo, page, pages[0].State.Position
	return d
}

// reopen closes the page and opens it again, which folds everything into its index.
func (d *device) reopen() {
	d.b.Helper()
	must(d.b, d.page.Close())
	var err error
	d.page, err = d.repo.Page(d.b.Context(), benchLedger, benchPage)
	must(d.b, err)
}

func (d *device) close() { closePage(d.b, d.repo, d.page) }

// sync syncs the page and returns what that asked of the bucket.
func (d *device) sync() usage {
	before, meter := d.t.usage(), d.t.Counts()
	must(d.b, d.page.Sync(d.b.Context()))
	u, now := d.t.usage().minus(before), d.t.Counts()
	if a, g := now.A-meter.A, now.B-meter.B; a != total(u.puts)+u.lists || g != total(u.gets) {
		d.b.Fatalf("the meter counted %d requests of class A and %d of B, not %+v", a, g, u)
	}
	return u
}

// head returns the id of the page's head.
func (d *device) head() ledger.CommitID {
	s, err := d.page.Snapshot(d.b.Context())
	must(d.b, err)
	defer s.Close()
	return s.Commit().ID
}

// copyAndSync copies a file with cp and syncs the copy's file system.
func copyAndSync(b *testing.B, from, to string) {
	for _, tool := range []string{"cp", "sync"} {
		if _, err := exec.LookPath(tool); err != nil {
			b.Skipf("no %s here", tool)
		}
	}
	command(b, ".", "cp", from, to)
	command(b, ".", "sync", "-f", to)
}
