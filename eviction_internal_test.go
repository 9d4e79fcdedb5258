package ledger

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/mem"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/internal/presence"
	"github.com/ledgerd/ledger/internal/reclaim"
	"github.com/ledgerd/ledger/internal/vfs"
	"github.com/ledgerd/ledger/internal/vfs/vfstest"
)

// evictWorld has one device whose files and stages tests look at.
type evictWorld struct {
	t      *testing.T
	bucket *mem.Bucket
	key    string
	mem    *vfstest.Mem

	mu    sync.Mutex
	stage func(string, string) // guarded by mu
}

func newEvictWorld(t *testing.T) *evictWorld {
	w := &evictWorld{t: t, bucket: mem.New(mem.Options{}), key: filepath.Join(t.TempDir(), "key"), mem: vfstest.NewMem()}
	if err := createKeyFile(w.key); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *evictWorld) onStage(fn func(string, string)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stage = fn
}

func (w *evictWorld) open(fs vfs.FS) (*Repository, error) {
	staged := vfstest.NewFaulty(fs, func(op vfstest.Op) error {
		w.mu.Lock()
		fn := w.stage
		w.mu.Unlock()
		if name, dir := stageOf(op); fn != nil && name != "" {
			fn(name, dir)
		}
		return nil
	})
	o := Options{CacheBytes: 1 << 20, Sync: SyncOptions{Manual: true}}
	o.ManualMerge = true
	o.Buckets = map[string]bucket.Opener{
		"mem": func(context.Context, string, bucket.OpenOptions) (bucket.Bucket, error) { return w.bucket, nil },
	}
	return openFiles(context.Background(), staged, o)
}

// stageOf returns how far the leaving or coming of a page is before an operation of the file
// system, "" for others, and the page's directory.
func stageOf(op vfstest.Op) (stage, dir string) {
	before := func(mark string) bool {
		var ok bool
		dir, _, ok = strings.Cut(op.Name, mark)
		return ok
	}
	switch {
	case op.Kind == vfstest.OpCreate && before(".away"):
		return "decided", dir
	case op.Kind == vfstest.OpRemove && before(".gone-"):
		return "gone", dir
	case op.Kind == vfstest.OpRename && strings.HasSuffix(op.Name, ".coming") && before(".coming"):
		return "fetched", dir
	case op.Kind == vfstest.OpOpen:
		return "looking", filepath.Dir(op.Name)
	}
	return "", ""
}

// device returns a repository with one synced page, closed.
func (w *evictWorld) device(fs vfs.FS) (*Repository, PageRef) {
	w.t.Helper()
	r, err := w.open(fs)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = r.Close() }) // idempotent
	if _, err := r.SetCloud(w.t.Context(), &Cloud{URL: "mem:x", KeyFile: w.key}); err != nil {
		w.t.Fatal(err)
	}
	p := w.page(r)
	_, err = p.Update(w.t.Context(), func(tx *Tx) error { return tx.Put(w.t.Context(), []byte("k"), []byte("v")) })
	if err == nil {
		err = errors.Join(p.Sync(w.t.Context()), p.Close())
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return r, PageRef{"l", p.Ref().ID}
}

func (w *evictWorld) page(r *Repository) *Page {
	w.t.Helper()
	p, err := openIt(w.t.Context(), r)
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

func openIt(ctx context.Context, r *Repository) (*Page, error) {
	return r.Page(ctx, "l", "p")
}

// whole reports that the page has what it must have.
func whole(ctx context.Context, p *Page) error {
	return p.View(ctx, func(s *Snapshot) error {
		v, err := s.Get(ctx, []byte("k"))
		if err == nil && string(v) != "v" {
			err = fmt.Errorf("k is %q", v)
		}
		return err
	})
}

// TestQuotaMeasures has notes of what pages take that are without measure, alone and in sum: no
// page goes by them, as long as what is there keeps the quota.
func TestQuotaMeasures(t *testing.T) {
	for _, noted := range []int64{1 << 50, math.MaxInt64} {
		w := newEvictWorld(t)
		r, ref := w.device(w.mem)
		size, err := r.disk.PageSize(ref.key())
		if err == nil {
			err = r.usage.NoteSize(ref.key(), noted)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			quota int64
			stays bool
		}{{size, true}, {size - 1, false}} {
			r.quota.Bytes = c.quota
			if err := r.quota.Keep(t.Context()); err != nil {
				t.Fatal(err)
			}
			if away, err := evictedPages(t.Context(), r); err != nil || (len(away) == 0) != c.stays {
				t.Errorf("with a quota of %d for %d bytes, noted as %d: %d pages are away, %v", c.quota, size, noted, len(away), err)
			}
		}
	}
}

// TestOpenBeforeEvictionWins: who opens a page while it is looked at for eviction gets it as it is,
// without a network.
func TestOpenBeforeEvictionWins(t *testing.T) { synctest.Test(t, openBeforeEviction) }

func openBeforeEviction(t *testing.T) {
	w := newEvictWorld(t)
	r, ref := w.device(w.mem)
	opened := make(chan error, 1)
	w.onStage(func(stage, dir string) {
		if stage != "looking" {
			return
		}
		w.onStage(nil)
		go func() {
			p, err := openIt(t.Context(), r)
			if err == nil {
				err = errors.Join(whole(t.Context(), p), p.Close())
			}
			opened <- err
		}()
		synctest.Wait() // until the opener waits
	})
	left, _, err := admin.Evict(t.Context(), r, false, ref)
	if e, ok := errors.AsType[*EvictError](err); !ok || e.Bar != reclaim.InUse || len(left) != 0 {
		t.Errorf("evicted: %+v, %v", left, err)
	}
	w.bucket.SetBefore(func(bucket.Op, string) error { return errDeath })
	if err := <-opened; err != nil {
		t.Error(err)
	}
}

// TestOpenAfterEvictionFetches: who opens a page when it is decided that it goes waits, finds it
// gone and fetches it.
func TestOpenAfterEvictionFetches(t *testing.T) {
	for _, at := range []string{"decided", "gone"} {
		t.Run(at, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { openAfterEviction(t, at) }) })
	}
}

func openAfterEviction(t *testing.T, at string) {
	w := newEvictWorld(t)
	r, ref := w.device(w.mem)
	var fetched sync.WaitGroup
	errs := make(chan error, 3)
	count := 0
	w.onStage(func(stage, dir string) {
		if stage == "fetched" {
			w.mu.Lock()
			count++
			w.mu.Unlock()
		}
		if stage != at {
			return
		}
		for range 3 {
			fetched.Go(func() {
				p, err := openIt(t.Context(), r)
				if err == nil {
					err = errors.Join(whole(t.Context(), p), p.Close())
				}
				errs <- err
			})
		}
		if at == "decided" {
			synctest.Wait() // until somebody waits
		}
	})
	if _, _, err := admin.Evict(t.Context(), r, false, ref); err != nil {
		t.Error(err)
	}
	fetched.Wait()
	for range 3 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if count != 1 {
		t.Errorf("the page was fetched %d times", count)
	}
}

// TestOpenAndEvictAtRandom has many open, write, sync and evict one page: nothing is lost, and
// nobody sees half a page.
func TestOpenAndEvictAtRandom(t *testing.T) {
	w := newEvictWorld(t)
	r, ref := w.device(w.mem)
	const writers, rounds = 3, 8
	fail := func(err error) {
		if err != nil {
			t.Error(err)
		}
	}
	write := func(n, i int) {
		p, err := openIt(t.Context(), r)
		if err != nil {
			t.Error(err)
			return
		}
		fail(whole(t.Context(), p))
		_, err = p.Update(t.Context(), func(tx *Tx) error {
			return tx.Put(t.Context(), fmt.Appendf(nil, "%d %d", n, i), []byte("x"))
		})
		fail(errors.Join(err, p.Sync(t.Context()), p.Close()))
	}
	for i := range rounds {
		var writing sync.WaitGroup
		for n := range writers {
			writing.Go(func() { write(n, i) })
		}
		wrote := make(chan struct{})
		go func() { writing.Wait(); close(wrote) }()
		for done, evicted := false, false; !evicted && !t.Failed(); { // beside them, and once when they are done
			select {
			case <-wrote:
				done = true
			default:
			}
			left, _, err := admin.Evict(t.Context(), r, false, ref)
			if _, ok := errors.AsType[*EvictError](err); err != nil && !ok {
				t.Error(err)
			}
			where, _, err := r.pages.Where(ref.key())
			fail(err)
			evicted = done && (len(left) > 0 || where == presence.Away)
		}
		<-wrote
	}
	p := w.page(r)
	defer p.Close()
	if _, err := p.Merge(t.Context()); err != nil {
		t.Error(err)
	}
	fail(p.View(t.Context(), func(s *Snapshot) error {
		for n := range writers {
			for i := range rounds {
				if _, err := s.Get(t.Context(), fmt.Appendf(nil, "%d %d", n, i)); err != nil {
					t.Errorf("%d %d: %v", n, i, err)
				}
			}
		}
		return nil
	}))
}

// TestCrashOfEviction cuts the power after every change of the files while a page is evicted and
// comes back: it is there, whole, or known to be in the cloud, and nothing else is left.
func TestCrashOfEviction(t *testing.T) {
	w := newEvictWorld(t)
	armed := false
	op, recoveries, away := 0, 0, 0
	recover := func(fs *vfstest.Mem) error {
		ctx := context.Background()
		r, err := w.open(fs)
		if err != nil {
			return err
		}
		defer r.Close()
		evicted, err := evictedPages(ctx, r)
		if err != nil {
			return err
		}
		pages, err := r.disk.Pages()
		if err != nil {
			return err
		}
		if len(pages)+len(evicted) != 1 {
			return fmt.Errorf("pages %+v, evicted %+v", pages, evicted)
		}
		away += len(evicted)
		if len(pages) == 1 { // then it must not need the bucket
			w.bucket.SetBefore(func(bucket.Op, string) error { return errDeath })
			defer w.bucket.SetBefore(nil)
		}
		p, err := openIt(ctx, r)
		if err != nil {
			return err
		}
		err = errors.Join(whole(ctx, p), p.Close())
		if err != nil {
			return err
		}
		infos, err := fs.ReadDir(filepath.Dir(r.disk.PageDir(pageKey{Ledger: "l", ID: p.Ref().ID})))
		if err == nil && len(infos) != 1 {
			err = fmt.Errorf("left over: %+v", infos)
		}
		return err
	}
	boundary := func(o vfstest.Op) {
		if !armed || t.Failed() {
			return
		}
		armed = false
		defer func() { armed = true }()
		op++
		for v, keep := range []func() float64{vfstest.KeepNone, vfstest.KeepAll, vfstest.KeepSome(uint64(op)), vfstest.KeepSome(uint64(op) << 20)} {
			fs := w.mem.CrashClone(keep)
			recoveries++
			if err := recover(fs); err != nil {
				t.Errorf("operation %d (%s), crash %d: %v", op, o, v, err)
			}
		}
	}
	r, ref := w.device(vfstest.NewHooked(w.mem, boundary))
	for range 2 {
		armed = true
		_, _, err := admin.Evict(t.Context(), r, false, ref)
		armed = false
		if err != nil {
			t.Fatal(err)
		}
		armed = true
		p, err := openIt(t.Context(), r)
		if err == nil {
			err = p.Close()
		}
		armed = false
		if err != nil {
			t.Fatal(err)
		}
	}
	if away == 0 || away == recoveries {
		t.Errorf("%d of %d recoveries found the page away", away, recoveries)
	}
	t.Logf("%d operations, %d recoveries, %d times away", op, recoveries, away)
}

// TestDeathDuringEviction has each operation of the file system fail from one on: the page is whole
// or away for the next process, also after a power cut.
func TestDeathDuringEviction(t *testing.T) {
	for at := 0; ; at++ {
		w := newEvictWorld(t)
		n, died, armed := 0, false, false
		fs := vfstest.NewFaulty(w.mem, func(vfstest.Op) error {
			if !armed {
				return nil
			}
			if n++; n > at {
				died = true
				return errDeath
			}
			return nil
		})
		r, ref := w.device(fs)
		armed = true
		_, _, evictErr := admin.Evict(t.Context(), r, false, ref)
		var openErr error
		if evictErr == nil {
			var p *Page
			if p, openErr = openIt(t.Context(), r); openErr == nil {
				openErr = p.Close()
			}
		}
		armed = false
		if !died && (evictErr != nil || openErr != nil) {
			t.Fatalf("operation %d: %v, %v", at, evictErr, openErr)
		}
		look := func(when string, fs vfs.FS, open bool) {
			next, err := w.open(fs)
			if err != nil {
				t.Fatalf("operation %d: %s: %v", at, when, err)
			}
			if open {
				var p *Page
				if p, err = openIt(t.Context(), next); err == nil {
					err = errors.Join(whole(t.Context(), p), p.Close())
				}
			}
			if err := errors.Join(err, next.Close()); err != nil {
				t.Fatalf("operation %d: %s: %v", at, when, err)
			}
		}
		look("the next process", w.mem, false) // it clears up what is not durable
		look("a power cut", w.mem.CrashClone(vfstest.KeepNone), true)
		for seed := range 8 {
			look("a power cut", w.mem.CrashClone(vfstest.KeepSome(uint64(at<<8+seed))), true)
		}
		look("the next process but one", w.mem, true)
		if !died {
			t.Logf("%d operations", at)
			return
		}
	}
}

// evictedPages returns the pages that are in the cloud only.
func evictedPages(ctx context.Context, r *Repository) ([]PageInfo, error) {
	pages, err := r.Pages(ctx)
	return slices.DeleteFunc(pages, func(p PageInfo) bool { return p.State != PageEvicted }), err
}

// TestPageComesWhileItsCloudIsLeft: who leaves a cloud waits for a page that somebody else fetches,
// who waits for the link to that cloud.
func TestPageComesWhileItsCloudIsLeft(t *testing.T) {
	w := newEvictWorld(t)
	fs := vfstest.NewMem()
	r, ref := w.device(fs)
	if _, _, err := admin.Evict(t.Context(), r, false, ref); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	r, err := w.open(fs)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // against a test that hangs
	defer cancel()
	release, err := r.cloud.Take(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if r.cloud.Connected() != nil {
		t.Fatal("there is a link already")
	}
	opened := make(chan error, 1)
	go func() {
		p, err := openIt(ctx, r)
		if err == nil {
			err = errors.Join(whole(ctx, p), p.Close())
		}
		opened <- err
	}()
	for where := presence.Away; where != presence.Coming; runtime.Gosched() {
		if where, _, err = r.pages.Where(ref.key()); err != nil || ctx.Err() != nil {
			t.Fatal(err, ctx.Err())
		}
	}
	err = r.cloud.BringBackOthers(ctx, seal.ID{1})
	release()
	if err := errors.Join(err, <-opened); err != nil {
		t.Fatal(err)
	}
}
