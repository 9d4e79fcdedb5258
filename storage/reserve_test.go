package storage_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/vfs"
	"github.com/ledgerd/ledger/internal/vfs/vfstest"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
	"github.com/ledgerd/ledger/storage/segment"
)

// TestFoldWithoutRoom commits until the index must catch up, which there is no room for. The page
// goes on when there is room again.
func TestFoldWithoutRoom(t *testing.T) {
	w := newWorld(t, 1, storage.Options{FoldRows: 64})
	var full atomic.Bool
	w.before = func() error {
		if full.Load() {
			return base.ErrNoSpace
		}
		return nil
	}
	w.open()
	full.Store(true)
	for i := 0; ; i++ {
		_, err := w.tryCommit(nil, many(i*10, 10), 0)
		if errors.Is(err, base.ErrNoSpace) {
			break
		}
		if w.must(err); i > 1000 {
			t.Fatal("nobody waits for the index")
		}
	}
	w.must(w.verify(w.s, w.promise(), w.rng))
	full.Store(false)
	w.commit(small(5))
	w.must(w.verify(w.s, w.promise(), w.rng))
	w.must(checkClean(w.s))
	w.close()
}

// TestReserve compacts one long segment on a disk with hardly any room but the reserve: the segment
// is given back part by part, and nothing is lost when there is no room even for that.
func TestReserve(t *testing.T) {
	for _, kib := range []int64{0, 100, 1 << 10, 4 << 10} { // beside the reserve
		t.Run(fmt.Sprint(kib), func(t *testing.T) {
			w := newWorld(t, 1, storage.Options{SegmentBytes: 64 << 20})
			q := &quota{FS: w.mem, left: 1 << 40}
			w.o.FS, w.o.Reserve = q, storage.NewReserve(q, "reserve")
			w.open()
			whole := func() {
				for _, c := range w.s.Heads() {
					w.must(w.verifyContent(w.s, c))
				}
			}
			for i := range 20 {
				w.commit(edit{fmt.Sprint("old ", i): noise(w.rng, 1<<20), fmt.Sprint("key ", i): noise(w.rng, 1<<20)})
			}
			for i := range 20 {
				w.commit(edit{fmt.Sprint("old ", i): nil})
			}
			w.pruneAll()
			cycles(t, w.s.NewCollector(storage.CollectOptions{}), 3)
			w.must(w.s.Fold(t.Context()))
			before := w.s.Stats()
			if n := q.taken("reserve"); n != 6<<20 {
				t.Fatalf("a reserve of %d bytes", n)
			}
			q.left = kib << 10
			_, err := w.s.Compact(t.Context(), storage.CompactOptions{MinDeadShare: 0.3})
			w.must(err)
			if after := w.s.Stats().SegmentBytes; after > before.SegmentBytes*6/10 {
				t.Errorf("segments of %d bytes before, %d after", before.SegmentBytes, after)
			}
			whole()
			w.commit(edit{"more": noise(w.rng, 1<<20)})
			w.must(checkClean(w.s))
			w.reopen()
			whole()
			w.must(checkClean(w.s))
			w.close()
		})
	}
}

// TestDropColdWithoutRoom drops values that the bucket has on a full disk. Compaction then gives
// space back.
func TestDropColdWithoutRoom(t *testing.T) {
	w := newWorld(t, 1, storage.Options{})
	q := &quota{FS: w.mem, left: 1 << 40}
	w.o.FS, w.o.Reserve = q, storage.NewReserve(q, "reserve")
	w.open()
	var b storage.SyncBatch
	for i := range 200 {
		v := noise(w.rng, 4000) // one chunk
		w.commit(edit{fmt.Sprint(i): v})
		b.Places = append(b.Places, storage.PlacedPiece{Digest: object.Sum(object.Chunk, v), Place: entryPlace(1)})
	}
	w.sync(nil, b)
	w.must(w.s.Fold(t.Context()))
	before := w.s.Stats().SegmentBytes
	q.left = 0
	free, err := w.s.DropCold(t.Context(), storage.DropOptions{})
	w.must(err)
	if free != 200*4000 {
		t.Errorf("%d bytes are free", free)
	}
	_, err = w.s.Compact(t.Context(), storage.CompactOptions{})
	w.must(err)
	if after := w.s.Stats().SegmentBytes; after > before/2 {
		t.Errorf("segments of %d bytes before, %d after", before, after)
	}
	w.close()
}

// TestBatchesFitTheReserve submits more than the reserve holds before any of it is written. A batch
// that is longer than the reserve could not be compacted on a full disk.
func TestBatchesFitTheReserve(t *testing.T) {
	w := newWorld(t, 1, storage.Options{})
	w.open()
	var all []tx
	for i := range 20 {
		x, err := w.submit(nil, edit{fmt.Sprint(i): noise(w.rng, 500_000)}, 0)
		w.must(err)
		all = append(all, x)
	}
	for _, x := range all {
		w.must(w.wait(x))
	}
	w.close()
	w.batchesFit()
}

// TestBatchesFitWhereBasesWereDeleted brings the nodes of a pruned commit again. They are bases of
// the nodes that replaced them, so they are stored whole and not as differences to these.
func TestBatchesFitWhereBasesWereDeleted(t *testing.T) {
	w := newWorld(t, 1, storage.Options{})
	w.open()
	first, second, again := edit{}, edit{}, edit{}
	for i := range 60_000 {
		k := fmt.Sprintf("%06d", i)
		first[k] = noise(w.rng, 100)
		if i%13 == 0 {
			second[k], again[k] = []byte("new"), first[k]
		}
	}
	w.commit(first)
	w.commit(second)
	w.pruneAll()
	cycles(t, w.s.NewCollector(storage.CollectOptions{}), 2)
	c, err := w.tryCommit(nil, again, 0)
	w.must(err)
	w.must(w.verifyContent(w.s, c))
	w.reopen()
	w.must(w.verifyContent(w.s, c))
	w.must(checkClean(w.s))
	w.close()
	w.batchesFit()
}

// batchesFit fails when a batch of the log exceeds the reserve.
func (w *world) batchesFit() {
	w.t.Helper()
	longest := uint64(0)
	l, _, err := segment.Open(w.t.Context(), segment.Options{FS: w.mem, Dir: worldDir, Page: testPage}, nil, func(info segment.BatchInfo, _ []segment.Record) error {
		longest = max(longest, info.End-info.Start)
		return nil
	})
	w.must(err)
	w.must(l.Close())
	if longest > 6<<20 {
		w.t.Errorf("a batch of %d bytes", longest)
	}
}

// TestPruneWithoutRoom prunes while a write finds the disk full once: each commit that stays is
// returned once.
func TestPruneWithoutRoom(t *testing.T) {
	w := newWorld(t, 1, storage.Options{})
	var full atomic.Bool
	w.o.FS = vfstest.NewFaulty(w.mem, func(op vfstest.Op) error {
		if op.Kind == vfstest.OpWrite && full.Swap(false) {
			return base.ErrNoSpace
		}
		return nil
	})
	w.open()
	first, second := w.commit(small(1)), w.commit(small(2))
	w.must(w.s.SetTag(t.Context(), "first", first.ID))
	w.commit(small(3))
	full.Store(true)
	kept, err := w.s.Prune(t.Context(), []commit.ID{first.ID, second.ID})
	if !errors.Is(err, base.ErrConflict) || !slices.Equal(kept, []commit.ID{first.ID}) || full.Load() {
		t.Fatalf("kept %v, error %v", kept, err)
	}
	if _, err := w.s.Commit(t.Context(), second.ID); !errors.Is(err, base.ErrGone) {
		t.Fatalf("a pruned commit: %v", err)
	}
	w.close()
}

// quota is a file system with so many bytes left.
type quota struct {
	vfs.FS

	mu    sync.Mutex
	left  int64
	files map[string]int64 // by the last element of their paths
}

// resize makes a file take so many bytes.
func (q *quota) resize(name string, bytes int64) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	name = filepath.Base(name)
	more := bytes - q.files[name]
	if more > max(q.left, 0) {
		return base.WithClass(syscall.ENOSPC, base.ErrNoSpace)
	}
	if q.files == nil {
		q.files = map[string]int64{}
	}
	q.left, q.files[name] = q.left-more, bytes
	return nil
}

func (q *quota) taken(name string) int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.files[name]
}

func (q *quota) Create(name string) (vfs.File, error) {
	f, err := q.FS.Create(name)
	if err != nil {
		return nil, err
	}
	return &quotaFile{f, q, name}, nil
}

func (q *quota) Open(name string) (vfs.File, error) {
	f, err := q.FS.Open(name)
	if err != nil {
		return nil, err
	}
	return &quotaFile{f, q, name}, nil
}

func (q *quota) Remove(name string) error {
	err := q.FS.Remove(name)
	if err == nil {
		err = q.resize(name, 0)
	}
	return err
}

// quotaFile is a file of a quota.
type quotaFile struct {
	vfs.File
	q    *quota
	name string
}

func (f *quotaFile) WriteAt(b []byte, off int64) (int, error) {
	if err := f.q.resize(f.name, max(f.q.taken(f.name), off+int64(len(b)))); err != nil {
		return 0, err
	}
	return f.File.WriteAt(b, off)
}

func (f *quotaFile) Preallocate(size int64) error { return f.q.resize(f.name, size) }

func (f *quotaFile) Truncate(size int64) error {
	if err := f.q.resize(f.name, size); err != nil {
		return err
	}
	return f.File.Truncate(size)
}
