package cloudsync_test

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/pagelog"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/internal/tier"
)

func (p *page) names() wire.Names { return wire.NamesOf(p.d.w.ring, p.ledger, testPage) }

// entry returns the name of an entry of the first epoch.
func (w *world) entry(number uint64) string { return w.entryNames("")[number-1] }

// remove deletes an object behind everybody's back.
func (w *world) remove(name string) {
	w.t.Helper()
	if _, ok := w.b.Content(name); !ok {
		w.t.Fatalf("no object %s", name)
	}
	if err := w.b.Delete(w.t.Context(), name); err != nil {
		w.t.Fatal(err)
	}
}

// same checks that pages are the same, and that each has the tree and the values of every commit
// that it knows or can build them.
func same(t *testing.T, ps ...*page) {
	t.Helper()
	sameHeads(t, ps...)
	want := ps[0].content()
	for i, p := range ps {
		if got := p.content(); !maps.Equal(got, want) {
			t.Errorf("page %d has other content: %d keys, want %d", i, len(got), len(want))
		}
	}
}

// spoilers make an entry one that cannot be read on from.
var spoilers = map[string]func(w *world, name string){
	"missing": (*world).remove,
	"damaged": func(w *world, name string) {
		content, _ := w.b.Content(name)
		content[len(content)/2] ^= 1
		w.b.Replace(name, content)
	},
	"cut": func(w *world, name string) {
		content, _ := w.b.Content(name)
		w.b.Replace(name, content[:len(content)/2])
	},
}

// TestReuploadBehindAHole spoils an entry in the midst of the log. One device that has everything
// uploads anew; the others only sync, wherever in the log they stand.
func TestReuploadBehindAHole(t *testing.T) {
	for name, spoil := range spoilers {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			a, b, behind, within := w.device(), w.device(), w.device(), w.device()
			for i := range 10 {
				a.commit(edit{key(i): noise(uint64(i), 5000), "shared": text(key(i))})
				sync(t, a)
				switch i {
				case 3:
					sync(t, behind)
				case 6:
					sync(t, within)
				}
			}
			sync(t, b)
			spoil(w, w.entry(5))
			fresh := w.device()
			sync(t, fresh) // stands before it, and begins an epoch where it sees more than the end of the log
			if got, want := fresh.State().Position, uint64(4); name == "missing" && got != want {
				t.Fatalf("a new device has come to %d", got)
			}
			for i, p := range []*page{a, behind, within} {
				p.commit(edit{"own " + key(i): text("y")})
			}
			before := len(w.b.Names())
			if missing, err := b.Reupload(t.Context()); err != nil || missing != 0 {
				t.Fatalf("%d missing, %v", missing, err)
			}
			// A checkpoint, some runs and differences, a closing entry, an epoch, and an entry with
			// commits.
			if n := len(w.b.Names()) - before; n > 12 {
				t.Errorf("%d objects more", n)
			}
			for range 3 {
				sync(t, a, behind, within, fresh, b)
			}
			same(t, a, b, behind, within, fresh, w.synced())
		})
	}
}

// synced returns a new device that is synced.
func (w *world) synced() *page {
	w.t.Helper()
	p := w.device()
	sync(w.t, p)
	return p
}

// TestReuploadWithoutThePage spoils a checkpoint, or the first entry, when only a device that is
// away has the page. A device without it fails there with the object's name, until it is told to
// begin again.
func TestReuploadWithoutThePage(t *testing.T) {
	for name, spoil := range spoilers {
		for _, of := range []string{"/checkpoints/", "/log/"} {
			t.Run(name+of, func(t *testing.T) {
				w := newWorld(t)
				a := w.device()
				a.commit(edit{"a": text("x"), "long": noise(1, 1_500_000)})
				sync(t, a)
				spoilt := []string{w.entry(1)}
				if of == "/checkpoints/" {
					if err := a.Checkpoint(t.Context()); err != nil {
						t.Fatal(err)
					}
					spoilt = w.checkpoints()
				} else {
					a.commit(edit{"later": text("x")})
					sync(t, a)
				}
				for _, n := range spoilt {
					spoil(w, n)
				}
				b := w.device()
				if err := b.Sync(t.Context()); !errors.Is(err, cloudsync.ErrBucketDamaged) || !strings.Contains(err.Error(), of) {
					t.Fatal(err)
				}
				if _, err := b.Reupload(t.Context()); err != nil {
					t.Fatal(err)
				}
				b.commit(edit{"b": text("y")})
				sync(t, b)
				w.clock.Advance(25 * time.Hour)
				sync(t, a, b)
				same(t, a, b, w.synced())
				if want := map[string]int{"/checkpoints/": 3, "/log/": 4}[of]; len(b.content()) != want {
					t.Errorf("%d keys, want %d", len(b.content()), want)
				}
			})
		}
	}
}

// TestReuploadSendsWhatOnlyTheHoleHad has a device upload anew that has never read the entry which
// is missing; who has read it sends again what only that entry had.
func TestReuploadSendsWhatOnlyTheHoleHad(t *testing.T) {
	for name, spoil := range spoilers {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			a, c := w.device(), w.device()
			for i := range 4 {
				a.commit(edit{key(i): noise(uint64(i), 5000)})
				sync(t, a)
			}
			sync(t, c)
			for i := range 4 {
				a.commit(edit{"later " + key(i): noise(uint64(10+i), 5000), "long" + key(i): noise(uint64(20+i), 2_000_000)})
				sync(t, a)
			}
			spoil(w, w.entry(5))
			c.commit(edit{"c": text("y")})
			if missing, err := c.Reupload(t.Context()); err != nil || missing != 0 {
				t.Fatalf("%d missing, %v", missing, err)
			}
			a.commit(edit{"a": text("y")})
			for range 3 {
				sync(t, a, c)
			}
			same(t, a, c, w.synced())
			if len(c.content()) != 14 {
				t.Errorf("%d keys", len(c.content()))
			}
		})
	}
}

// TestRenewalKeepsWhatOtherEntriesHave spoils an entry when values stand in the other entries
// alone: their device is gone, and the one that renews the log has dropped them.
func TestRenewalKeepsWhatOtherEntriesHave(t *testing.T) {
	for name, spoil := range spoilers {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			a, c := w.device(), w.device()
			for i := range 4 {
				a.commit(edit{key(i): append([]byte("lazy:"), noise(uint64(i), 5000)...)})
				sync(t, a)
			}
			sync(t, c)
			c.drop()
			a.commit(edit{"last": text("x")})
			sync(t, a)
			a.close()
			spoil(w, w.entry(5))
			c.commit(edit{"c": text("y")})
			if missing, err := c.Reupload(t.Context()); err != nil || missing != 0 {
				t.Fatalf("%d missing, %v", missing, err)
			}
			b := w.synced()
			same(t, c, b)
			if got := b.content(); len(got) != 5 {
				t.Errorf("%d keys: %v", len(got), slices.Collect(maps.Keys(got)))
			}
		})
	}
}

// TestRollbackWithinTheHour rolls the bucket back while devices are connected. One appends above
// what is missing before anybody can notice.
func TestRollbackWithinTheHour(t *testing.T) {
	for name, healers := range map[string][]int{"who was behind": {2}, "who has appended": {0}, "who has read all": {1}, "each": {0, 1, 2}, "each backwards": {2, 1, 0}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			a, b, behind := w.device(), w.device(), w.device()
			ps := []*page{a, b, behind}
			a.commit(edit{"k": text("0")})
			sync(t, ps...)
			old := w.b.State()
			for i := range 5 {
				a.commit(edit{key(i): noise(uint64(i), 5000)})
				sync(t, a)
			}
			sync(t, b)
			w.b.Rollback(old)
			a.commit(edit{"above": noise(9, 5000)})
			sync(t, a) // lands above a hole
			if names := w.entryNames(""); !strings.HasSuffix(names[len(names)-1], "00007") {
				t.Fatal("the test makes no hole")
			}
			behind.commit(edit{"behind": text("y")})
			sync(t, behind) // stands in the hole
			b.commit(edit{"b": text("y")})
			for _, i := range healers {
				if missing, err := ps[i].Reupload(t.Context()); err != nil || missing != 0 {
					t.Fatalf("%d missing, %v", missing, err)
				}
			}
			w.clock.Advance(7 * time.Hour) // every proof is old
			for range 4 {
				for _, p := range ps {
					err := p.Sync(t.Context())
					if errors.Is(err, cloudsync.ErrBucketRolledBack) || errors.Is(err, cloudsync.ErrBucketReplaced) {
						_, err = p.Reupload(t.Context())
					}
					if err != nil {
						t.Fatal(err)
					}
				}
			}
			same(t, a, b, behind, w.synced())
			if len(a.content()) != 9 {
				t.Errorf("%d keys", len(a.content()))
			}
		})
	}
}

// TestReuploadReplacesAPack deletes packs, or damages them. A device that holds what was in them
// uploads it anew.
func TestReuploadReplacesAPack(t *testing.T) {
	for name, spoil := range spoilers {
		for _, kind := range []string{"", "lazy:"} {
			t.Run(name+" "+kind, func(t *testing.T) {
				w := newWorld(t)
				a, b := w.device(), w.device()
				sync(t, b)
				for i := range 3 {
					a.commit(edit{key(i): append([]byte(kind), noise(uint64(i), 1_500_000)...)})
					sync(t, a)
				}
				for _, n := range w.b.Names() {
					if strings.Contains(n, "/packs/") {
						spoil(w, n)
					}
				}
				if name == "damaged" { // nobody has noticed who reads tables only
					for _, n := range w.b.Names() {
						if strings.Contains(n, "/packs/") {
							w.remove(n)
						}
					}
				}
				if err := b.Sync(t.Context()); kind == "" && err == nil {
					t.Fatal("values that are not there came down")
				}
				if missing, err := a.Reupload(t.Context()); err != nil || missing != 0 {
					t.Fatalf("%d missing, %v", missing, err)
				}
				for range 2 {
					sync(t, a, b)
				}
				same(t, a, w.synced())
				if kind == "" {
					same(t, a, b)
				}
			})
		}
	}
}

// TestReuploadEndsAnywhere ends an upload that begins the log anew at each of its requests, by a
// failure or with its answer lost, and does it again.
func TestReuploadEndsAnywhere(t *testing.T) {
	for at := 1; ; at++ {
		w := newWorld(t)
		a, b, behind := w.device(), w.device(), w.device()
		for i := range 5 {
			a.commit(edit{key(i): noise(uint64(i), 5000)})
			sync(t, a)
			if i == 1 {
				sync(t, behind)
			}
		}
		sync(t, b)
		w.remove(w.entry(3))
		b.commit(edit{"b": text("y")})
		var n atomic.Int64
		w.b.SetBefore(func(bucket.Op, string) error {
			if n.Add(1) >= int64(at) {
				return errNet
			}
			return nil
		})
		_, err := b.Reupload(t.Context())
		w.b.SetBefore(nil)
		over := n.Load() < int64(at)
		if over != (err == nil) {
			t.Fatalf("request %d: %v", at, err)
		}
		if at%2 == 0 {
			a.commit(edit{"meanwhile": text("y")})
			_ = a.Sync(t.Context()) // whatever there is of it
		}
		if err != nil {
			b.reopen()
			if missing, err := b.Reupload(t.Context()); err != nil || missing != 0 {
				t.Fatalf("request %d: %d missing, %v", at, missing, err)
			}
		}
		t.Logf("ended at request %d", at)
		w.clock.Advance(25 * time.Hour) // who stands before the hole looks again
		for range 3 {
			sync(t, a, b, behind)
		}
		same(t, a, b, behind, w.synced())
		if over {
			break
		}
	}
}

// TestReuploadAtOnce has two devices begin the log anew at the same moment, at each request of the
// first.
func TestReuploadAtOnce(t *testing.T) {
	for at := 1; ; at++ {
		w := newWorld(t)
		a, b, c := w.device(), w.device(), w.device()
		for i := range 5 {
			a.commit(edit{key(i): noise(uint64(i), 5000)})
			sync(t, a)
			if i == 2 {
				sync(t, c)
			}
		}
		sync(t, b)
		w.remove(w.entry(4))
		for i, p := range []*page{a, b, c} {
			p.commit(edit{"own " + key(i): text("y")})
		}
		var n atomic.Int64
		w.b.SetBefore(func(bucket.Op, string) error {
			if n.Add(1) == int64(at) {
				if missing, err := c.Reupload(t.Context()); err != nil || missing != 0 {
					t.Errorf("request %d: %d missing, %v", at, missing, err)
				}
			}
			return nil
		})
		if missing, err := b.Reupload(t.Context()); err != nil || missing != 0 {
			t.Fatalf("request %d: %d missing, %v", at, missing, err)
		}
		w.b.SetBefore(nil)
		for range 3 {
			sync(t, a, b, c)
		}
		same(t, a, b, c, w.synced())
		if n.Load() < int64(at) {
			break
		}
	}
}

// TestNewDeviceNoticesThatTheLogIsCut takes so many entries away that no read ahead meets a later
// one. A new device begins an epoch with what it has read, and others send what that lacks.
func TestNewDeviceNoticesThatTheLogIsCut(t *testing.T) {
	w := newWorld(t)
	a := w.device()
	for i := range 20 {
		a.commit(edit{key(i): text("x")})
		sync(t, a)
	}
	for range 10 {
		w.remove(w.entry(6))
	}
	b := w.device()
	sync(t, b)
	if n := w.cuts(); n != 1 {
		t.Fatalf("%d renewals by a new device", n)
	}
	b.reopen()
	a.reopen()
	sync(t, a, b) // what the renewal does not have comes from who has it
	same(t, a, b, w.synced())
	if got := a.content(); len(got) != 20 {
		t.Errorf("%d keys", len(got))
	}
}

// TestDeviceNoticesThatTheNextEntryIsMissing has a device that reads along stand where entries were
// lost, and others come behind: it notices with its next look at the epochs, also as another
// process, and after a look says so again and again.
func TestDeviceNoticesThatTheNextEntryIsMissing(t *testing.T) {
	for _, missing := range []uint64{1, 2, 8} {
		for _, restart := range []bool{false, true} {
			w := newWorld(t)
			a, b := steady(t, w)
			next := b.State().Position + 1
			w.clock.Advance(25 * time.Hour)
			if got := b.counts(func() { sync(t, b) }); got.A > 2 || got.B > 12 {
				t.Errorf("a look at the epochs and beyond cost %+v", got)
			}
			for i := range 9 {
				a.commit(edit{key(i): text("later")})
				sync(t, a)
			}
			for range missing {
				w.remove(w.entry(next))
			}
			sync(t, b) // as far as it knows this is the end
			w.clock.Advance(25 * time.Hour)
			if restart {
				b.reopen()
			}
			healed(t, w, b, a)
		}
	}
}

// TestHoleIsNamed tells callers which entry is missing. Where no device is there that has the page,
// the user may begin the log again; then a device that has it sends it.
func TestHoleIsNamed(t *testing.T) {
	w := newWorld(t)
	a := w.device()
	for i := range 6 {
		a.commit(edit{key(i): text("x")})
		sync(t, a)
	}
	name := w.entry(1)
	w.remove(name)
	b := w.device()
	err := b.Sync(t.Context())
	if e, ok := errors.AsType[*pagelog.DamageError](err); !ok || e.Object != name || !strings.Contains(err.Error(), name) || !errors.Is(err, cloudsync.ErrBucketDamaged) {
		t.Fatalf("%v", err)
	}
	if st := b.State(); st.Download != cloudsync.Failing || !errors.Is(st.DownloadErr, cloudsync.ErrBucketDamaged) {
		t.Errorf("state %+v", st)
	}
	if _, err := b.Reupload(t.Context()); err != nil {
		t.Fatal(err)
	}
	sync(t, a, b)
	same(t, a, b, w.synced())
}

var lossSeeds = flag.Int("loss-seeds", tier.Of(6, 24, 240), "seeds of TestReuploadAfterAnyLoss")

// TestReuploadAfterAnyLoss takes any objects of a page from the bucket, spoils others, rolls the
// rest back now and then, and lets devices go on before anybody notices. Then each device whose
// sync fails uploads anew, until none fails: nothing is lost that a device holds, and all are the
// same.
func TestReuploadAfterAnyLoss(t *testing.T) {
	seeds := *lossSeeds
	if testing.Short() {
		seeds /= 2
	}
	for seed := range seeds {
		t.Run(strconv.Itoa(seed), func(t *testing.T) { anyLoss(t, uint64(seed)+1000*(tier.Seed()-1)) })
	}
}

func anyLoss(t *testing.T, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	w := newWorld(t)
	w.o.Logger = nil
	ps := []*page{w.device(), w.device(), w.device()}
	keys := 0
	change := func(p *page) {
		e := edit{"shared": text(key(keys))}
		switch keys++; r.IntN(8) {
		case 0:
			e["lazy "+key(keys)] = append([]byte("lazy:"), noise(uint64(keys), 70_000)...)
		case 1:
			e["long "+key(keys)] = noise(uint64(keys), 1_200_000)
		default:
			e[key(keys)] = noise(uint64(keys), 10+r.IntN(3000))
		}
		p.commit(e)
	}
	change(ps[0])
	sync(t, ps...)
	old := w.b.State()
	for range 3 + r.IntN(30) {
		p := ps[r.IntN(3)]
		change(p)
		if r.IntN(3) > 0 {
			sync(t, p)
		}
		if r.IntN(12) == 0 {
			sync(t, p)
			if err := p.Checkpoint(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if r.IntN(6) == 0 {
			old = w.b.State()
		}
	}
	if r.IntN(2) == 0 {
		sync(t, ps...)
	}
	if r.IntN(2) == 0 {
		w.b.Rollback(old)
		if _, ok := w.b.Content(wire.FirstRing); !ok {
			t.Skip("all is gone")
		}
	}
	share := r.IntN(4)
	for _, n := range w.b.Names() {
		if n == wire.FirstRing || r.IntN(8) >= share {
			continue
		}
		if content, _ := w.b.Content(n); len(content) > 0 && r.IntN(2) == 0 && !strings.Contains(n, "/packs/") {
			content[r.IntN(len(content))] ^= 1
			w.b.Replace(n, content)
		} else {
			w.remove(n)
		}
	}
	for range r.IntN(8) {
		p := ps[r.IntN(3)]
		if change(p); r.IntN(2) == 0 {
			_ = p.Sync(t.Context())
		}
	}
	for _, p := range ps {
		if r.IntN(2) == 0 {
			p.reopen()
		}
	}
	if r.IntN(2) == 0 {
		w.clock.Advance(7 * time.Hour)
	}
	ps = append(ps, w.device()) // who has nothing notices what others have passed
	for good, round := 0, 0; good < 3; round++ {
		var failed []error
		for i, p := range ps {
			if err := p.Sync(t.Context()); err != nil {
				failed = append(failed, fmt.Errorf("device %d: %w", i, err))
			}
		}
		w.clock.Advance(25 * time.Hour) // who stands in a hole notices
		if good++; len(failed) == 0 {
			continue
		}
		if good = 0; round > 12 {
			t.Fatal(failed)
		}
		for i, p := range ps {
			if _, err := p.Reupload(t.Context()); err != nil && round > 8 {
				t.Logf("device %d: %v", i, err)
			}
		}
	}
	sameHeads(t, ps...)
	if got := len(ps[0].content()); got != keys+1 {
		t.Errorf("%d keys, want %d", got, keys+1)
	}
	same(t, append(ps, w.synced())...)
}
