package ingest_test

import (
	"context"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledger/cloudsync/ingest"
	"github.com/ledgerd/ledger/cloudsync/pack"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/tier"
	"github.com/ledgerd/ledger/internal/vfs"
	"github.com/ledgerd/ledger/internal/vfs/vfstest"
	"github.com/ledgerd/ledger/storage"
	"github.com/ledgerd/ledger/storage/index"
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

// TestHistoryComesInSteps takes over a checkpoint two commits at a time, and breaks off at one
// moment after the other. The heads are those that were before, or those of the checkpoint; and the
// page comes to the same with the checkpoint, and with the log from its beginning on.
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

// TestHistoryAheadOfOwnHeads takes over a checkpoint that goes on from a head of the page, on one
// that has a commit of its own there and on one that has none.
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

// TestTakenHistoryComesInSteps takes commits from a checkpoint beside the log, two at a time, and
// breaks off at one moment after the other: heads change with the last step only, and the next call
// takes what is left, or the log brings it. One of the commits is here already.
func TestTakenHistoryComesInSteps(t *testing.T) {
	w := newWorld(t)
	a, c := w.device(t), w.device(t)
	first := a.commit(edit{"k": []byte("v")})
	a.push()
	own := c.commit(edit{"own": []byte("c")}) // beside the first, which is a head until what is built on it comes
	c.push()
	head, side := first, first
	var early commit.ID
	var all []*commit.Commit
	for i := range 7 {
		head = a.commit(edit{"k": {byte(i)}}, head)
		all = append(all, head)
		switch i {
		case 0:
			early = head.ID
		case 3:
			side = a.commit(edit{"side": []byte("s")}, head)
			all = append(all, side)
		}
	}
	number := w.put(a.checkpoint(head, side))
	w.append(a.body(all...))
	next := a.commit(edit{"n": []byte("w")}, head)
	w.append(a.body(next))
	want := headIDs(a)
	want = append(want, own.ID)
	slices.SortFunc(want, commit.ID.Compare)
	began, partly := false, 0
	for n := 0; !began; n++ {
		o := storage.Options{FS: vfstest.NewMem(), Dir: "page", Page: testPage, MemoryIndex: index.NewMemory()}
		d := w.deviceWith(t, o, w.bucket)
		ingest.SetSmallBounds(d.page)
		if _, err := d.apply(w.log[:2]...); err != nil {
			t.Fatal(err)
		}
		before := headIDs(d)
		_, _, err := d.page.TakeHistory(&countdown{t.Context(), n}, number, head.ID)
		if began = err == nil; !began {
			if diff := cmp.Diff(before, headIDs(d)); diff != "" {
				t.Fatalf("heads have changed: %s", diff)
			}
			if _, err := d.s.Commit(t.Context(), early); err == nil {
				partly++
			}
			if n%2 > 0 {
				d.reopen(o)
			}
			if n%4 < 2 {
				if _, found, err := d.page.TakeHistory(t.Context(), number, head.ID); !found || err != nil {
					t.Fatal(found, err)
				}
				if row, err := d.s.Metadata(t.Context(), ingest.MetadataAheadBeside); err != nil || row != nil {
					t.Fatalf("the row about what came ahead is left by who has all: %x, %v", row, err)
				}
			}
		}
		if _, err := d.apply(w.log[2:]...); err != nil {
			t.Fatal(err)
		}
		if row, err := d.s.Metadata(t.Context(), ingest.MetadataAheadBeside); err != nil || row != nil {
			t.Fatalf("the row about what came ahead is left: %x, %v", row, err)
		}
		got := headIDs(d)
		slices.SortFunc(got, commit.ID.Compare)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
		if diff := cmp.Diff(a.content(next), d.content(next)); diff != "" {
			t.Fatal("contents differ")
		}
		if _, err := d.s.Commit(t.Context(), first.ID); err != nil {
			t.Fatal(err)
		}
		d.check()
	}
	if partly < 2 {
		t.Errorf("a part of the history was there %d times", partly)
	}
}

// reopen closes the page and opens it again, as after the end of the process.
func (d *device) reopen(o storage.Options) {
	d.t.Helper()
	d.fetcher.Close()
	if err := d.s.Close(); err != nil {
		d.t.Fatal(err)
	}
	s, err := storage.Open(d.t.Context(), o)
	if err != nil {
		d.t.Fatal(err)
	}
	d.s, d.fetcher = s, pack.NewFetcher(pack.FetchOptions{Bucket: d.bucket, Sealer: d.sealer, Names: d.names, Store: s})
	d.page = ingest.New(ingest.Options{Store: s, Bucket: d.bucket, Sealer: d.sealer, Names: d.names, Fetcher: d.fetcher, Device: d.id})
	ingest.SetSmallBounds(d.page)
	d.t.Cleanup(func() {
		if err := s.Close(); err != nil {
			d.t.Error(err)
		}
	})
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

// TestLongHistoryMemory takes a checkpoint of many commits onto a disk, as the beginning of a page
// and beside what it has, and looks at how long its batches are, and how much memory is live when
// they are written: commits that are held all at once take 2 KB each. The table of them has 50
// bytes for each; 150 with all else, as measured.
func TestLongHistoryMemory(t *testing.T) {
	n := 16_000
	if tier.Nightly() {
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
		for range 2 { // of pools, one leaves half
			runtime.GC()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	var before, most, looks, measured, longest int64
	fs := &watchedFS{FS: vfs.OS, look: func(bytes int) {
		longest = max(longest, int64(bytes))
		if bytes > 100<<10 {
			if looks++; before > 0 && (looks%4 == 0 || bytes > 1<<20) {
				most, measured = max(most, live()-before), measured+1
			}
		}
	}}
	for _, how := range []string{"adopted", "taken"} {
		o := storage.Options{FS: fs, Dir: filepath.Join(t.TempDir(), how), Page: testPage, Cache: storage.NewNodeCache(1 << 20), FoldRows: 4096}
		b := w.deviceWith(t, o, w.bucket)
		most, looks, measured, longest = 0, 0, 0, 0
		before = live()
		var res ingest.Result
		var err error
		if how == "adopted" {
			_, res, err = b.page.Adopt(t.Context(), number)
		} else {
			res, _, err = b.page.TakeHistory(t.Context(), number, parent.ID)
		}
		if err != nil || res.Commits != n {
			t.Fatalf("%d commits %s, %v", res.Commits, how, err)
		}
		t.Logf("%d commits %s: at most %d bytes live, in %d batches of at most %d bytes", n, how, most, looks, longest)
		if measured == 0 || most > 9<<20+160*int64(n) || longest > 1<<20 {
			t.Errorf("%s: %d bytes were live, looked at %d times, a batch had %d", how, most, measured, longest)
		}
		if h := b.s.NewestHead(); h.ID != parent.ID {
			t.Errorf("it was not %s", how)
		}
		before = 0
	}
}
