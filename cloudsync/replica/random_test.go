package replica_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/ledgerd/ledger/cloudsync/mem"
	"github.com/ledgerd/ledger/cloudsync/pagelog"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/tier"
)

// expected reports whether an error is one that the faults of a history may bring.
func expected(err error) bool {
	var damage *pagelog.DamageError
	return err == nil || errors.As(err, &damage) || errors.Is(err, pagelog.ErrWiped) || errors.Is(err, pagelog.ErrRolledBack) ||
		errors.Is(err, pagelog.ErrContended) || errors.Is(err, base.ErrNetwork) || errors.Is(err, base.ErrConflict) || errors.Is(err, base.ErrCorrupt) || errors.Is(err, base.ErrNotFound)
}

// change makes a commit on the newest head.
func (d *member) change() {
	e := puts{}
	for range 1 + d.random.IntN(3) {
		key := fmt.Sprint(d.random.IntN(12))
		switch d.random.IntN(8) {
		case 0:
			e[key] = nil
		case 1, 2:
			e[key] = &value{content: d.noise(200 + d.random.IntN(4000)), lazy: d.random.IntN(2) == 0}
		case 3:
			e[key] = &value{content: d.noise(150_000), lazy: d.random.IntN(2) == 0}
		default:
			e[key] = &value{content: d.noise(d.random.IntN(40))}
		}
	}
	d.commit(e)
}

// history makes random steps.
func (w *fleet) history(steps int, faults bool) {
	w.t.Helper()
	ctx := context.Background()
	var saved mem.State
	for step := range steps {
		d := w.devices[w.random.IntN(len(w.devices))]
		d.packed, d.long = w.random.IntN(5), w.random.IntN(5) == 0
		var err error
		what := w.random.IntN(21)
		switch what {
		case 0, 1, 2, 3, 4:
			d.change()
		case 5, 6, 7, 8, 9, 10:
			err = d.sync(ctx)
		case 11:
			d.retain = &wire.Retention{Last: uint64(w.random.IntN(4))}
		case 12, 13:
			if d.page.Position().Joined() {
				err = d.log.Cut(ctx)
			}
		case 14:
			d.reopen()
		case 15:
			w.clock.Advance([]time.Duration{time.Hour, 23 * time.Hour, 2 * 24 * time.Hour, 31 * 24 * time.Hour}[w.random.IntN(4)])
		case 16:
			name := fmt.Sprint("t", w.random.IntN(3))
			if h := d.store.NewestHead(); w.random.IntN(3) > 0 && !h.IsFirst() {
				err = d.store.SetTag(ctx, name, h.ID)
			} else {
				err = d.store.DeleteTag(ctx, name)
				if errors.Is(err, base.ErrNotFound) {
					err = nil
				}
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
		case 20:
			_, err = d.page.Prune(ctx)
		}
		if testing.Verbose() {
			w.t.Logf("step %d %s %d: %v", step, d.name, what, err)
		}
		if !faults && err != nil && !errors.Is(err, pagelog.ErrContended) && !errors.Is(err, base.ErrNetwork) && !errors.Is(err, base.ErrConflict) && !errors.Is(err, base.ErrNotFound) || !expected(err) {
			w.t.Fatalf("step %d: %s does %d: %v", step, d.name, what, err)
		}
	}
}

// hurt lets the bucket lose something.
func (w *fleet) hurt(saved mem.State) {
	names := w.bucket.Names()
	switch w.random.IntN(6) {
	case 0:
		w.bucket.Wipe()
	case 1:
		w.bucket.Rollback(saved)
	default:
		if len(names) == 0 {
			return
		}
		name := names[w.random.IntN(len(names))]
		if content, _ := w.bucket.Content(name); w.random.IntN(2) == 0 && len(content) > 0 {
			content[len(content)/4+w.random.IntN(len(content)*3/4)] ^= 1 // not what says which format it has
			w.bucket.Replace(name, content)
		} else {
			_ = w.retry.Delete(context.Background(), name)
		}
	}
}

// heal repairs what is damaged, and syncs until nothing changes.
func (w *fleet) heal() {
	w.t.Helper()
	ctx := context.Background()
	w.bucket.SetFaults(mem.Faults{})
	last := ""
	for range 12 {
		for _, d := range w.devices {
			d.reopen()
			w.clock.Advance(25 * time.Hour) // a look is due
			err := d.log.Look(ctx)
			if err == nil {
				_, err = d.log.Audit(ctx, d.page.Position().Number-d.page.State().Entries+1)
			}
			if err == nil {
				err = d.sync(ctx)
			}
			if err == nil {
				continue
			}
			if testing.Verbose() {
				w.t.Logf("%s renews: %v", d.name, err)
			}
			if !expected(err) {
				w.t.Fatalf("%s: %v", d.name, err)
			}
			if err := d.log.Renew(ctx, false); err != nil && !expected(err) {
				w.t.Fatalf("%s renews: %v", d.name, err)
			}
			if err := d.sync(ctx); !expected(err) {
				w.t.Fatalf("%s: %v", d.name, err)
			}
		}
		now := w.positions()
		if now == last {
			return
		}
		last = now
	}
	w.t.Errorf("the devices do not come to rest: %s", w.positions())
}

func (w *fleet) positions() (all string) {
	for _, d := range w.devices {
		at := d.page.Position()
		all += fmt.Sprintf("%d/%x/%d %s\n", at.K, at.Epoch[:2], at.Number, d.store.NewestHead().ID.Short())
	}
	return all
}

// check verifies that all devices agree, and that each commit is below the head.
func (w *fleet) check() {
	w.t.Helper()
	w.same()
	below := map[commit.ID]bool{}
	next := []commit.ID{w.devices[0].store.NewestHead().ID}
	for len(next) > 0 {
		id := next[len(next)-1]
		next = next[:len(next)-1]
		if c := w.made[id]; c != nil && !below[id] {
			below[id] = true
			next = append(next, c.Parents...)
		}
	}
	for id, c := range w.made {
		if !below[id] {
			w.t.Errorf("commit %s of %s is not below the head", id.Short(), c.Device)
		}
	}
}

// run runs random histories, each by a seed of its own.
func run(t *testing.T, histories, steps int, faulty bool) {
	for i := range histories {
		seed := tier.Seed() + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			w := newFleet(t, seed, 2+int(seed%2))
			w.lossy = faulty
			if seed%3 == 1 {
				w.bucket.SetFaults(mem.Faults{Conflict: 0.02, TooMany: 0.02, Unavailable: 0.03, Refused: 0.02, LostAnswer: 0.05, CutBody: 0.01})
			}
			w.history(steps, faulty)
			w.heal()
			w.check()
		})
	}
}

// TestHistories: devices that commit, append, cut, crash and sleep come to one state, in a bucket
// whose answers get lost, and never see damage.
func TestHistories(t *testing.T) { run(t, tier.Of(12, 40, 2000), 60, false) }

// TestDamagedBuckets: the same where the bucket loses, changes or takes back what it had.
func TestDamagedBuckets(t *testing.T) { run(t, tier.Of(12, 40, 2000), 60, true) }
