package ingest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/ingest"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/tier"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// checkpoint is a checkpoint that is being made, with the diffs of its heads.
type checkpoint struct {
	format.Checkpoint
	diffs [][]byte
}

// checkpoint returns the checkpoint of the log's end: all commits of the page, and its heads.
func (d *device) checkpoint(heads ...*commit.Commit) *checkpoint {
	d.t.Helper()
	n, h := d.last()
	c := &checkpoint{Checkpoint: format.Checkpoint{At: format.Position{Bucket: format.ID(d.sealer.Keyring().BucketID()), Number: n, Hash: h}}}
	ids := make([]commit.ID, len(heads))
	for i := range heads {
		ids[i] = heads[i].ID
	}
	for k, err := range commit.Walk(d.t.Context(), d.s, ids) {
		if err != nil {
			d.t.Fatal(err)
		}
		if !k.IsFirst() {
			c.Commits = append(c.Commits, k)
		}
	}
	slices.Reverse(c.Commits)
	from := btree.EmptyRoot
	for i, head := range heads {
		c.Heads = append(c.Heads, uint32(slices.IndexFunc(c.Commits, func(k *commit.Commit) bool { return k.ID == head.ID })))
		diff, _ := d.diff(from, head.Root)
		c.diffs = append(c.diffs, diff)
		c.DiffBytes = append(c.DiffBytes, uint64(len(diff)))
		if i == 0 {
			from = head.Root
		}
	}
	return c
}

// put seals the checkpoint and puts it into the bucket.
func (w *world) put(c *checkpoint) uint64 {
	w.t.Helper()
	var b bytes.Buffer
	s, err := w.sealer.NewWriter(&b, w.names.CheckpointLabel(c.At.Number), true)
	if err == nil {
		err = c.EncodeTo(s)
	}
	for _, d := range c.diffs {
		if err == nil {
			_, err = s.Write(d)
		}
	}
	if err == nil {
		err = s.Close()
	}
	if err == nil {
		err = w.bucket.PutIfAbsent(w.t.Context(), w.names.Checkpoint(c.At.Number), int64(b.Len()), &b)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return c.At.Number
}

// TestAdopt begins a page with a checkpoint of two heads, and goes on with the log.
func TestAdopt(t *testing.T) {
	w := newWorld(t)
	a := w.device(t)
	base1 := a.commit(edit{"k": []byte("v"), "gone": noise(8, 1000)})
	w.append(a.upload(base1))
	left := a.commit(edit{"l": noise(1, 50_000), "gone": nil}, base1)
	body := a.upload(left)
	w.append(body)
	a.priority = object.Lazy
	right := a.commit(edit{"r": noise(2, 50_000)}, base1)
	lazy := a.upload(right)
	w.append(lazy)
	a.pull()
	c := a.checkpoint(left, right)
	c.Packs = append(slices.Clone(body.Packs), lazy.Packs...)
	c.Packs = append(c.Packs, w.log[0].Body.Packs...)
	c.Tags = []format.TagChange{{Name: "tag", Commit: base1.ID}}
	c.Retention = format.Retention{Commits: 1000}
	number := w.put(c)

	a.priority = object.Eager
	next := a.commit(edit{"n": []byte("x")}, left)
	a.push()

	b := w.device(t)
	local := b.commit(edit{"own": noise(4, 2000)})
	at, res, err := b.page.Adopt(t.Context(), number)
	if err != nil {
		t.Fatal(err)
	}
	if at != c.At || res.Commits != 3 || res.Retention == nil || res.Retention.Commits != 1000 {
		t.Fatalf("position %+v, result %+v", at, res)
	}
	want := []commit.ID{left.ID, right.ID, local.ID}
	got := headIDs(b)
	slices.SortFunc(want, commit.ID.Compare)
	slices.SortFunc(got, commit.ID.Compare)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
	if cs := b.unsynced(); len(cs) != 1 || cs[0].ID != local.ID {
		t.Fatalf("unsynced %v", cs)
	}
	if held, placed := b.held(a, right); held != 0 || placed == 0 {
		t.Fatalf("lazy value: %d pieces held, %d placed", held, placed)
	}
	if diff := cmp.Diff(a.content(left), b.content(left)); diff != "" {
		t.Fatal("contents differ")
	}
	tags, err := b.s.Tags(t.Context())
	if err != nil || tags["tag"] != base1.ID {
		t.Fatalf("tags %v, %v", tags, err)
	}
	if held, err := b.s.TreeHeld(t.Context(), base1); err != nil || held {
		t.Fatalf("the tree of a commit before is here: %t, %v", held, err)
	}
	if _, _, err := b.page.Adopt(t.Context(), number); !errors.Is(err, base.ErrInvalid) {
		t.Fatalf("adopted twice: %v", err)
	}
	b.read = int(number)
	b.pull()
	if _, err := b.s.Commit(t.Context(), next.ID); err != nil {
		t.Fatal(err)
	}
	b.check()
}

// TestTakeHistory takes commits that only a checkpoint has beside what was read of the log, when an
// entry builds on them.
func TestTakeHistory(t *testing.T) {
	w := newWorld(t)
	a, b, c := w.device(t), w.device(t), w.device(t)
	a.commit(edit{"k": []byte("v")})
	a.push()
	for _, d := range []*device{b, c} {
		d.pull()
	}
	own := c.commit(edit{"own": []byte("c")})
	c.push()
	old := a.commit(edit{"k": []byte("x")})
	head := a.commit(edit{"l": []byte("y")})
	number := w.put(a.checkpoint(head))
	next := a.commit(edit{"n": []byte("w")})
	w.append(a.body(next))
	b.read = 1
	res, err := b.apply(w.log[1:]...)
	var unknown *ingest.UnknownCommitError
	if !errors.As(err, &unknown) || unknown.Commit != head.ID || !errors.Is(err, base.ErrCorrupt) || res.Commits != 1 {
		t.Fatalf("%+v, %v", res, err)
	}
	if _, found, err := b.page.TakeHistory(t.Context(), number, next.ID); found || err != nil {
		t.Fatalf("a checkpoint has what came after it: %v", err)
	}
	before, err := b.s.Metadata(t.Context(), format.MetadataPosition)
	if err != nil {
		t.Fatal(err)
	}
	if res, found, err := b.page.TakeHistory(t.Context(), number, head.ID); !found || err != nil || res.Commits != 2 {
		t.Fatalf("%+v, %t, %v", res, found, err)
	}
	if after, err := b.s.Metadata(t.Context(), format.MetadataPosition); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the position has moved, %v", err)
	}
	if held, err := b.s.TreeHeld(t.Context(), old); err != nil || held {
		t.Errorf("the tree of a commit before is here: %t, %v", held, err)
	}
	if _, err := b.apply(w.log[2:]...); err != nil {
		t.Fatal(err)
	}
	got, want := headIDs(b), []commit.ID{own.ID, next.ID}
	slices.SortFunc(got, commit.ID.Compare)
	slices.SortFunc(want, commit.ID.Compare)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(a.content(next), b.content(next)); diff != "" {
		t.Error("contents differ")
	}
	b.check()
}

// TestAdoptWithoutValue adopts a checkpoint of a device that had lost a value.
func TestAdoptWithoutValue(t *testing.T) {
	w := newWorld(t)
	a, b := w.device(t), w.device(t)
	c := a.commit(edit{"k": noise(1, 500), "l": []byte("v")})
	w.append(a.upload(c))
	lacking := a.checkpoint(c)
	lacking.Lacks = true
	_, res, err := b.page.Adopt(t.Context(), w.put(lacking))
	if err != nil || res.Missing != 1 || b.s.NewestHead().ID != c.ID {
		t.Fatalf("result %+v, %v, head %s", res, err, b.s.NewestHead().ID)
	}
}

// TestAdoptShallow adopts a checkpoint whose oldest commits were given up, of which one that is
// tagged has its tree, and goes on with entries that are built on what was given up.
func TestAdoptShallow(t *testing.T) {
	w := newWorld(t)
	a := w.device(t)
	old := a.commit(edit{"k": []byte("1")})
	tagged := a.commit(edit{"k": []byte("2")}, old)
	between := a.commit(edit{"k": []byte("3")}, tagged)
	head := a.commit(edit{"k": []byte("4")}, between)
	a.push()
	c := a.checkpoint(head)
	c.Commits = []*commit.Commit{tagged, head}
	diff, _ := a.diff(head.Root, tagged.Root)
	c.Heads, c.Trees, c.TreeBytes, c.diffs = []uint32{1}, []uint32{0}, []uint64{uint64(len(diff))}, append(c.diffs, diff)
	c.Tags = []format.TagChange{{Name: "tag", Commit: tagged.ID}, {Name: "lost", Commit: old.ID}}[:1]
	number := w.put(c)

	b := w.device(t)
	if _, res, err := b.page.Adopt(t.Context(), number); err != nil || res.Commits != 2 {
		t.Fatalf("%+v, %v", res, err)
	}
	for _, id := range []commit.ID{old.ID, between.ID} {
		if _, err := b.s.Commit(t.Context(), id); !errors.Is(err, base.ErrGone) {
			t.Errorf("a commit that was given up: %v", err)
		}
	}
	for _, k := range []*commit.Commit{tagged, head} {
		if held, err := b.s.TreeHeld(t.Context(), k); err != nil || !held {
			t.Errorf("tree of %s: %t, %v", k.ID.Short(), held, err)
		}
	}
	// A device that was away has built on a commit that was given up. The body says so, and the
	// diff leads from the head.
	late := a.commit(edit{"late": []byte("x")}, between)
	body := a.body(late)
	body.Shallow, body.Commits[0].Base = true, format.Base{Commit: head.ID}
	body.Commits[0].Diff.Inline, _ = a.diff(head.Root, late.Root)
	w.append(body)
	b.read = int(number)
	b.pull()
	if diff := cmp.Diff(a.content(late), b.content(late)); diff != "" {
		t.Error(diff)
	}
	if len(headIDs(b)) != 2 {
		t.Errorf("heads %v", headIDs(b))
	}
	b.check()
}

// TestAdoptBelowWhatIsHere passes over commits of a checkpoint that were given up here.
func TestAdoptBelowWhatIsHere(t *testing.T) {
	w := newWorld(t)
	a, b := w.device(t), w.device(t)
	one := a.commit(edit{"k": []byte("1")})
	two := a.commit(edit{"k": []byte("2")}, one)
	three := a.commit(edit{"k": []byte("3")}, two)
	a.push()
	b.pull()
	if _, err := b.s.Prune(t.Context(), []commit.ID{one.ID, two.ID}); err != nil {
		t.Fatal(err)
	}
	four := a.commit(edit{"k": []byte("4")}, three)
	a.push()
	c := a.checkpoint(four)
	c.Tags = []format.TagChange{{Name: "tag", Commit: one.ID}}
	number := w.put(c)
	if _, res, err := b.page.Adopt(t.Context(), number); err != nil || res.Commits != 1 {
		t.Fatalf("%+v, %v", res, err)
	}
	if ids := headIDs(b); len(ids) != 1 || ids[0] != four.ID {
		t.Errorf("heads %v", ids)
	}
	if tags, err := b.s.Tags(t.Context()); err != nil || len(tags) != 0 {
		t.Errorf("tags %v, %v", tags, err)
	}
	b.check()
}

// TestBuildOnWhatWasGivenUpHere takes an entry of a device that nobody knew of, which has built on
// a commit that was given up here: its tree comes from the past.
func TestBuildOnWhatWasGivenUpHere(t *testing.T) {
	w := newWorld(t)
	a, b := w.device(t), w.device(t)
	one := a.commit(edit{"k": []byte("1"), "l": []byte("1")})
	two := a.commit(edit{"k": []byte("2")}, one)
	a.push()
	b.pull()
	head := b.commit(edit{"m": []byte("1")}, two)
	b.push()
	if _, err := b.s.Prune(t.Context(), []commit.ID{one.ID, two.ID}); err != nil {
		t.Fatal(err)
	}
	late := a.commit(edit{"n": []byte("1")}, one)
	w.append(a.body(late))
	if _, err := b.apply(w.log[len(w.log)-1]); err == nil {
		t.Fatal("the entry was taken without its base")
	}
	before := w.log[:len(w.log)-1]
	history := func(yield func(*format.Entry) error) error {
		for _, e := range before {
			if err := yield(e); err != nil {
				return err
			}
		}
		return nil
	}
	b.page = ingest.New(ingest.Options{Store: b.s, Bucket: w.bucket, Sealer: w.sealer, Names: w.names, Fetcher: b.fetcher, Device: b.id,
		Past: func(context.Context, uint64) (ingest.Past, error) { return past(history), nil }})
	if _, err := b.apply(w.log[len(w.log)-1]); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(a.content(late), b.content(late)); diff != "" {
		t.Error(diff)
	}
	if _, err := b.s.Commit(t.Context(), one.ID); !errors.Is(err, base.ErrGone) {
		t.Errorf("the base: %v", err)
	}
	if ids := headIDs(b); len(ids) != 2 || !slices.Contains(ids, head.ID) {
		t.Errorf("heads %v", ids)
	}
	b.check()
}

// TestAdoptBad refuses bad checkpoints, and leaves the page as it was.
func TestAdoptBad(t *testing.T) {
	other := object.Sum(object.NodeBit, []byte("another tree"))
	for name, spoil := range map[string]func(d *device, c *checkpoint){
		"diff of another tree": func(d *device, c *checkpoint) {
			c.diffs[0], _ = d.diff(btree.EmptyRoot, c.Commits[0].Root)
			c.DiffBytes[0] = uint64(len(c.diffs[0]))
		},
		"bytes behind":  func(_ *device, c *checkpoint) { c.diffs = append(c.diffs, []byte("x")) },
		"bytes missing": func(_ *device, c *checkpoint) { c.diffs[0] = c.diffs[0][:len(c.diffs[0])-1] },
		"commit without child": func(d *device, c *checkpoint) {
			x := d.commit(edit{"y": []byte("y")}, c.Commits[0])
			c.Commits = append(c.Commits, x)
		},
		"missing value":  func(_ *device, c *checkpoint) { c.Packs = nil },
		"missing tag":    func(_ *device, c *checkpoint) { c.Tags = []format.TagChange{{Name: "t", Commit: commit.ID{4}}} },
		"another bucket": func(_ *device, c *checkpoint) { c.At.Bucket[0]++ },
		"commit not sane": func(d *device, c *checkpoint) {
			h := &hostile{device: d, base: c.Commits[0], second: c.Commits[1]}
			x := h.on(other, nil)
			c.Commits = append(c.Commits, x)
			c.Heads[0] = uint32(len(c.Commits) - 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			a, b := w.device(t), w.device(t)
			first := a.commit(edit{"k": noise(1, 5000)})
			second := a.commit(edit{"l": []byte("v")})
			body := a.upload(first, second)
			w.append(body)
			c := a.checkpoint(second)
			c.Packs = body.Packs
			spoil(a, c)
			before := b.rows()
			_, _, err := b.page.Adopt(t.Context(), w.put(c))
			var e *ingest.EntryError
			if !errors.As(err, &e) || e.Object != w.names.Checkpoint(1) {
				t.Fatalf("error %v", err)
			}
			if after := b.rows(); before != after {
				t.Fatalf("rows changed to\n%s", after)
			}
			b.pull() // the log brings it all
			b.check()
		})
	}
}

// TestAdoptMissing names a checkpoint that is not there.
func TestAdoptMissing(t *testing.T) {
	b := newWorld(t).device(t)
	if _, _, err := b.page.Adopt(t.Context(), 7); !errors.Is(err, base.ErrNotFound) {
		t.Fatalf("error %v", err)
	}
}

// TestAdoptMemory adopts a checkpoint of many entries onto a disk, and looks how much memory is
// live meanwhile.
func TestAdoptMemory(t *testing.T) {
	n := 40_000
	if tier.Nightly() {
		n = 1_000_000
	}
	w := newWorld(t)
	a := w.device(t)
	c := a.commit(many(n))
	w.append(&format.Body{Device: a.id, Retention: &format.Retention{}})
	number := w.put(a.checkpoint(c))
	var before, most int64
	live := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc) - before
	}
	watched := &spoiled{Bucket: w.bucket, spoil: func(o bucket.Object, err error) (bucket.Object, error) {
		if err == nil {
			o.Body = &watchedBody{ReadCloser: o.Body, every: 512 << 10, look: func() { most = max(most, live()) }}
		}
		return o, err
	}}
	b := w.deviceWith(t, storage.Options{Dir: filepath.Join(t.TempDir(), "page"), Page: testPage, Cache: storage.NewNodeCache(4 << 20), FoldBytes: 8 << 20}, watched) // storage has bounds of its own
	before = live()
	if _, _, err := b.page.Adopt(t.Context(), number); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d entries: at most %d bytes live", n, most)
	if most == 0 || most > 64<<20 {
		t.Fatalf("%d bytes were live", most)
	}
	if b.s.NewestHead().ID != c.ID {
		t.Fatal("it was not adopted")
	}
}

// watchedBody calls look whenever so many bytes have been read.
type watchedBody struct {
	io.ReadCloser
	every, n int
	look     func()
}

func (w *watchedBody) Read(b []byte) (int, error) {
	n, err := w.ReadCloser.Read(b)
	if w.n += n; w.n >= w.every {
		w.n = 0
		w.look()
	}
	return n, err
}

// TestBuildTree builds the trees of commits that came without.
func TestBuildTree(t *testing.T) {
	w := newWorld(t)
	a := w.device(t)
	var cs []*commit.Commit
	for i := range 40 {
		e := edit{fmt.Sprint(i % 7): fmt.Appendf(nil, "%d", i)}
		if i%5 == 0 {
			e["value"] = noise(uint64(i), 3000)
		}
		cs = append(cs, a.commit(e))
		if i == 10 {
			w.append(a.upload(cs[10]))
			a.pull()
			continue
		}
		a.push()
	}
	head := cs[len(cs)-1]
	c := a.checkpoint(head)
	_, roots := a.diff(btree.EmptyRoot, head.Root)
	packed := a.uploadValues(roots...)
	c.Packs = packed
	number := w.put(c)

	b := w.device(t)
	b.s.SetFetcher(b.fetcher)
	if _, _, err := b.page.Adopt(t.Context(), number); err != nil {
		t.Fatal(err)
	}
	var needs *ingest.NeedsTreeError
	side := a.commit(edit{"side": []byte("x")}, cs[20])
	w.append(a.body(side))
	if _, err := b.apply(w.log[number:]...); !errors.As(err, &needs) || needs.Commit != cs[20].ID || !errors.Is(err, base.ErrNeedsFetch) {
		t.Fatalf("entry on a commit without tree: %v", err)
	}
	calls := 0
	history := func(yield func(*format.Entry) error) error {
		calls++
		for _, e := range w.log {
			if err := yield(e); err != nil {
				return err
			}
		}
		return nil
	}
	for _, i := range []int{20, 12, 39, 38, 0, 25, 20} {
		if err := b.page.BuildTree(t.Context(), cs[i].ID, past(history)); err != nil {
			t.Fatalf("commit %d: %v", i, err)
		}
		if held, err := b.s.TreeHeld(t.Context(), cs[i]); err != nil || !held {
			t.Fatalf("tree of commit %d: %t, %v", i, held, err)
		}
		if diff := cmp.Diff(a.content(cs[i]), b.content(cs[i])); diff != "" {
			t.Fatalf("commit %d: %s", i, diff)
		}
	}
	before := calls
	if err := b.page.BuildTree(t.Context(), cs[20].ID, past(history)); err != nil || calls != before {
		t.Fatalf("a tree that is here: %v, %d calls", err, calls-before)
	}
	b.read = int(number)
	b.pull()
	if diff := cmp.Diff(a.content(side), b.content(side)); diff != "" {
		t.Fatal(diff)
	}
	if len(b.unsynced()) != 0 {
		t.Fatal("commits are to be sent")
	}
	b.check()

	none := func(func(*format.Entry) error) error { return nil }
	if err := b.page.BuildTree(t.Context(), cs[5].ID, past(none)); !errors.Is(err, base.ErrGone) {
		t.Fatalf("without history: %v", err)
	}
	if err := b.page.BuildTree(t.Context(), commit.ID{1}, past(none)); !errors.Is(err, base.ErrNotFound) {
		t.Fatalf("unknown commit: %v", err)
	}
}
