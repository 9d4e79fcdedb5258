package replica_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledger/cloudsync/checkpoint"
	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/replica"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/tier"
	"github.com/ledgerd/ledger/object"
)

func (d *device) retain(r wire.Retention) {
	d.t.Helper()
	out, err := d.page.Retain(d.t.Context(), r)
	if err == nil {
		_, err = d.log.Append(d.t.Context(), out)
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// change commits a value of a key. The models of other commits go: nothing compares with them.
func (d *device) change(key string, n int) {
	d.t.Helper()
	d.models = map[commit.ID]map[string]val{d.s.NewestHead().ID: {}}
	d.commit(edit{key: text(noise(uint64(n), 30))})
}

// send puts an entry with what is unsynced.
func (d *device) send() {
	d.t.Helper()
	body, err := d.page.Next(d.t.Context(), d.log.Append)
	if err == nil {
		_, err = d.log.Append(d.t.Context(), body)
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

func (d *device) cut() {
	d.t.Helper()
	if err := d.log.Cut(d.t.Context()); err != nil {
		d.t.Fatal(err)
	}
}

// wantSame proves that devices have one head, with all values.
func wantSame(t *testing.T, ds ...*device) {
	t.Helper()
	var head commit.ID
	for i, d := range ds {
		h := d.wantHead()
		if i > 0 && h.ID != head {
			t.Fatalf("device %d has head %s, want %s", i, h.ID.Short(), head.Short())
		}
		head = h.ID
	}
}

// wantAllTrees proves that a device has every commit of the log, and gets the trees of all.
func (d *device) wantAllTrees(want int) {
	d.t.Helper()
	ids, err := d.s.FindCommits(d.t.Context(), nil, false, 1<<20)
	if err != nil {
		d.t.Fatal(err)
	}
	var cs []*commit.Commit
	var of []commit.ID
	for _, id := range ids {
		c, err := d.s.Commit(d.t.Context(), id)
		if err != nil {
			d.t.Fatal(err)
		}
		if !c.IsFirst() {
			cs, of = append(cs, c), append(of, id)
		}
	}
	if len(cs) != want {
		d.t.Fatalf("%d commits, want %d", len(cs), want)
	}
	if err := d.page.BuildTrees(d.t.Context(), of); err != nil {
		d.t.Fatal(err)
	}
	for _, c := range cs {
		d.wantTree(c)
	}
}

// content are edits with short and long values, and one long difference.
func content(d *device, n int) {
	for i := range n {
		e := edit{fmt.Sprint("k", i%7): text(noise(uint64(i), 40)), fmt.Sprint("v", i%5): text(noise(uint64(1000+i), 3000))}
		if i%6 == 3 {
			e["long"] = text(noise(uint64(2000+i), 200_000))
			e["lazy"] = &val{noise(uint64(3000+i), 150_000), true}
		}
		if i%9 == 5 {
			for k := range 400 {
				e[fmt.Sprint("d", k)] = text(noise(uint64(i*1000+k), 40))
			}
		}
		d.commit(e)
		d.mustSync()
	}
}

func TestACutThatKeepsAll(t *testing.T) {
	w := newWorld(t)
	a, b := w.device(), w.device()
	a.mustSync()
	b.mustSync()
	for range 4 {
		content(a, 12)
		a.cut()
		b.mustSync()
		wantSame(t, a, b)
	}
	a.mustSync()
	c := w.device()
	c.mustSync()
	wantSame(t, a, b, c)
	c.wantAllTrees(48)
	if _, err := c.log.Audit(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	content(c, 3)
	c.cut()
	a.mustSync()
	wantSame(t, a, c)
}

// TestCheckpointsAreNotCompressed: no part of a checkpoint is compressed, since it has what is from
// different commits. The differences are short ones, which stand in their run, and longer ones.
func TestCheckpointsAreNotCompressed(t *testing.T) {
	const commits, length = 100, 200
	for _, keys := range []int{1, 5} {
		w := newWorld(t)
		a := w.device()
		for i := range commits {
			e := edit{}
			for k := range keys {
				e[fmt.Sprint(i, k)] = text(strings.Repeat("x", length))
			}
			a.commit(e)
			a.mustSync()
		}
		_, before := w.objects(wire.KindPack)
		a.cut()
		_, runs := w.objects(wire.KindCheckpoint)
		_, packs := w.objects(wire.KindPack)
		if all := runs + packs - before; all < int64(2*commits*keys*length) { // in snapshots, and in commits
			t.Errorf("%d keys: the checkpoint has %d bytes, for %d of values", keys, all, commits*keys*length)
		}
	}
}

func TestManyCutsMergeRunsAndSnapshots(t *testing.T) {
	w := newWorld(t)
	a := w.device()
	a.mustSync()
	for i := range 40 {
		a.commit(edit{fmt.Sprint(i % 13): text(fmt.Sprint(i)), fmt.Sprint((i + 5) % 13): nil})
		a.mustSync()
		a.cut()
	}
	h := a.page.State().Header
	if len(h.Runs) > 20 || len(h.Snapshots) > 20 || len(h.Snapshots) < 2 {
		t.Fatalf("%d runs, %d snapshots", len(h.Runs), len(h.Snapshots))
	}
	b := w.device()
	b.mustSync()
	wantSame(t, a, b)
	b.wantAllTrees(40)
}

func TestACutThatGivesUpHistory(t *testing.T) {
	w := newWorld(t)
	a, b := w.device(), w.device()
	a.mustSync()
	content(a, 10)
	b.mustSync()
	a.retain(wire.Retention{Last: 4})
	for range 3 {
		content(a, 10)
		tagged := a.s.NewestHead()
		if err := a.s.SetTag(t.Context(), "t", tagged.ID); err != nil {
			t.Fatal(err)
		}
		content(a, 8)
		a.cut()
		a.mustSync()
		b.mustSync()
		wantSame(t, a, b)
		c := w.device()
		c.mustSync()
		wantSame(t, a, b, c)
		c.wantAllTrees(5)
		a.wantAllTrees(5)
	}
	// What was given up is not named any more.
	named := a.page.Named()
	w.clock.Advance(40 * 24 * time.Hour)
	if err := a.log.Look(t.Context()); err != nil {
		t.Fatal(err)
	}
	s, err := a.log.Sweep(t.Context(), named, a.page.NamedBy, false)
	if err != nil || s.DeletedObjects == 0 {
		t.Fatalf("%+v, %v", s, err)
	}
	c := w.device()
	c.mustSync()
	wantSame(t, a, c)
	c.wantAllTrees(5)
}

func TestOfflineCommitsPassACut(t *testing.T) {
	w := newWorld(t)
	a, b := w.device(), w.device()
	a.mustSync()
	content(a, 6)
	b.mustSync()
	b.commit(edit{"mine": text(noise(77, 9000)), "more": {noise(78, 300_000), true}})
	a.retain(wire.Retention{Last: 1})
	content(a, 6)
	a.cut()
	b.mustSync()
	a.mustSync()
	wantSame(t, a, b)
	a.cut()
	b.mustSync()
	c := w.device()
	c.mustSync()
	wantSame(t, a, b, c)
}

// TestCommitsDuringACut enters an epoch while a commit of the app is on its way to the disk: it
// stays a head, and goes up.
func TestCommitsDuringACut(t *testing.T) {
	ctx := t.Context()
	for _, beside := range []bool{false, true} {
		w := newFleet(t, 3, 2)
		a, b := w.devices[0], w.devices[1]
		base := b.commit(puts{"k": {content: []byte("1")}})
		w.must(b.sync(ctx))
		w.must(a.sync(ctx))
		w.must(b.log.Cut(ctx))
		if beside {
			a.commit(puts{"beside": {content: []byte("2")}}, base)
		}
		c, pending := a.submit(puts{"late": {content: []byte("3")}}, base)
		_, err := a.log.CatchUp(ctx)
		w.must(err)
		w.must(pending.Wait())
		if heads := a.store.Heads(); !slices.ContainsFunc(heads, func(h *commit.Commit) bool { return h.ID == c.ID }) {
			t.Errorf("commit %s is no head of %d", c.ID.Short(), len(heads))
		}
		w.must(a.sync(ctx))
		w.must(b.sync(ctx))
		if got := b.content(b.store.NewestHead())["late"]; got != "3" {
			t.Errorf("the other device has %q", got)
		}
	}
}

func TestErasing(t *testing.T) {
	w := newWorld(t)
	a, b := w.device(), w.device()
	a.mustSync()
	secret := text(noise(5, 300_000))
	first := a.commit(edit{"x": text("1"), "keep": text(noise(6, 200_000))})
	a.mustSync()
	bad := a.commit(edit{"secret": secret})
	a.mustSync()
	a.cut()
	a.commit(edit{"secret": nil, "y": text("2")})
	a.mustSync()
	b.mustSync()
	j := a.s.NewJournal()
	entry, err := entryOf(t.Context(), j, "secret", secret)
	j.Rollback()
	if err != nil {
		t.Fatal(err)
	}
	a.page.SetErase(replica.Erase{Commits: []commit.ID{bad.ID}, Values: []object.Digest{entry.Digest}})
	a.cut()
	a.mustSync()
	b.mustSync()
	c := w.device()
	c.mustSync()
	wantSame(t, a, b, c)
	c.wantAllTrees(2)
	if _, err := c.s.Commit(t.Context(), first.ID); err != nil {
		t.Fatal(err)
	}
	st, err := c.s.PieceState(entry.Digest)
	if err != nil || st.Synced || st.Held {
		t.Fatalf("the erased value is %+v, %v", st, err)
	}
}

func TestARenewalRepairs(t *testing.T) {
	for _, kind := range []wire.Kind{wire.KindPack, wire.KindCheckpoint, wire.KindEntry, 0} {
		t.Run(fmt.Sprint(kind), func(t *testing.T) {
			w := newWorld(t)
			a, b := w.device(), w.device()
			a.mustSync()
			content(a, 8)
			a.cut()
			content(a, 8)
			b.mustSync()
			for _, name := range w.b.Names() {
				if x, ok := w.names.Parse(name); ok && (kind == 0 || x.Kind == kind) {
					if err := w.b.Delete(t.Context(), name); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := a.log.Renew(t.Context(), false); err != nil {
				t.Fatal(err)
			}
			a.mustSync()
			b.mustSync()
			c := w.device()
			c.mustSync()
			wantSame(t, a, b, c)
			c.wantAllTrees(16)
		})
	}
}

func TestTagsThatAreNotSentPutACutOff(t *testing.T) {
	w := newWorld(t)
	a := w.device()
	a.mustSync()
	c := a.commit(edit{"a": text("1")})
	a.mustSync()
	if err := a.s.SetTag(t.Context(), "one", c.ID); err != nil {
		t.Fatal(err)
	}
	if err := a.log.Cut(t.Context()); !errors.Is(err, base.ErrConflict) {
		t.Fatal(err)
	}
}

// TestCheckpointNamesWhatItNeeds reads the checkpoint of a cut as it stands in the bucket.
func TestCheckpointNamesWhatItNeeds(t *testing.T) {
	w := newWorld(t)
	a := w.device()
	a.mustSync()
	content(a, 20)
	a.retain(wire.Retention{Last: 6})
	a.cut()
	store := checkpoint.New(checkpoint.Options{Bucket: w.b, Sealer: w.seal, Names: w.names, NewID: w.id})
	h := a.page.State().Header
	kept := map[commit.ID]*wire.Commit{}
	places := map[epoch.ID]bool{}
	err := store.Each(t.Context(), h, wire.Commits, func(r wire.Record) error {
		c := r.(*wire.Commit)
		kept[c.Commit.ID] = c
		if c.Diff.Place != nil {
			places[c.Diff.Place.Pack] = true
		}
		return nil
	})
	if err != nil || len(kept) != 6 {
		t.Fatalf("%d commits, %v", len(kept), err)
	}
	bare := 0
	for _, c := range kept {
		if c.Near != nil {
			bare++
			continue
		}
		if kept[c.Base] == nil || c.Base != c.Commit.Parents[0] {
			t.Fatalf("commit %s has base %s", c.Commit.ID.Short(), c.Base.Short())
		}
	}
	if bare != 1 {
		t.Fatalf("%d commits have lost parents", bare)
	}
	err = store.Each(t.Context(), h, wire.Packs, func(r wire.Record) error {
		p := r.(*wire.Pack)
		if _, there := w.b.Content(w.names.Pack(p.Epoch, p.ID)); !there && !p.Dropped {
			t.Fatalf("pack %x is not there", p.ID)
		}
		if p.Pieces == 0 && !p.Dropped && !places[p.ID] {
			t.Fatalf("difference %x is named and not needed", p.ID)
		}
		if !p.Dropped {
			delete(places, p.ID)
		}
		return nil
	})
	if err != nil || len(places) > 0 {
		t.Fatalf("%d differences are not named, %v", len(places), err)
	}
	gone, err := store.Gone(t.Context(), h)
	if err != nil || len(gone) != 14 {
		t.Fatalf("%d commits are gone, %v", len(gone), err)
	}
}

// TestCostOfOneKeyCommits holds the bytes of all uploads for commits of one key, with a cut every
// 1024 entries and all history kept, against their bounds: 3 KiB a commit, whatever their number,
// and half more than what the first 10,000 took.
func TestCostOfOneKeyCommits(t *testing.T) {
	commits := tier.Of(2048, 2048, 100_000)
	w := newWorld(t)
	if tier.Level() > 2 {
		commits, w.dir = 1_000_000, t.TempDir()
	}
	a := w.device()
	a.mustSync()
	r := rand.New(rand.NewPCG(1, 1))
	var first int64 // bytes a commit, of the first 10,000
	for i := 1; i <= commits; i++ {
		a.change(fmt.Sprintf("key %d", r.IntN(100_000)), i)
		a.send()
		if i%1024 == 0 {
			a.cut()
		}
		if i != 10_000 && i != commits {
			continue
		}
		each := w.m.Counts().Up / int64(i)
		if first == 0 {
			first = each
		}
		t.Logf("%d bytes a commit of %d", each, i)
		if each > 3<<10 || each > first/2*3 {
			t.Fatalf("%d bytes a commit of %d, and %d of the first ones", each, i, first)
		}
	}
}

// TestSnapshotsOfAPageThatShrinks removes most of a page: who comes new does not read what is gone.
func TestSnapshotsOfAPageThatShrinks(t *testing.T) {
	w := newWorld(t)
	a := w.device()
	a.mustSync()
	all, most := edit{}, edit{}
	for i := range 200 {
		k := fmt.Sprintf("key %03d", i)
		if all[k] = text("a value"); i%4 > 0 {
			most[k] = nil
		}
	}
	for i, e := range []edit{all, most} {
		a.commit(e)
		a.mustSync()
		a.cut()
		if s := a.page.State().Header.Snapshots; len(s) != 1 || !s[0].From.IsZero() || s[0].Whole != s[0].Diff.Bytes {
			t.Errorf("cut %d: %+v", i, s)
		}
	}
	b := w.device()
	b.mustSync()
	wantSame(t, a, b)
}
