package cloudsync_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/internal/tier"
)

// kinds are parts of the names of objects of each kind, with which of them in order.
var kinds = map[string]struct {
	part string
	nth  int
	// missing says that nothing tells that one is missing.
	missing bool
}{
	"announcement":        {"pages/", 0, false},
	"first entry":         {"/log/00000000000000000001", 0, true}, // the range has it too
	"entry":               {"/log/00000000000000000005", 0, true},
	"last entry":          {"/log/000000000000000000", -1, false},
	"range":               {"/log/00000000000000000001-", 0, true},
	"first pack":          {"/packs/", 0, false},
	"second pack":         {"/packs/", 1, false},
	"third pack":          {"/packs/", 2, false},
	"fourth pack":         {"/packs/", 3, false},
	"checkpoint":          {"/checkpoints/", 0, true},
	"entry behind all is": {"/log/00000000000000000034", 0, false},
}

// scene is a page with all kinds of objects in the bucket, and three devices: one that has written
// all, one that has read all, and one that has read the beginning.
func scene(t *testing.T) (w *world, a, b, behind *page) {
	w = newWorld(t)
	a, b, behind = w.device(), w.device(), w.device()
	a.commit(edit{"eager": noise(1, 1_200_000), "small": text("x")})
	sync(t, a, behind)
	a.commit(edit{"lazy": append([]byte("lazy:"), noise(2, 1_500_000)...), "inline lazy": append([]byte("lazy:"), noise(3, 9000)...)})
	many := edit{}
	for i := range 6000 {
		many[fmt.Sprintf("long key %0200d", i)] = text("y")
	}
	a.commit(many)
	for i := range 30 {
		a.commit(edit{key(i): noise(uint64(10+i), 400)})
		sync(t, a)
	}
	if err := a.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		a.commit(edit{key(i): noise(uint64(50+i), 400)})
		sync(t, a)
	}
	a.commit(edit{"eager, later": noise(4, 1_100_000)})
	sync(t, a, b)
	return w, a, b, behind
}

// TestCheckNamesAndRepairs spoils one object of each kind in each way. Check names it and nothing
// else, whoever asks; the device that has everything repairs it, the others go on, and a second
// check is clean.
func TestCheckNamesAndRepairs(t *testing.T) {
	hows := slices.Sorted(maps.Keys(spoilers))
	for i, kind := range slices.Sorted(maps.Keys(kinds)) {
		if tier.Level() == 0 && i%2 > 0 {
			continue
		}
		k := kinds[kind]
		for j, how := range hows {
			if how == "missing" && k.missing || !tier.Nightly() && j != i%len(hows) {
				continue
			}
			spoil := spoilers[how]
			t.Run(kind+" "+how, func(t *testing.T) {
				w, a, b, behind := scene(t)
				var names []string
				for _, n := range w.b.Names() {
					if strings.Contains(n, k.part) {
						names = append(names, n)
					}
				}
				if k.nth < 0 {
					k.nth += len(names)
				}
				if len(names) <= k.nth {
					t.Fatalf("%q has %d objects of this kind", w.b.Names(), len(names))
				}
				name := names[k.nth]
				spoil(w, name)
				for i, p := range []*page{a, b} {
					r, err := p.Check(t.Context(), cloudsync.CheckOptions{})
					if err != nil {
						t.Fatalf("device %d: %v", i, err)
					}
					if how == "missing" && i == 1 && len(r.Damaged) == 0 {
						continue // nothing of this device stands in it
					}
					if len(r.Damaged) != 1 || r.Damaged[0].Name != name || r.Repaired || r.Objects < 10 {
						t.Fatalf("device %d: %+v, want %s", i, r, name)
					}
				}
				a.commit(edit{"more": text("x")})
				r, err := a.Check(t.Context(), cloudsync.CheckOptions{Repair: true})
				if err != nil || !r.Repaired || r.Missing > 0 {
					t.Fatalf("%+v, %v", r, err)
				}
				for _, p := range []*page{a, b, behind} {
					p.commit(edit{"own": text(p.d.id.String())})
				}
				for range 2 {
					sync(t, b, behind, a)
				}
				for i, p := range []*page{a, b, behind} {
					if r, err = p.Check(t.Context(), cloudsync.CheckOptions{Repair: true}); err != nil || len(r.Damaged) > 0 || r.Repaired {
						t.Errorf("device %d, again: %+v, %v", i, r, err)
					}
				}
				fresh := w.synced()
				same(t, a, b, behind, fresh)
				buildsAll(t, a, fresh)
			})
		}
	}
}

// buildsAll checks that a device can build every tree that the other one has.
func buildsAll(t *testing.T, has, builds *page) {
	t.Helper()
	ids, err := has.store.FindCommits(t.Context(), nil, false, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		c, err := has.store.Commit(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if held, err := has.store.TreeHeld(t.Context(), c); err != nil || !held {
			continue
		}
		if held, err := builds.store.TreeHeld(t.Context(), c); err == nil && held {
			continue
		}
		if err := builds.BuildTree(t.Context(), id); err != nil {
			t.Errorf("tree of %s: %v", id.Short(), err)
		}
	}
}

// TestCheckTellsOfNewerObjects changes the byte of an announcement that says which version has
// written it.
func TestCheckTellsOfNewerObjects(t *testing.T) {
	w := newWorld(t)
	a := w.device()
	a.commit(edit{"k": text("x"), "long": noise(1, 1_200_000)})
	sync(t, a)
	for _, n := range w.b.Names() {
		if !strings.HasPrefix(n, "pages/") && !strings.Contains(n, "/packs/") {
			continue
		}
		good, _ := w.b.Content(n)
		bad := slices.Clone(good)
		bad[0]++
		w.b.Replace(n, bad)
		for _, repair := range []bool{false, true} {
			r, err := a.Check(t.Context(), cloudsync.CheckOptions{Repair: repair && !strings.Contains(n, "/packs/")})
			if err != nil || len(r.Newer)+len(r.Damaged) != 1 || len(r.Newer) != 1 != strings.Contains(n, "/packs/") || r.Repaired {
				t.Errorf("%s: %+v, %v", n, r, err)
			}
		}
		w.b.Replace(n, good)
	}
}

// TestDamagedFloorIsPutBack damages a floor, which the devices that have read it remember.
func TestDamagedFloorIsPutBack(t *testing.T) {
	for how, spoil := range spoilers {
		if how == "missing" {
			continue
		}
		w := newWorld(t)
		a, b := w.device(), w.device()
		for i := range 8 {
			a.commit(edit{key(i): noise(uint64(i), 3000)})
			sync(t, a, b)
		}
		keepLast(t, a, 2)
		sync(t, b)
		collectBucket(t, a, cloudsync.GCOptions{})
		w.clock.Advance(31 * 24 * time.Hour)
		sync(t, a, b)
		collectBucket(t, a, cloudsync.GCOptions{})
		name := a.names().Floor(1)
		spoil(w, name)
		if err := w.device().Sync(t.Context()); err == nil || !strings.Contains(err.Error(), name) {
			t.Fatalf("%s: a new device: %v", how, err)
		}
		r, err := a.Check(t.Context(), cloudsync.CheckOptions{})
		if err != nil || len(r.Damaged) != 1 || r.Damaged[0].Name != name {
			t.Fatalf("%s: %+v, %v", how, r, err)
		}
		if r, err := a.Check(t.Context(), cloudsync.CheckOptions{Repair: true}); err != nil || !r.Repaired || r.Missing > 0 {
			t.Fatalf("%s: %+v, %v", how, r, err)
		}
		a.commit(edit{"more": text("x")})
		sync(t, a, b)
		for i, p := range []*page{a, b} {
			if r, err := p.Check(t.Context(), cloudsync.CheckOptions{}); err != nil || len(r.Damaged) > 0 {
				t.Errorf("%s: device %d: %+v, %v", how, i, r, err)
			}
		}
		same(t, a, b, w.synced())
	}
}

// TestRepairBySomebodyWithoutTheValue damages a pack with a lazy value, which is repaired by a
// device that never read it. What can still be read of it stays; the device that has the rest sends
// it by itself.
func TestRepairBySomebodyWithoutTheValue(t *testing.T) {
	w := newWorld(t)
	a, b := w.device(), w.device()
	a.commit(edit{"lazy": append([]byte("lazy:"), noise(2, 2_500_000)...), "k": text("x")})
	sync(t, a, b)
	name := w.packs()[0]
	spoilers["damaged"](w, name)
	r, err := b.Check(t.Context(), cloudsync.CheckOptions{Repair: true})
	if err != nil || !r.Repaired || len(r.Damaged) != 1 || r.Damaged[0].Name != name || r.Missing == 0 || r.Missing > 20 {
		t.Fatalf("%+v, %v", r, err)
	}
	if _, ok := w.b.Content(name); ok {
		t.Error("the damaged pack is there")
	}
	early := w.synced()
	sync(t, a, b, early)
	same(t, a, b, early, w.synced())
	for i, p := range []*page{a, b, early} {
		if r, err := p.Check(t.Context(), cloudsync.CheckOptions{}); err != nil || len(r.Damaged) > 0 {
			t.Errorf("device %d: %+v, %v", i, r, err)
		}
	}
}

// TestRepairByANewDeviceDeletesNothing lets a device repair that has nothing: what it cannot read,
// others may.
func TestRepairByANewDeviceDeletesNothing(t *testing.T) {
	for how, spoil := range spoilers {
		if how == "missing" {
			continue
		}
		w := newWorld(t)
		a := w.device()
		a.commit(edit{"long": noise(1, 1_500_000)})
		sync(t, a)
		before := w.b.Names()
		spoil(w, w.packs()[0])
		c := w.device()
		if r, err := c.Check(t.Context(), cloudsync.CheckOptions{Repair: true}); err == nil || r.Repaired {
			t.Errorf("%s: %+v, %v", how, r, err)
		}
		if after := w.b.Names(); !slices.Equal(after, before) {
			t.Errorf("%s: objects %q, were %q", how, after, before)
		}
		if r, err := a.Check(t.Context(), cloudsync.CheckOptions{Repair: true}); err != nil || !r.Repaired {
			t.Errorf("%s: %+v, %v", how, r, err)
		}
		sync(t, c)
		same(t, a, c)
	}
}
