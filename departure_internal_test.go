package ledger

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/internal/presence"
	"github.com/ledgerd/ledger/internal/vfs"
	"github.com/ledgerd/ledger/internal/vfs/vfstest"
)

// openPageOf opens a page by the ledger and name that evictWorld.devices has given it.
func openPageOf(ctx context.Context, r *Repository, i int) (*Page, error) {
	return r.Page(ctx, fmt.Sprint("l", i%2), fmt.Sprint("p", i))
}

// devices returns a repository with n synced pages in two ledgers, closed.
func (w *evictWorld) devices(fs vfs.FS, n int) (*Repository, []PageRef) {
	w.t.Helper()
	r, _ := w.device(fs)
	refs := make([]PageRef, n)
	for i := range refs {
		p, err := openPageOf(w.t.Context(), r, i)
		if err != nil {
			w.t.Fatal(err)
		}
		refs[i] = PageRef{fmt.Sprint("l", i%2), p.Ref().ID}
		_, err = p.Update(w.t.Context(), func(tx *Tx) error { return tx.Put(w.t.Context(), []byte("k"), []byte("v")) })
		if err = errors.Join(err, p.Sync(w.t.Context()), p.Close()); err != nil {
			w.t.Fatal(err)
		}
	}
	return r, refs
}

// wholeOrAway opens a repository after a crash and reports an error unless each of n pages is
// there, whole, or known to be in the cloud. It returns how many are away.
func (w *evictWorld) wholeOrAway(fs *vfstest.Mem, n int) (away int, err error) {
	ctx := context.Background()
	r, err := w.open(fs)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	evicted, err := evictedPages(ctx, r)
	if err != nil {
		return 0, err
	}
	for _, e := range evicted {
		if e.EvictedBytes == 0 {
			return 0, fmt.Errorf("what is known of %+v is lost", e)
		}
	}
	pages, err := r.disk.Pages()
	if err != nil {
		return 0, err
	}
	if len(pages)+len(evicted) != n+1 {
		return 0, fmt.Errorf("pages %+v, evicted %+v", pages, evicted)
	}
	for i := range n {
		isAway := false
		l := fmt.Sprint("l", i%2)
		for _, e := range evicted {
			isAway = isAway || e.Ledger == l && e.ID == DerivePageID(l, fmt.Sprint("p", i))
		}
		if !isAway { // then it must not need the bucket
			w.bucket.SetBefore(func(bucket.Op, string) error { return errDeath })
		}
		p, err := openPageOf(ctx, r, i)
		if err == nil {
			err = errors.Join(whole(ctx, p), p.Close())
		}
		w.bucket.SetBefore(nil)
		if err != nil {
			return 0, fmt.Errorf("page %d, away %v: %w", i, isAway, err)
		}
	}
	for i := range 2 {
		dir := filepath.Dir(r.disk.PageDir(pageKey{Ledger: fmt.Sprint("l", i)}))
		infos, err := fs.ReadDir(dir)
		if err == nil && len(infos) != (n+1-i)/2 {
			err = fmt.Errorf("left over in %s: %+v", dir, infos)
		}
		if err != nil {
			return 0, err
		}
	}
	return len(evicted), nil
}

// TestCrashOfBatch cuts the power after every change of the files while pages of two ledgers are
// evicted together: each is whole or away.
func TestCrashOfBatch(t *testing.T) {
	const n = 3
	w := newEvictWorld(t)
	var armed atomic.Bool
	var one sync.Mutex // the other pages wait
	op, none, some, all := 0, 0, 0, 0
	boundary := func(o vfstest.Op) {
		one.Lock()
		defer one.Unlock()
		if !armed.Load() || t.Failed() {
			return
		}
		op++
		for v, keep := range []func() float64{vfstest.KeepNone, vfstest.KeepAll, vfstest.KeepSome(uint64(op)), vfstest.KeepSome(uint64(op) << 20)} {
			away, err := w.wholeOrAway(w.mem.CrashClone(keep), n)
			if err != nil {
				t.Errorf("operation %d (%s), crash %d: %v", op, o, v, err)
			}
			switch away {
			case 0:
				none++
			case n:
				all++
			default:
				some++
			}
		}
	}
	r, refs := w.devices(vfstest.NewHooked(w.mem, boundary), n)
	armed.Store(true)
	_, _, err := admin.Evict(t.Context(), r, false, refs...)
	armed.Store(false)
	if err != nil {
		t.Fatal(err)
	}
	if none == 0 || some == 0 || all == 0 {
		t.Errorf("of the recoveries %d found no page away, %d some and %d all", none, some, all)
	}
	t.Logf("%d operations; %d recoveries found no page away, %d some and %d all", op, none, some, all)
}

// TestFaultInBatch has one operation of the file system fail while pages are evicted together:
// those that it concerns stay, whole, the others may go, and the report is right.
func TestFaultInBatch(t *testing.T) {
	const n = 3
	partly := 0
	for at := 0; ; at++ {
		w := newEvictWorld(t)
		var op atomic.Int64
		var failed, armed atomic.Bool
		fs := vfstest.NewFaulty(w.mem, func(vfstest.Op) error {
			if !armed.Load() || op.Add(1) != int64(at+1) {
				return nil
			}
			failed.Store(true)
			return errDeath
		})
		r, refs := w.devices(fs, n)
		armed.Store(true)
		left, _, err := admin.Evict(t.Context(), r, false, refs...)
		armed.Store(false)
		if failed.Load() == (err == nil && len(left) == n) {
			t.Fatalf("operation %d: failed %v, error %v, report %+v", at, failed.Load(), err, left)
		}
		for _, e := range left {
			if where, _, err := r.pages.Where(e.key()); err != nil || where != presence.Away {
				t.Fatalf("operation %d: reported as evicted and it is in state %v, %v", at, where, err)
			}
		}
		if len(left) > 0 && failed.Load() {
			partly++
		}
		for i := range n { // in the same process
			p, err := openPageOf(t.Context(), r, i)
			if err == nil {
				err = errors.Join(whole(t.Context(), p), p.Close())
			}
			if err != nil {
				t.Fatalf("operation %d: page %d: %v", at, i, err)
			}
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := w.wholeOrAway(w.mem.CrashClone(vfstest.KeepNone), n); err != nil {
			t.Fatalf("operation %d: a power cut: %v", at, err)
		}
		if !failed.Load() {
			break
		}
	}
	if partly == 0 {
		t.Error("no fault left other pages to go")
	}
}

// TestBatchesOfOneRepository has several evict the same pages in different orders, beside others
// that open them: nobody waits for ever, and each page is whole.
func TestBatchesOfOneRepository(t *testing.T) {
	const n, rounds = 6, 8
	w := newEvictWorld(t)
	r, refs := w.devices(w.mem, n)
	var all sync.WaitGroup
	for g := range 3 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(1, uint64(g)))
			for range rounds {
				pages := make([]PageRef, n)
				for i, j := range random.Perm(n) {
					pages[i] = refs[j]
				}
				_, _, err := admin.Evict(t.Context(), r, false, pages...)
				if _, ok := errors.AsType[*EvictError](err); err != nil && !ok {
					t.Error(err)
				}
				p, err := openPageOf(t.Context(), r, random.IntN(n))
				if err == nil {
					err = errors.Join(whole(t.Context(), p), p.Close())
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	for i := range n {
		p, err := openPageOf(t.Context(), r, i)
		if err == nil {
			err = errors.Join(whole(t.Context(), p), p.Close())
		}
		if err != nil {
			t.Error(err)
		}
	}
}
