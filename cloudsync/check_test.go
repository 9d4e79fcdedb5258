package cloudsync_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/internal/tier"
)

// kinds are parts of the names of objects of each kind, with which of them in order.
var kinds = map[string]struct {
	part string
	nth  int
	// missing says that other devices take a missing one for a bucket that was rolled back.
	missing bool
}{
	"announcement":   {"pages/", 0, false},
	"own epoch":      {"/epochs/", -1, true},
	"entry":          {"/log/", 0, false},
	"last entry":     {"/log/", -1, false},
	"first pack":     {"/packs/", 0, false},
	"second pack":    {"/packs/", 1, false},
	"third pack":     {"/packs/", 2, false},
	"fourth pack":    {"/packs/", 3, false},
	"a checkpoint":   {"/checkpoints/", 0, false},
	"2nd checkpoint": {"/checkpoints/", 1, false},
	"3rd checkpoint": {"/checkpoints/", 2, false},
}

// named returns the names of objects with a part, of entries and checkpoints those of the present
// epoch.
func (p *page) named(part string) (names []string) {
	st, err := cloudsync.StandingOf(p.d.w.t.Context(), p.store)
	if err != nil {
		p.d.w.t.Fatal(err)
	}
	for _, n := range p.d.w.b.Names() {
		if strings.Contains(n, part) && (part == "pages/" || part == "/epochs/" || part == "/packs/" || strings.Contains(n, fmt.Sprintf("/%x/", st.At.Epoch[:]))) {
			names = append(names, n)
		}
	}
	return names
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
	a.commit(edit{"eager, later": noise(4, 700_000)})
	sync(t, a)
	for i := range 3 {
		a.commit(edit{key(i): noise(uint64(90+i), 400)})
		sync(t, a)
	}
	sync(t, a, b)
	return w, a, b, behind
}

// TestCheckWhereHistoryWasGivenUp checks a bucket that has deleted the differences of commits which
// are given up: records of these stand in its runs still, and name them.
func TestCheckWhereHistoryWasGivenUp(t *testing.T) {
	w := newWorld(t)
	a := w.device()
	for i := range 24 {
		e := edit{}
		for k := range 20 {
			e[key(k)] = noise(uint64(100*i+k), 60)
		}
		a.commit(e)
		sync(t, a)
		if i%6 == 5 {
			if err := a.Checkpoint(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	before := len(w.packs())
	collectBucket(t, a, cloudsync.GCOptions{Retention: &cloudsync.Retention{Last: 2}})
	w.clock.Advance(31 * 24 * time.Hour)
	collectBucket(t, a, cloudsync.GCOptions{})
	if left := len(w.packs()); left >= before {
		t.Fatalf("%d packs and differences are left of %d", left, before)
	}
	if r, err := a.Check(t.Context(), cloudsync.CheckOptions{}); err != nil || len(r.Damaged) > 0 {
		t.Errorf("%+v, %v", r, err)
	}
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
				names := a.named(k.part)
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
					p.commit(edit{"own": text(p.d.key.ID().String())})
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

// TestCheckTellsOfNewerObjects has a program of a newer version write an announcement, which stays
// as it is. That an object begins with another version, as anybody can have it, is damage.
func TestCheckTellsOfNewerObjects(t *testing.T) {
	w := newWorld(t)
	a := w.device()
	a.commit(edit{"k": text("x"), "long": noise(1, 1_010_000)})
	sync(t, a)
	s := seal.NewSealer(w.ring, nil)
	for _, n := range w.b.Names() {
		if !strings.HasPrefix(n, "pages/") && !strings.Contains(n, "/packs/") {
			continue
		}
		good, _ := w.b.Content(n)
		bad := slices.Clone(good)
		bad[0]++
		w.b.Replace(n, bad)
		r, err := a.Check(t.Context(), cloudsync.CheckOptions{})
		if err != nil || len(r.Newer) != 0 || len(r.Damaged) != 1 || r.Damaged[0].Name != n {
			t.Errorf("%s: %+v, %v", n, r, err)
		}
		w.b.Replace(n, good)
		if strings.Contains(n, "/packs/") {
			continue
		}
		label := wire.AnnouncementLabel(n)
		plain, _, err := s.Open(label, good, seal.MaxObjectBytes)
		if err != nil {
			t.Fatal(err)
		}
		plain[0]++
		newer, _, err := s.Seal(label, plain, seal.Form{Pad: seal.Quarters})
		if err != nil {
			t.Fatal(err)
		}
		w.b.Replace(n, newer)
		for _, repair := range []bool{false, true} {
			r, err := a.Check(t.Context(), cloudsync.CheckOptions{Repair: repair})
			if err != nil || len(r.Newer) != 1 || len(r.Damaged) != 0 || r.Repaired {
				t.Errorf("%s: %+v, %v", n, r, err)
			}
		}
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

// TestRepairOfAnEpoch damages the epoch of two devices. One repairs it, and the other one enters
// the renewal when it looks for the epoch again.
func TestRepairOfAnEpoch(t *testing.T) {
	w := newWorld(t)
	a, b := w.device(), w.device()
	a.commit(edit{"k": text("x")})
	sync(t, a, b)
	if err := a.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	sync(t, a, b)
	epochs := a.named("/epochs/")
	spoilers["damaged"](w, epochs[len(epochs)-1])
	r, err := a.Check(t.Context(), cloudsync.CheckOptions{Repair: true})
	if err != nil || !r.Repaired || len(r.Damaged) != 1 {
		t.Fatalf("%+v, %v", r, err)
	}
	b.reopen()
	b.commit(edit{"k": text("y")})
	sync(t, b, a)
	same(t, a, b, w.synced())
	if r, err := b.Check(t.Context(), cloudsync.CheckOptions{}); err != nil || len(r.Damaged) > 0 {
		t.Errorf("%+v, %v", r, err)
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
		if r, err := c.Check(t.Context(), cloudsync.CheckOptions{Repair: true}); err == nil || r != nil && r.Repaired {
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
