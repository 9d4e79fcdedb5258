package cloudsync_test

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/mem"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
)

func collectBucket(t *testing.T, p *page, o cloudsync.GCOptions) *cloudsync.GCReport {
	t.Helper()
	r, err := p.CollectGarbage(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func keepLast(t *testing.T, p *page, n uint64) {
	t.Helper()
	if err := p.SetRetention(t.Context(), cloudsync.Retention{Last: n}); err != nil {
		t.Fatal(err)
	}
}

// history returns how many commits the heads of a page reach.
func (p *page) history() (n int) {
	var ids []commit.ID
	for _, h := range p.store.Heads() {
		ids = append(ids, h.ID)
	}
	for _, err := range commit.Walk(p.d.w.t.Context(), p.store, ids) {
		if err != nil {
			p.d.w.t.Fatal(err)
		}
		n++
	}
	return n
}

func sameContent(t *testing.T, ps ...*page) {
	t.Helper()
	for i, p := range ps {
		if !maps.Equal(p.content(), ps[0].content()) {
			t.Errorf("page %d has other content", i)
		}
	}
}

// TestRetentionEndToEnd gives history up in the bucket: entries and packs that only that needs have
// no name in the new epoch, and go after 30 days; devices follow, such as were there, such as come
// back late, and new ones.
func TestRetentionEndToEnd(t *testing.T) {
	w := newWorld(t)
	a, b, away := w.device(), w.device(), w.device()
	for i := range 12 {
		a.commit(edit{"big": noise(uint64(i), 1_500_000), key(i): text("x")})
		sync(t, a, b)
		if i < 9 {
			sync(t, away)
		}
	}
	tagged, err := a.store.Commit(t.Context(), a.store.NewestHead().Parents[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := a.store.SetTag(t.Context(), "release", tagged.ID); err != nil {
		t.Fatal(err)
	}
	sync(t, a, b)
	away.close()
	delete(away.d.pages, "notes")
	keepLast(t, a, 1)
	sync(t, b)

	dry := collectBucket(t, a, cloudsync.GCOptions{DryRun: true})
	if dry.Commits < 10 || !dry.Cut || a.history() < 12 {
		t.Errorf("dry run: %+v", dry)
	}
	before := len(w.packs())
	r := collectBucket(t, a, cloudsync.GCOptions{})
	if r.Commits < 10 || !r.Cut || r.DeletedObjects != 0 || r.WaitingObjects < 20 {
		t.Errorf("the first collection: %+v", r)
	}
	if n := a.history(); n > 3 {
		t.Errorf("%d commits are left here", n)
	}
	sync(t, b)
	if n := b.history(); n > 3 {
		t.Errorf("%d commits are left on another device", n)
	}
	if n := len(w.packs()); n > before+2 {
		t.Errorf("what was given up was sent again: %d packs, then %d", before, n)
	}
	w.clock.Advance(29 * 24 * time.Hour)
	if r := collectBucket(t, b, cloudsync.GCOptions{}); r.DeletedObjects != 0 {
		t.Errorf("after 29 days: %+v", r)
	}
	w.clock.Advance(25 * time.Hour)
	if r := collectBucket(t, b, cloudsync.GCOptions{}); r.DeletedObjects < 20 {
		t.Errorf("after 30 days: %+v", r)
	}
	a.commit(edit{"after a month": text("x")}) // who has announced a pack has a month to refer to it
	sync(t, a)
	collectBucket(t, b, cloudsync.GCOptions{})
	w.clock.Advance(31 * 24 * time.Hour)
	if r := collectBucket(t, b, cloudsync.GCOptions{}); r.DeletedBytes < 12_000_000 {
		t.Errorf("after 61 days: %+v", r)
	}
	if n := len(w.entryNames("")); n > 12 {
		t.Errorf("%d entries are left", n)
	}
	if n := len(w.packs()); n > before/2 {
		t.Errorf("%d packs are left of %d", n, before)
	}
	fresh := w.device()
	sync(t, fresh)
	sameHeads(t, a, fresh)
	sameContent(t, a, b, fresh)
	if tags, err := fresh.store.Tags(t.Context()); err != nil || tags["release"] != tagged.ID {
		t.Errorf("tags %v, %v", tags, err)
	}
	// The content of the tag is there, for the new device too, also behind a checkpoint that was
	// written for another reason.
	a.commit(edit{"after": text("x")})
	if err := a.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	late := w.device()
	sync(t, late, fresh)
	for _, p := range []*page{fresh, late} {
		if err := p.BuildTree(t.Context(), tagged.ID); err != nil {
			t.Errorf("the tree of the tag: %v", err)
		}
		if held, err := p.store.TreeHeld(t.Context(), tagged); err != nil || !held {
			t.Errorf("the tree of the tag: %t, %v", held, err)
		}
	}
	// The device that was away comes back with a commit of its own.
	away.d.page("notes")
	away = away.d.pages["notes"]
	own := away.commit(edit{"own": text("late"), key(3): text("changed")})
	sync(t, away, a, b, late)
	sameHeads(t, a, b, late, away)
	sameContent(t, a, b, late, away)
	if c := a.content(); c["own"] != "late" || c["after"] != "x" {
		t.Errorf("own %q, after %q", c["own"], c["after"])
	}
	if _, err := late.store.Commit(t.Context(), own.Parents[0]); !errors.Is(err, base.ErrGone) && !errors.Is(err, base.ErrNotFound) {
		t.Errorf("what the late commit was built on: %v", err)
	}
	last := w.device()
	sync(t, last)
	sameContent(t, a, last)
}

// TestRetentionOfAWindow keeps many commits: a cut keeps them, and their trees are built
// from its checkpoint.
func TestRetentionOfAWindow(t *testing.T) {
	w := newWorld(t)
	a := w.device()
	var cs []*commit.Commit
	for i := range 240 {
		cs = append(cs, a.commit(edit{key(i % 50): fmt.Appendf(nil, "%d", i)}))
		if i%3 == 0 {
			sync(t, a)
		}
		if i%40 == 39 {
			if err := a.Checkpoint(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	sync(t, a)
	keepLast(t, a, 100)
	r := collectBucket(t, a, cloudsync.GCOptions{})
	if r.Commits < 100 || !r.Cut {
		t.Fatalf("%+v", r)
	}
	w.clock.Advance(31 * 24 * time.Hour)
	if r := collectBucket(t, a, cloudsync.GCOptions{}); r.DeletedObjects < 20 {
		t.Errorf("%+v", r)
	}
	b := w.device()
	sync(t, b)
	sameContent(t, a, b)
	if n := b.history(); n < 100 || n > 101 {
		t.Errorf("%d commits", n)
	}
	for _, i := range []int{140, 141, 170, 200, 230, 239} {
		if err := b.BuildTree(t.Context(), cs[i].ID); err != nil {
			t.Errorf("the tree of commit %d: %v", i, err)
		}
	}
}

// TestSleepsOnAnEmptyPage finds what others have put and given up again, and what is deleted of it,
// while a device that had found an empty log went on, asleep.
func TestSleepsOnAnEmptyPage(t *testing.T) {
	w := newWorld(t)
	a, b := w.device(), w.device()
	sync(t, b)
	a.commit(edit{"k": text("1")})
	keepLast(t, a, 1)
	a.commit(edit{"k": text("2")})
	collectBucket(t, a, cloudsync.GCOptions{})
	w.clock.Advance(31 * 24 * time.Hour)
	if r := collectBucket(t, a, cloudsync.GCOptions{}); r.DeletedObjects == 0 {
		t.Fatalf("%+v", r)
	}
	sync(t, b)
	sameContent(t, a, b)
}

// TestCutIsOvertaken loses the race for the closing entry to an entry that is built on what the cut
// would give up.
func TestCutIsOvertaken(t *testing.T) {
	w := newWorld(t)
	a, b := steady(t, w)
	keepLast(t, a, 1)
	sync(t, b)
	b.commit(edit{"b": text("1")})
	fired, busy := 0, false
	w.b.SetBefore(func(op bucket.Op, name string) error {
		if !busy && fired < 2 && op == bucket.OpPut && strings.Contains(name, "/log/") {
			busy = true
			fired++
			sync(t, b) // between the checkpoint and the closing entry
			b.commit(edit{"b": fmt.Appendf(nil, "%d", fired)})
			busy = false
		}
		return nil
	})
	r := collectBucket(t, a, cloudsync.GCOptions{})
	w.b.SetBefore(nil)
	if fired == 0 || !r.Cut {
		t.Errorf("%+v after %d", r, fired)
	}
	w.clock.Advance(40 * 24 * time.Hour)
	sync(t, a, b)
	collectBucket(t, b, cloudsync.GCOptions{})
	c := w.device()
	sync(t, a, b, c)
	sameContent(t, a, b, c)
	for _, n := range w.entryNames("") {
		if strings.HasSuffix(n, "00001") {
			t.Error("the first entry is still there")
		}
	}
}

// TestErase gives commits up by name: all devices prune them, and the bucket is rid of the value
// after the grace, while the rest of the history stays.
func TestErase(t *testing.T) {
	w := newWorld(t)
	a, b := w.device(), w.device()
	var cs []*commit.Commit
	secret := noise(99, 1_200_000)
	for i := range 8 {
		e := edit{key(i): text("x")}
		switch i {
		case 1:
			e["stays"] = noise(7, 900_000) // in one pack with the next, perhaps
		case 2:
			e["secret"] = secret
		case 5:
			e["secret"] = nil
		}
		cs = append(cs, a.commit(e))
		if i != 1 {
			sync(t, a, b)
		}
		if i == 3 {
			if err := a.Checkpoint(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	var gone []commit.ID
	var roots []object.Digest
	for _, c := range cs[2:5] {
		gone = append(gone, c.ID)
		e, ok, err := btree.Tree{Page: testPage, Source: a.store, Root: c.Root}.Get(t.Context(), []byte("secret"))
		if err != nil || !ok {
			t.Fatal(err)
		}
		roots = append(roots, e.Digest)
	}
	st, err := a.store.PieceState(roots[0])
	if err != nil || !st.Synced {
		t.Fatal(err)
	}
	if _, err := a.Erase(t.Context(), []commit.ID{cs[7].ID}, nil); !errors.Is(err, base.ErrConflict) {
		t.Errorf("a head: %v", err)
	}
	before := w.packs()
	r, err := a.Erase(t.Context(), gone, roots)
	if err != nil || r.Commits != len(gone) || !r.Cut {
		t.Fatalf("%+v, %v", r, err)
	}
	sync(t, b, a)
	for _, p := range []*page{a, b} {
		if st, err := p.store.PieceState(roots[0]); err != nil || st.Held || st.Synced {
			t.Errorf("the value is here: %+v, %v", st, err)
		}
		if _, err := p.store.Commit(t.Context(), cs[4].ID); !errors.Is(err, base.ErrGone) {
			t.Errorf("a commit that held it: %v", err)
		}
	}
	w.clock.Advance(31 * 24 * time.Hour)
	collectBucket(t, b, cloudsync.GCOptions{})
	left := w.packs()
	for _, id := range before {
		if strings.Contains(id, epoch.ID(st.Place.Pack).String()) && slices.Contains(left, id) {
			t.Error("the pack with the value is still there")
		}
	}
	if n := len(w.entryNames("")); n > 4 {
		t.Errorf("%d entries are left", n)
	}
	c := w.device()
	sync(t, c)
	sameHeads(t, a, c)
	sameContent(t, a, b, c)
	for _, i := range []int{5, 6} { // what is older hangs on nothing any more
		if err := c.BuildTree(t.Context(), cs[i].ID); err != nil {
			t.Errorf("the tree of commit %d: %v", i, err)
		}
	}
}

// TestReuploadShallowHistory makes a wiped bucket whole again from devices that have given history
// up.
func TestReuploadShallowHistory(t *testing.T) {
	w := newWorld(t)
	a, b := steady(t, w)
	for i := range 5 {
		a.commit(edit{"k": fmt.Appendf(nil, "%d", i), "big": noise(uint64(i), 3000)})
	}
	sync(t, a, b)
	keepLast(t, a, 2)
	collectBucket(t, a, cloudsync.GCOptions{})
	sync(t, b)
	w.b.Wipe()
	w.connect()
	for _, p := range []*page{a, b} {
		p.reopen()
	}
	a, b = a.d.pages["notes"], b.d.pages["notes"]
	for _, p := range []*page{a, b} {
		if missing, err := p.Reupload(t.Context()); err != nil || missing != 0 {
			t.Fatalf("%d pieces are missing, %v", missing, err)
		}
	}
	b.commit(edit{"b": text("1")})
	sync(t, b, a)
	c := w.device()
	sync(t, c)
	sameHeads(t, a, b, c)
	sameContent(t, a, b, c)
}

// TestRetentionIsCarriedOver sets the retention, and then has the bucket wiped, replaced, rolled
// back or damaged: uploading anew sets it again, unless the bucket says something else.
func TestRetentionIsCarriedOver(t *testing.T) {
	retentionOf := func(p *page) cloudsync.Retention {
		t.Helper()
		r, err := cloudsync.RetentionOf(t.Context(), p.store)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	const n = 7
	for name, c := range map[string]struct {
		lose func(w *world, a *page, old mem.State)
		want uint64
	}{
		"wiped":       {func(w *world, _ *page, _ mem.State) { w.b.Wipe(); w.connect() }, n},
		"rolled back": {func(w *world, _ *page, old mem.State) { w.b.Rollback(old) }, n},
		"damaged":     {func(w *world, a *page, _ mem.State) { w.remove(w.entryNames("")[3]) }, n},
		"another that says something": {func(w *world, _ *page, _ mem.State) {
			w.b.Wipe()
			w.connect()
			c := w.device()
			c.commit(edit{"c": text("x")})
			sync(t, c)
			keepLast(t, c, 5)
		}, 5},
		"another that keeps all": {func(w *world, _ *page, _ mem.State) {
			w.b.Wipe()
			w.connect()
			c := w.device()
			c.commit(edit{"c": text("x")})
			sync(t, c)
			keepLast(t, c, 5)
			keepLast(t, c, 0)
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			a, b := steady(t, w)
			old := w.b.State()
			keepLast(t, a, n)
			sync(t, b)
			a.commit(edit{"more": text("x")})
			sync(t, a, b)
			c.lose(w, a, old)
			for _, p := range []*page{a, b} {
				p.reopen()
				if _, err := p.Reupload(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			fresh := w.synced()
			for i, p := range []*page{a, b, fresh} {
				sync(t, p)
				if r := retentionOf(p); r != (cloudsync.Retention{Last: c.want}) {
					t.Errorf("page %d has %+v", i, r)
				}
			}
			same(t, a, b, fresh)
			if n := a.counts(func() { sync(t, a, b) }); n.A != 0 {
				t.Errorf("it is said again: %+v", n)
			}
		})
	}
}

// TestRetentionIsCarriedThroughACrash ends a device at every request of an upload to an empty
// bucket.
func TestRetentionIsCarriedThroughACrash(t *testing.T) {
	w := newWorld(t)
	a, _ := steady(t, w)
	keepLast(t, a, 7)
	w.b.Wipe()
	w.connect()
	for at := 1; ; at++ {
		a.reopen()
		var n atomic.Int64
		w.b.SetBefore(func(bucket.Op, string) error {
			if n.Add(1) >= int64(at) {
				return fs.ErrPermission
			}
			return nil
		})
		_, err := a.Reupload(t.Context())
		w.b.SetBefore(nil)
		if r, err := cloudsync.RetentionOf(t.Context(), a.store); err != nil || r.Last != 7 {
			t.Fatalf("request %d: %+v, %v", at, r, err)
		}
		if err == nil {
			break
		}
	}
	if r, err := cloudsync.RetentionOf(t.Context(), w.synced().store); err != nil || r.Last != 7 {
		t.Errorf("a new device has %+v, %v", r, err)
	}
}

// TestEraseIsTakenUpAgain lets the bucket refuse everything from the nth request of an Erase on,
// for every n, and erases again on a device that was opened anew: the pack with the value goes,
// also when the commits are given up already.
func TestEraseIsTakenUpAgain(t *testing.T) {
	again := 0
	for n := 0; ; n++ {
		w := newWorld(t)
		a := w.device()
		old := a.commit(edit{"secret": noise(99, 1_200_000)})
		sync(t, a)
		a.commit(edit{"secret": nil})
		a.commit(edit{"other": text("x")})
		sync(t, a)
		e, ok, err := btree.Tree{Page: testPage, Source: a.store, Root: old.Root}.Get(t.Context(), []byte("secret"))
		if err != nil || !ok || len(w.packs()) != 1 {
			t.Fatal(ok, err, w.packs())
		}
		secret := w.packs()[0]
		var asked atomic.Int64 // several requests may be under way
		w.b.SetBefore(func(op bucket.Op, name string) error {
			if asked.Add(1) > int64(n) {
				return fmt.Errorf("%s %s: not now", op, name)
			}
			return nil
		})
		_, err = a.Erase(t.Context(), []commit.ID{old.ID}, []object.Digest{e.Digest})
		w.b.SetBefore(nil)
		if err == nil {
			if again == 0 {
				t.Error("no Erase was interrupted behind the pruning")
			}
			return
		}
		a.reopen()
		var ids []commit.ID
		var values []object.Digest
		sync(t, a)
		if _, err := a.store.Commit(t.Context(), old.ID); err == nil {
			ids, values = append(ids, old.ID), append(values, e.Digest)
		} else if begun, err := cloudsync.Erasing(t.Context(), a.store); err != nil || !begun {
			t.Fatalf("request %d failed: the commit is gone, and the erasure is forgotten: %v", n, err)
		} else {
			again++
		}
		if _, err := a.Erase(t.Context(), ids, values); err != nil {
			t.Fatalf("request %d failed, and then: %v", n, err)
		}
		w.clock.Advance(31 * 24 * time.Hour)
		collectBucket(t, a, cloudsync.GCOptions{})
		if left := w.packs(); slices.Contains(left, secret) {
			t.Fatalf("request %d failed: %v is left", n, left)
		}
		if err := cloudsync.EndErasing(t.Context(), a.store); err != nil {
			t.Fatal(err)
		}
		if begun, err := cloudsync.Erasing(t.Context(), a.store); err != nil || begun {
			t.Fatal(begun, err)
		}
	}
}

// TestEraseBesideASnapshot erases a value while a snapshot stands on an older commit that was given
// up.
func TestEraseBesideASnapshot(t *testing.T) {
	w := newWorld(t)
	a := w.device()
	a.commit(edit{"k": []byte("0")})
	sync(t, a)
	defer a.store.Pin(a.store.NewestHead().ID)()
	a.commit(edit{"secret": []byte("s")})
	sync(t, a)
	secret := a.store.NewestHead()
	a.commit(edit{"secret": []byte("t")})
	sync(t, a)
	collectBucket(t, a, cloudsync.GCOptions{Retention: &cloudsync.Retention{Last: 2}})
	if _, err := a.Erase(t.Context(), []commit.ID{secret.ID}, nil); err != nil {
		t.Error(err)
	}
}
