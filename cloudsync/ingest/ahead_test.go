package ingest_test

import (
	"context"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledger/cloudsync/ingest"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/vfs"
	"github.com/ledgerd/ledger/storage"
)

// countdown is a context that is canceled when it has been asked so many times whether it is.
type countdown struct {
	context.Context
	left int
}

func (c *countdown) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestHistoryComesInSteps takes over a checkpoint two commits at a time, and breaks off at one moment after the other. The heads are those that were before, or those of the
// checkpoint; and the page comes to the same with the checkpoint, and with the log from its beginning on.
func TestHistoryComesInSteps(t *testing.T) {
	s := newStory(t)
	began, partly := false, 0
	parts := map[int][]commit.ID{} // heads by how many entries were read
	for part := 1; part <= 5; part++ {
		d := s.device(t)
		if _, err := d.apply(s.log[:part]...); err != nil {
			t.Fatal(err)
		}
		parts[part] = headIDs(d)
	}
	for n := 0; !began; n += 13 {
		for _, again := range []bool{true, false} {
			d := s.device(t)
			ingest.SetSmallBounds(d.page)
			_, _, err := d.page.Adopt(&countdown{t.Context(), n}, s.number)
			began = err == nil
			if began {
				break
			}
			if hs := d.s.Heads(); len(hs) != 1 || !hs[0].IsFirst() {
				t.Fatalf("%d heads after %v", len(hs), err)
			}
			if _, err := d.s.Commit(t.Context(), s.cs[0].ID); err == nil {
				partly++
			}
			if again {
				if _, _, err := d.page.Adopt(t.Context(), s.number); err != nil {
					t.Fatal(err)
				}
				d.read = int(s.number)
			} else {
				part := 1 + n%5 // the log may be read to a commit that has come ahead
				if _, err := d.apply(s.log[:part]...); err != nil {
					t.Fatal(err)
				}
				d.read = part
				if diff := cmp.Diff(parts[part], headIDs(d)); diff != "" {
					t.Fatal(diff)
				}
			}
			d.pull()
			s.same(d)
			if row, err := d.s.Metadata(t.Context(), ingest.MetadataAhead); err != nil || row != nil {
				t.Fatalf("the row about what came ahead is left: %x, %v", row, err)
			}
		}
	}
	if partly < 4 {
		t.Errorf("a part of the history was there %d times", partly)
	}
}

// TestHistoryAheadOfOwnHeads takes over a checkpoint that goes on from a head of the page, on one that has a commit of its own there and on one that has none.
func TestHistoryAheadOfOwnHeads(t *testing.T) {
	w := newWorld(t)
	a := w.device(t)
	a.commit(edit{"k": []byte("v")})
	a.push()
	b := w.device(t)
	ingest.SetSmallBounds(b.page)
	b.pull()
	own := b.commit(edit{"own": []byte("w")})
	var head, on *commit.Commit
	for i := range 7 {
		head = a.commit(edit{"k": {byte(i)}})
		if i == 3 {
			on = head
		}
	}
	a.push()
	side := a.commit(edit{"side": []byte("s")}, on)
	a.push()
	number := w.put(a.checkpoint(head, side))
	read := b.read
	c := w.device(t)
	ingest.SetSmallBounds(c.page)
	if _, err := c.apply(w.log[:read]...); err != nil {
		t.Fatal(err)
	}
	for _, d := range []*device{b, c} {
		if _, res, err := d.page.Adopt(t.Context(), number); err != nil || res.Commits != 8 {
			t.Fatalf("%+v, %v", res, err)
		}
		want := map[commit.ID]bool{head.ID: true, side.ID: true}
		if d == b {
			want[own.ID] = true
		}
		got := map[commit.ID]bool{}
		for _, h := range d.s.Heads() {
			got[h.ID] = true
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		d.check()
	}
}

// watchedFS calls look before each write to a new file.
type watchedFS struct {
	vfs.FS
	look func(bytes int)
}

func (w *watchedFS) Create(name string) (vfs.File, error) {
	f, err := w.FS.Create(name)
	return &watchedFile{f, w.look}, err
}

type watchedFile struct {
	vfs.File
	look func(bytes int)
}

func (w *watchedFile) WriteAt(b []byte, at int64) (int, error) {
	w.look(len(b))
	return w.File.WriteAt(b, at)
}

// TestLongHistoryMemory adopts a checkpoint of many commits onto a disk, and looks at how long its batches are, and how much memory is live when they are written: commits that are held
// all at once take 2 KB each. The table of them has 50 bytes for each; 150 with all else, as measured.
func TestLongHistoryMemory(t *testing.T) {
	n := 16_000
	if long() {
		n = 100_000
	}
	w := newWorld(t)
	a := w.device(t)
	c := a.commit(edit{"k": []byte("v")})
	a.push()
	p := a.checkpoint(c)
	history := make([]*commit.Commit, 0, n)
	parent := commit.First()
	for i := range n {
		k, err := commit.New(commit.Params{Now: time.Unix(int64(i), 0), Root: c.Root, Parents: []*commit.Commit{parent}})
		if err != nil {
			t.Fatal(err)
		}
		history, parent = append(history, k), k
	}
	p.Commits, p.Heads[0] = history, uint32(n-1)
	number := w.put(p)
	p, history = nil, nil
	live := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	var before, most, looks, longest int64
	fs := &watchedFS{FS: vfs.OS, look: func(bytes int) {
		longest = max(longest, int64(bytes))
		if bytes > 100<<10 {
			if looks++; before > 0 && (looks%4 == 0 || bytes > 1<<20) {
				most = max(most, live()-before)
			}
		}
	}}
	o := storage.Options{FS: fs, Dir: filepath.Join(t.TempDir(), "page"), Page: testPage, Cache: storage.NewNodeCache(1 << 20), FoldRows: 4096}
	b := w.deviceWith(t, o, w.bucket)
	before = live()
	_, res, err := b.page.Adopt(t.Context(), number)
	if err != nil || res.Commits != n {
		t.Fatalf("%d commits, %v", res.Commits, err)
	}
	t.Logf("%d commits: at most %d bytes live, in %d batches of at most %d bytes", n, most, looks, longest)
	if most == 0 || most > 9<<20+160*int64(n) || longest > 1<<20 {
		t.Errorf("%d bytes were live, a batch had %d", most, longest)
	}
	if h := b.s.NewestHead(); h.ID != parent.ID {
		t.Error("it was not adopted")
	}
}
