package pagelog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/mem"
	"github.com/ledgerd/ledger/cloudsync/pagelog"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/tier"
)

// expected reports whether an error is one that the faults of a history may bring.
func expected(err error) bool {
	var damage *pagelog.DamageError
	return err == nil || errors.As(err, &damage) || errors.Is(err, pagelog.ErrWiped) || errors.Is(err, pagelog.ErrRolledBack) ||
		errors.Is(err, pagelog.ErrContended) || errors.Is(err, base.ErrNetwork) || errors.Is(err, base.ErrConflict)
}

// heal repairs what is damaged and syncs until nothing changes.
func (w *world) heal(t *testing.T) {
	ctx := context.Background()
	w.bucket.SetFaults(mem.Faults{})
	for round := range 12 {
		before := fmt.Sprint(w.positions())
		for _, d := range w.devices {
			d.open()
			w.clock.Advance(25 * time.Hour) // a look is due
			err := d.log.Look(ctx)
			var holes []uint64
			if err == nil {
				holes, err = d.log.Audit(ctx, d.base+1)
			}
			if err == nil && len(holes) > 0 { // this device is past them, others may not be, and nothing tells these
				err = d.log.Cut(ctx)
			}
			if err == nil {
				err = d.sync(ctx)
			}
			if err != nil {
				t.Logf("%s renews: %v", d.name, err)
				if err := d.log.Renew(ctx, false); err != nil && !expected(err) {
					t.Fatal(err)
				}
				if err := d.sync(ctx); err != nil && !expected(err) {
					t.Fatal(err)
				}
			}
		}
		if round > 2 && fmt.Sprint(w.positions()) == before {
			return
		}
	}
	t.Errorf("the devices do not come to rest: %v", w.positions())
}

func (w *world) positions() (all []string) {
	for _, d := range w.devices {
		all = append(all, fmt.Sprintf("%d/%x/%d %x", d.at.K, d.at.Epoch[:2], d.at.Number, d.heads()))
	}
	return all
}

// check verifies that all devices agree, and that each commit is kept, below a head, or given up.
func (w *world) check(t *testing.T) {
	for _, d := range w.devices[1:] {
		a, b := w.devices[0], d
		if a.at.K != b.at.K || a.at.Epoch != b.at.Epoch || a.at.Number != b.at.Number || a.at.Hash != b.at.Hash {
			t.Errorf("I8: %s is at %v, %s at %v", a.name, a.at, b.name, b.at)
		}
		if fmt.Sprint(a.state) != fmt.Sprint(b.state) {
			t.Errorf("I1: %s has %v, %s has %v", a.name, a.state, b.name, b.state)
		}
	}
	d := w.devices[0]
	if h := d.heads(); len(h) > 1 || len(h) == 0 && len(w.made) > 0 {
		t.Fatalf("I8: %d heads", len(h))
	}
	below := map[epoch.Commit]bool{}
	next := slices.Clone(d.heads())
	for len(next) > 0 {
		id := next[len(next)-1]
		next = next[:len(next)-1]
		if c := w.made[id]; c != nil && !below[id] {
			below[id] = true
			for _, p := range c.Parents {
				next = append(next, shortID(p))
			}
		}
	}
	for id, c := range w.made {
		if !below[id] {
			t.Errorf("I2: commit %s of %s is not below the head", c.ID.Short(), c.Device)
		}
	}
}

func shortID(id [32]byte) (c epoch.Commit) {
	for _, b := range id[:8] {
		c = c<<8 | epoch.Commit(b)
	}
	return c
}

// history makes random steps.
func (w *world) history(t *testing.T, steps int, faults bool) {
	ctx := context.Background()
	var saved mem.State
	for range steps {
		d := w.devices[w.random.IntN(len(w.devices))]
		var err error
		what := w.random.IntN(20)
		switch what {
		case 0, 1, 2, 3, 4:
			h := d.heads()
			if len(h) < 2 && !d.at.Deleted {
				d.commit(h, nil)
			}
		case 5, 6, 7, 8, 9, 10:
			err = d.sync(ctx)
		case 11:
			d.retain = &wire.Retention{Last: uint64(w.random.IntN(4))}
		case 12, 13:
			if d.at.Joined() {
				err = d.log.Cut(ctx)
			}
		case 14:
			d.open()
		case 15:
			w.clock.Advance([]time.Duration{time.Hour, 23 * time.Hour, 2 * 24 * time.Hour, 31 * 24 * time.Hour}[w.random.IntN(4)])
		case 16:
			if d.at.Joined() {
				if err = d.log.Look(ctx); err != nil {
					break
				}
				_, err = d.log.Sweep(ctx, d.named, d.namedBy, false)
			}
		case 17:
			if faults && w.random.IntN(4) == 0 {
				saved = w.bucket.State()
			}
		case 18:
			if faults && w.random.IntN(4) == 0 {
				w.hurt(saved)
			}
		case 19:
			if faults && w.random.IntN(3) == 0 {
				err = d.log.Renew(ctx, false)
			}
		}
		if testing.Verbose() {
			t.Logf("%s step %d: %v: %v", d.name, what, err, w.positions())
		}
		if !faults && err != nil && !errors.Is(err, pagelog.ErrContended) && !errors.Is(err, base.ErrNetwork) && !errors.Is(err, base.ErrConflict) {
			t.Fatalf("%s: %v", d.name, err)
		}
		if !expected(err) {
			t.Fatalf("%s: %v", d.name, err)
		}
	}
}

// hurt lets the bucket lose something.
func (w *world) hurt(saved mem.State) {
	names := w.bucket.Names()
	switch w.random.IntN(6) {
	case 0:
		w.bucket.Wipe()
	case 1:
		w.bucket.Rollback(saved)
	default:
		if len(names) > 0 {
			name := names[w.random.IntN(len(names))]
			if content, _ := w.bucket.Content(name); w.random.IntN(2) == 0 && len(content) > 0 {
				at := w.random.IntN(len(content))
				if content[at] == 2 { // it may be a version: a newer one is no damage
					at = len(content) - 1
				}
				content[at] ^= 1
				w.bucket.Replace(name, content)
			} else {
				_ = w.retry.Delete(context.Background(), name)
			}
		}
	}
}

// run runs random histories, each by a seed of its own.
func run(t *testing.T, histories, steps int, faulty bool) {
	for i := range histories {
		seed := tier.Seed() + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := newWorld(seed, 2+int(seed%2))
			if seed%3 == 1 {
				w.bucket.SetFaults(mem.Faults{Conflict: 0.02, TooMany: 0.02, Unavailable: 0.03, Refused: 0.02, LostAnswer: 0.05, CutBody: 0.01})
			}
			w.history(t, steps, faulty)
			w.heal(t)
			w.check(t)
		})
	}
}

// TestHistories: devices that append, cut, crash and sleep come to one state, in a bucket whose
// answers get lost, and never see damage.
func TestHistories(t *testing.T) { run(t, tier.Of(60, 200, 5000), 60, false) }

// TestDamagedBuckets: the same where the bucket loses, changes or takes back what it had.
func TestDamagedBuckets(t *testing.T) { run(t, tier.Of(60, 200, 5000), 60, true) }

// TestRequests: an idle call costs a get, and a small commit a put.
func TestRequests(t *testing.T) {
	ctx := context.Background()
	w := newWorld(1, 2)
	meter := bucket.NewMeter(w.bucket, bucket.MeterOptions{})
	w.retry = meter
	for _, d := range w.devices {
		d.open()
		must(d.sync(ctx))
	}
	count := func(what string, want string, do func() error) {
		t.Helper()
		before := map[bucket.Op]int{}
		got := []string{}
		w.bucket.SetBefore(func(op bucket.Op, _ string) error { before[op]++; return nil })
		must(do())
		w.bucket.SetBefore(nil)
		for op, n := range before {
			got = append(got, fmt.Sprint(op, " ", n))
		}
		slices.Sort(got)
		if strings.Join(got, ", ") != want {
			t.Errorf("%s takes %v, want %s", what, got, want)
		}
	}
	a, b := w.devices[0], w.devices[1]
	count("an idle call", "get 1", func() error { return a.sync(ctx) })
	a.commit(a.heads(), nil)
	w.random = onlyShort()
	count("a commit and the end of the log", "get 2, put 1", func() error { return a.sync(ctx) })
	count("a reader", "get 2", func() error { return b.sync(ctx) })
}

// onlyShort is a source with which no body becomes an object of its own.
func onlyShort() *rand.Rand { return rand.New(rand.NewPCG(1, 3)) }

// TestDeletedPage: a deleted page is so for all devices, also after the bucket was rolled back.
func TestDeletedPage(t *testing.T) {
	ctx := context.Background()
	w := newWorld(2, 2)
	a, b := w.devices[0], w.devices[1]
	a.commit(nil, nil)
	must(a.sync(ctx))
	must(b.sync(ctx))
	before := w.bucket.State()
	must(a.log.Delete(ctx))
	must(a.log.Delete(ctx))
	if err := b.sync(ctx); !errors.Is(err, pagelog.ErrDeleted) {
		t.Fatal(err)
	}
	for _, state := range []mem.State{before, {}} {
		w.bucket.Rollback(state)
		for _, d := range w.devices {
			d.open()
			if err := d.sync(ctx); !errors.Is(err, pagelog.ErrDeleted) {
				t.Fatal(err)
			}
		}
	}
	w.clock.Advance(31 * 24 * time.Hour)
	w.bucket.Rollback(before)
	if err := a.sync(ctx); !errors.Is(err, pagelog.ErrDeleted) {
		t.Fatal(err)
	}
	w.clock.Advance(31 * 24 * time.Hour)
	if err := a.log.Look(ctx); !errors.Is(err, pagelog.ErrDeleted) {
		t.Fatal(err)
	}
	if _, err := a.log.Sweep(ctx, nil, nil, false); err != nil {
		t.Fatal(err)
	}
	for _, name := range w.bucket.Names() {
		if !strings.HasPrefix(name, w.names.Epochs()) {
			t.Errorf("%s is left", name)
		}
	}
}

// threeCuts returns a device that has made three cuts, 16 days apart.
func threeCuts(ctx context.Context) (*world, *device) {
	w := newWorld(3, 1)
	d := w.devices[0]
	for range 3 {
		d.commit(d.heads(), nil)
		must(d.sync(ctx))
		must(d.log.Cut(ctx))
		w.clock.Advance(16 * 24 * time.Hour)
	}
	must(d.log.Look(ctx))
	return w, d
}

// TestSweep: past epochs are swept a month after what followed them, however young the present one
// is, and what is not swept is counted.
func TestSweep(t *testing.T) {
	ctx := context.Background()
	w, d := threeCuts(ctx)
	s, err := d.log.Sweep(ctx, d.named, d.namedBy, true)
	if err != nil || s.DeletedObjects == 0 || s.WaitingObjects == 0 {
		t.Fatalf("%+v %v", s, err)
	}
	names := w.bucket.Names()
	again, err := d.log.Sweep(ctx, d.named, d.namedBy, false)
	if err != nil || again != s || len(w.bucket.Names()) != len(names)-s.DeletedObjects {
		t.Fatalf("%+v, then %+v, %d objects of %d are left: %v", s, again, len(w.bucket.Names()), len(names), err)
	}
	if more, err := d.log.Sweep(ctx, d.named, d.namedBy, false); err != nil || more.DeletedObjects != 0 || more.WaitingObjects != s.WaitingObjects {
		t.Fatalf("%+v %v", more, err)
	}
	d.open()
	must(d.sync(ctx))
}

// TestSweepWithoutTheDecidingCheckpoint: nothing is deleted while the bucket lacks the checkpoint
// that decides.
func TestSweepWithoutTheDecidingCheckpoint(t *testing.T) {
	ctx := context.Background()
	w, d := threeCuts(ctx)
	for _, name := range w.bucket.Names() {
		if n, ok := w.names.Parse(name); ok && n.Kind == wire.KindCheckpoint && n.Epoch != d.at.Epoch {
			must(w.bucket.Delete(ctx, name))
		}
	}
	names := w.bucket.Names()
	s, err := d.log.Sweep(ctx, d.named, d.namedBy, false)
	if err != nil || s.DeletedObjects != 0 || s.WaitingObjects == 0 || len(w.bucket.Names()) != len(names) {
		t.Fatalf("%+v %v", s, err)
	}
}

// TestHostile: each object of the bucket, changed or cut, is an error that names an object, and a
// renewal mends it.
func TestHostile(t *testing.T) {
	ctx := context.Background()
	w := newWorld(4, 1)
	d := w.devices[0]
	for range 3 {
		d.commit(d.heads(), nil)
		must(d.sync(ctx))
	}
	must(d.log.Cut(ctx))
	for range 2 {
		d.commit(d.heads(), nil)
		must(d.sync(ctx))
	}
	good := w.bucket.State()
	for _, name := range w.bucket.Names() {
		content, _ := w.bucket.Content(name)
		for what, bad := range map[string][]byte{"cut": content[:len(content)/2], "empty": {}, "changed": changed(content), "longer": append(slices.Clone(content), 0)} {
			w.bucket.Rollback(good)
			w.bucket.Replace(name, bad)
			fresh := &device{w: w, name: "fresh"}
			fresh.open()
			err := fresh.sync(ctx)
			if err != nil && (!errors.Is(err, base.ErrCorrupt) || !strings.Contains(err.Error(), "/")) {
				t.Errorf("%s %s: %v", name, what, err)
			}
			old := *d
			old.open()
			if err := old.log.Renew(ctx, false); err != nil {
				t.Errorf("%s %s: renew: %v", name, what, err)
			}
			fresh.open()
			if err := fresh.log.Renew(ctx, false); err != nil {
				t.Errorf("%s %s: enter: %v", name, what, err)
			}
			if err := fresh.sync(ctx); err != nil || fmt.Sprint(fresh.state.Kept) != fmt.Sprint(old.state.Kept) {
				t.Errorf("%s %s: after a renewal: %v, %v %v", name, what, err, fresh.state.Kept, old.state.Kept)
			}
		}
	}
}

// TestRenewalAfterBadTransfers: a device reads an entry wrongly, twice, and begins a renewal. It
// keeps what the entry has.
func TestRenewalAfterBadTransfers(t *testing.T) {
	ctx := t.Context()
	w := newWorld(5, 2)
	a, b := w.devices[0], w.devices[1]
	for range 3 {
		a.commit(a.heads(), nil)
		must(a.sync(ctx))
	}
	name := w.names.Entry(a.at.Epoch, 2)
	good, _ := w.bucket.Content(name)
	reads := 0
	w.bucket.SetBefore(func(op bucket.Op, n string) error {
		if op == bucket.OpGet && n == name {
			if reads++; reads <= 2 {
				w.bucket.Replace(name, changed(good))
			} else {
				w.bucket.Replace(name, good)
			}
		}
		return nil
	})
	if err := b.sync(ctx); !errors.Is(err, base.ErrCorrupt) {
		t.Fatal(err)
	}
	must(b.log.Renew(ctx, false))
	must(b.sync(ctx))
	if got := b.view(); len(got) != 3 {
		t.Errorf("%d commits after %d reads", len(got), reads)
	}
}

// TestGarbageAboveTheNewestEpoch puts what is no epoch above the newest one: a device that has
// nothing gets what the bucket has all the same, also after a cut, and its repair keeps it.
func TestGarbageAboveTheNewestEpoch(t *testing.T) {
	for what, garbage := range map[string][]byte{
		"short": []byte("junk"), "other version": bytes.Repeat([]byte{69}, 512), "like an epoch": append([]byte{2, 1, 1, 0, 0, 0, 0, 0}, make([]byte, 504)...),
	} {
		for _, above := range []uint64{1, 7} {
			for _, cuts := range []int{0, 2} {
				t.Run(fmt.Sprint(what, above, cuts), func(t *testing.T) {
					ctx := t.Context()
					w := newWorld(4, 1)
					d := w.devices[0]
					for i := range 6 {
						d.commit(d.heads(), nil)
						must(d.sync(ctx))
						if i < 2*cuts && i%2 == 1 {
							must(d.log.Cut(ctx))
						}
					}
					w.bucket.Replace(w.names.Epoch(d.at.K+above), garbage)
					fresh := &device{w: w, name: "fresh"}
					fresh.open()
					for which, do := range []func(context.Context) error{fresh.sync, fresh.log.Look} {
						if err := do(ctx); !errors.Is(err, base.ErrCorrupt) || errors.Is(err, base.ErrUnsupported) || !strings.Contains(err.Error(), w.names.Epoch(d.at.K+above)) {
							t.Errorf("call %d of a new device: %v", which, err)
						}
						if fmt.Sprint(fresh.state.Kept) != fmt.Sprint(d.state.Kept) {
							t.Errorf("a new device has %v, want %v", fresh.state.Kept, d.state.Kept)
						}
					}
					must(fresh.log.Renew(ctx, false))
					another := &device{w: w, name: "another"}
					for _, o := range []*device{d, another} {
						o.open()
						if err := o.sync(ctx); err != nil || fmt.Sprint(o.state.Kept) != fmt.Sprint(fresh.state.Kept) {
							t.Errorf("%s, after the repair: %v, %v, want %v", o.name, err, o.state.Kept, fresh.state.Kept)
						}
					}
				})
			}
		}
	}
}

func changed(b []byte) []byte {
	out := slices.Clone(b)
	out[len(out)/2] ^= 0x40
	return out
}
