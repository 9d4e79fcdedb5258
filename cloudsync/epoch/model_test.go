package epoch_test

import (
	"flag"
	"testing"
	"time"

	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/internal/tier"
)

const day = 24 * hour

// start returns a world with entries 1 and 2 in epoch 0: commit 1 with a piece and commit 2 on it,
// both by D0. read says how many of the devices have read all of it; the others have read entry 1.
func start(r *rules, devices, read int, retention epoch.Retention) *world {
	w := &world{now: 1000 * hour}
	for i := range devices {
		w.devices[i].on = true
	}
	d := &w.devices[0]
	must(w.found(d) && w.step(r, d, well))
	w.look(r, d)
	d.retain = &retention
	for n := range 2 {
		var need pieces
		if n == 0 {
			need, d.held = 1, 1
		}
		w.commit(d, w.heads(d), nil, false, need)
		for w.upload(r, d) {
		}
		must(w.append(r, d, 0, well))
		for i := 1; i < devices; i++ {
			if n == 0 || i < read {
				w.look(r, &w.devices[i])
				w.read(r, &w.devices[i])
			}
		}
	}
	return w
}

func must(ok bool) {
	if !ok {
		panic("the beginning of a scenario does not run")
	}
}

// settle lets the given devices do all that there is to do.
func settle(w *world, devices ...int) {
	for range 5 {
		for _, i := range devices {
			for w.drive(honest(), i) {
			}
		}
	}
}

// cut lets device i give up what retention does not keep, and settles it.
func cut(w *world, i int) {
	d := &w.devices[i]
	d.phase, d.kind = writing, epoch.Cut
	for d.phase != idle {
		w.step(honest(), d, well)
	}
	settle(w, i)
}

// sweep lets a month pass, and device i delete all that it may.
func sweep(w *world, i int) {
	w.now += 31 * day
	settle(w, i)
	for d := &w.devices[i]; ; w.delete(d) {
		all := w.victims(honest(), d)
		if len(all) == 0 {
			return
		}
		d.victim, d.entry = all[0].o, all[0].n
	}
}

// last keeps the newest commit only.
var last = epoch.Retention{Last: 1}

// scene returns a scenario that begins with start.
func scene(name string, devices, read int, retention epoch.Retention, prepare func(w *world), faults ...string) *scenario {
	s := &scenario{name: name, faults: faults, saved: &bucket{}}
	s.start = func(r *rules) *world {
		w := start(r, devices, read, retention)
		*s.saved = w.b.clone()
		prepare(w)
		return w
	}
	return s
}

func scenarios() []*scenario {
	all := []string{"wiped", "rolled back", "entry", "pack", "checkpoint", "epoch"}
	refs := scene("refs: pieces by place, a month", 2, 2, last, func(w *world) {
		w.left = budget{commits: 2, cuts: 1, jumps: []epoch.Time{31 * day}}
	})
	refs.places = true
	return []*scenario{
		scene("cut", 2, 2, last, func(w *world) { w.left = budget{commits: 2, cuts: 1} }),
		scene("month: a cut, deletion", 2, 2, last, func(w *world) {
			w.left = budget{commits: 1, cuts: 1, jumps: []epoch.Time{31 * day, hour / 2}}
		}),
		scene("hours: a cut, looks of all ages", 2, 2, last, func(w *world) {
			w.left = budget{commits: 1, cuts: 1, flights: 1, jumps: []epoch.Time{23 * hour, 2 * hour, 29 * day}}
		}),
		scene("stall: a stalled put, a month", 2, 2, last, func(w *world) {
			w.left = budget{commits: 1, cuts: 1, flights: 1, jumps: []epoch.Time{31 * day}}
		}),
		scene("crash", 2, 2, last, func(w *world) { w.left = budget{commits: 1, cuts: 1, crashes: 2, lost: 1} }),
		scene("two cuts: a stalled put", 2, 2, last, func(w *world) { w.left = budget{commits: 1, cuts: 2, flights: 1} }),
		refs,
		scene("clone: a stalled put", 2, 2, last, func(w *world) { w.left = budget{commits: 1, cuts: 1, clones: 1, flights: 1} }),
		scene("three", 3, 3, last, func(w *world) { w.left = budget{commits: 2, cuts: 1} }),
		scene("gap: commits beside each other", 2, 2, last, func(w *world) { w.left = budget{commits: 3, cuts: 1} }),
		scene("number: the last three stay", 2, 2, epoch.Retention{Last: 3}, func(w *world) { w.left = budget{commits: 3, cuts: 2} }),
		scene("time: two days stay, a clock of next year", 2, 2, epoch.Retention{Within: 48 * time.Hour}, func(w *world) {
			w.devices[1].skew = 365 * day
			w.left = budget{commits: 2, cuts: 1, jumps: []epoch.Time{3 * day}}
		}),
		scene("tags", 2, 2, last, func(w *world) { w.left = budget{commits: 1, cuts: 2, tags: 2} }),
		scene("erase", 2, 2, epoch.Retention{}, func(w *world) {
			w.commits[0].secret = true
			w.left = budget{commits: 2, erasures: 1, lost: 1}
		}),
		scene("erase, rolled back", 2, 2, epoch.Retention{}, func(w *world) {
			w.commits[0].secret = true
			w.left = budget{commits: 1, erasures: 1, faults: 1}
		}, "rolled back", "checkpoint"),
		scene("deletion of the page", 2, 2, last, func(w *world) {
			w.left = budget{commits: 1, cuts: 1, deletions: 1, jumps: []epoch.Time{31 * day}}
		}),
		scene("deletion of the page, lost", 2, 2, last, func(w *world) {
			w.left = budget{commits: 1, deletions: 2, faults: 1, crashes: 1}
		}, "wiped", "rolled back", "epoch"),
		scene("long bodies", 2, 2, last, func(w *world) {
			w.long = true
			w.left = budget{commits: 1, cuts: 1, jumps: []epoch.Time{31 * day}}
		}),
		scene("disk: lost beside a hole", 2, 1, last, func(w *world) {
			w.left = budget{commits: 1, disks: 1, faults: 1}
		}, "entry"),
		scene("disk: lost with the only one who read behind a hole", 2, 2, last, func(w *world) {
			d := &w.devices[0]
			d.tags = []epoch.Tag{{Name: "tag", Commit: 2}}
			must(w.append(honest(), d, 0, well))
			w.commit(d, w.heads(d), nil, false, 0)
			must(w.append(honest(), d, 0, well))
			w.left = budget{disks: 1, faults: 1}
		}, "entry"),
		scene("erase, rolled back in the midst", 2, 2, epoch.Retention{}, func(w *world) {
			w.commits[0].secret = true
			before := w.b.clone()
			d := &w.devices[0]
			w.commit(d, w.heads(d), nil, false, 0)
			must(w.append(honest(), d, 0, well))
			d.phase, d.kind, d.erase = writing, epoch.Cut, true
			w.step(honest(), d, well)
			w.b, w.faulty = before, true
			w.step(honest(), d, well)
		}),
		scene("deletion of the page, wiped", 2, 2, last, func(w *world) {
			d := &w.devices[0]
			d.phase, d.kind = writing, epoch.Deleted
			for d.phase != idle {
				w.step(honest(), d, well)
			}
			settle(w, 0, 1)
			w.left = budget{faults: 1}
		}, "wiped", "rolled back", "epoch"),
		scene("wiped", 2, 2, last, func(w *world) { w.left = budget{commits: 1, cuts: 1, faults: 1} }, "wiped"),
		scene("wiped, one behind", 3, 2, last, func(w *world) { w.left = budget{commits: 1, cuts: 1, faults: 1} }, "wiped"),
		scene("rolled back", 2, 2, last, func(w *world) { w.left = budget{commits: 1, cuts: 1, faults: 1} }, "rolled back"),
		scene("rolled back behind a cut, one away", 3, 2, last, func(w *world) {
			w.ownBases = true
			cut(w, 0)
			settle(w, 1)
			w.left = budget{commits: 2, cuts: 1, faults: 2}
		}, "rolled back", "epoch"),
		scene("behind a cut that gives two up, lost epochs", 2, 1, last, func(w *world) {
			w.commit(&w.devices[0], w.heads(&w.devices[0]), nil, false, 0)
			settle(w, 0)
			cut(w, 0)
			sweep(w, 0)
			w.b.epochs, w.faulty = nil, true
			w.left = budget{commits: 1, crashes: 1}
		}),
		scene("rolled back, a stalled put", 2, 2, last, func(w *world) {
			w.left = budget{commits: 1, cuts: 1, faults: 1, flights: 1}
		}, "rolled back"),
		scene("lost", 2, 2, last, func(w *world) { w.left = budget{commits: 1, cuts: 1, faults: 1} }, "entry", "pack", "checkpoint", "epoch"),
		scene("lost epochs", 2, 2, last, func(w *world) { w.left = budget{cuts: 2, faults: 1} }, "epoch"),
		scene("behind a cut, wiped", 3, 2, last, func(w *world) {
			cut(w, 0)
			settle(w, 1)
			w.left = budget{commits: 1, faults: 1}
		}, "wiped"),
		scene("behind two cuts, lost epochs", 2, 2, last, func(w *world) {
			cut(w, 0)
			cut(w, 0)
			sweep(w, 0)
			w.left = budget{commits: 1, faults: 2}
		}, "epoch"),
		scene("behind a deletion", 2, 2, last, func(w *world) {
			cut(w, 0)
			sweep(w, 0)
			w.left = budget{commits: 2}
		}),
		scene("unsynced beside a cut", 3, 3, last, func(w *world) {
			for i := range 2 {
				d := &w.devices[i]
				w.commit(d, w.heads(d), nil, false, 0)
			}
			must(w.append(honest(), &w.devices[1], 1, well))
			w.devices[2] = w.devices[0]
			w.read(honest(), &w.devices[2])
			cut(w, 1)
			w.left = budget{commits: 1}
		}),
		scene("merge beside a cut", 2, 2, last, func(w *world) {
			twoHeads(w)
			a, b := &w.devices[0], &w.devices[1]
			w.read(honest(), a)
			w.merge(honest(), b, 0)
			for range 2 {
				w.commit(a, w.heads(a).Without(epoch.Set{4}), nil, false, 0)
			}
			settle(w, 0)
			cut(w, 0)
			w.left = budget{commits: 1}
		}),
		scene("transaction", 2, 2, last, func(w *world) { w.left = budget{commits: 2, cuts: 1, transactions: 1} }),
		scene("transaction beside two heads", 2, 2, last, func(w *world) {
			twoHeads(w)
			w.left = budget{commits: 2, cuts: 2, transactions: 2}
		}),
		scene("transaction behind a cut", 2, 2, last, func(w *world) {
			w.devices[1].tx = w.heads(&w.devices[1])[0]
			for range 2 {
				w.commit(&w.devices[0], w.heads(&w.devices[0]), nil, false, 0)
			}
			settle(w, 0)
			cut(w, 0)
			w.left = budget{commits: 2}
		}),
		scene("transaction on a kept commit behind a cut", 2, 2, epoch.Retention{Last: 2}, func(w *world) {
			a, b := &w.devices[0], &w.devices[1]
			w.commit(b, w.heads(b), nil, false, 0)
			for range 4 {
				w.commit(a, w.heads(a), nil, false, 0)
			}
			settle(w, 0)
			cut(w, 0)
			w.look(honest(), b)
			b.tx = a.log.Kept[0].ID
			w.left = budget{commits: 1}
		}),
		scene("transactions on tagged commits behind a cut", 2, 2, last, func(w *world) {
			twoHeads(w)
			a, b := &w.devices[0], &w.devices[1]
			w.read(honest(), a)
			a.tags = []epoch.Tag{{Name: "a", Commit: 3}, {Name: "b", Commit: 4}}
			settle(w, 0, 1)
			a.tx, b.tx = 3, 4
			a.phase, a.kind = writing, epoch.Cut
		}),
		scene("beside a deletion", 2, 2, epoch.Retention{}, func(w *world) {
			w.left = budget{commits: 1, cuts: 1, jumps: []epoch.Time{31 * day}}
		}),
		scene("beside a deletion, lost checkpoint", 2, 2, last, func(w *world) {
			w.strict = true
			w.devices[0].held = 0
			cut(w, 0)
			w.now += 31 * day
			settle(w, 0)
			w.left = budget{faults: 1, crashes: 1}
		}, "checkpoint"),
		scene("long bodies beside a cut", 2, 2, last, func(w *world) {
			w.long = true
			d := &w.devices[1]
			w.commit(d, w.heads(d), nil, false, 0)
			w.upload(honest(), d)
			cut(w, 0)
			w.left = budget{jumps: []epoch.Time{31 * day}}
		}),
		scene("two heads", 2, 2, last, func(w *world) {
			twoHeads(w)
			w.left = budget{commits: 1, cuts: 1}
		}),
		scene("two wipes", 2, 2, last, func(w *world) { w.left = budget{commits: 1, cuts: 1, faults: 2, flights: 1} }, "wiped", "epoch"),
		scene("big", 3, 3, last, func(w *world) {
			w.left = budget{commits: 3, cuts: 2, crashes: 1, lost: 1, flights: 2, jumps: []epoch.Time{31 * day, 2 * hour, 31 * day}}
		}),
		scene("big with faults", 2, 2, last, func(w *world) {
			w.left = budget{commits: 2, cuts: 2, crashes: 1, flights: 1, faults: 2, clones: 1, jumps: []epoch.Time{31 * day}}
		}, all...),
		twice(),
		scene("rolled back to a cut", 3, 2, last, rolledToCut, "entry", "pack", "checkpoint"),
		scene("rolled back to a cut, an entry lost", 3, 2, last, func(w *world) {
			rolledToCut(w)
			d := &w.devices[1]
			w.commit(d, w.heads(d), nil, false, 0)
			must(w.append(honest(), d, 1, well))
			w.b.entries = w.b.entries[:len(w.b.entries)-1]
		}),
	}
}

// twoHeads gives the log two heads, of which each device has made one.
func twoHeads(w *world) {
	for i := range 2 {
		d := &w.devices[i]
		w.commit(d, w.heads(d), nil, false, 0)
	}
	must(w.append(honest(), &w.devices[0], 0, well))
	w.read(honest(), &w.devices[1])
	must(w.append(honest(), &w.devices[1], 1, well))
}

// rolledToCut lets the bucket go back to the epoch that gave commit 1 up, after the next one had
// given up commit 2 too.
func rolledToCut(w *world) {
	w.ownBases = true
	cut(w, 0)
	settle(w, 1)
	back := w.b.clone()
	d := &w.devices[0]
	w.commit(d, w.heads(d), nil, false, 0)
	settle(w, 0)
	cut(w, 0)
	w.b, w.faulty = back, true
	w.left = budget{commits: 1, faults: 1}
}

// twice is a device that is away while two cuts pass within a month, and refers by place to what
// the second one drops.
func twice() *scenario {
	s := scene("refs: two cuts in a month", 2, 2, epoch.Retention{}, func(w *world) {
		cut(w, 0)
		settle(w, 1)
		d := &w.devices[0]
		d.retain = &last
		must(w.append(honest(), d, 0, well))
		w.now += 20 * day
		settle(w, 0)
		cut(w, 0)
		d.held, w.devices[1].held = 0, 0
		w.left = budget{commits: 1, jumps: []epoch.Time{11 * day}}
	})
	s.places = true
	return s
}

// How much is explored: little with every change, more with LEDGER_TIER=2, and anything by flags,
// as in
//
//	go test ./cloudsync/epoch -run Protocol/wiped -states 1000000 -ways 0 -heal 1
var (
	states = flag.Int("states", tier.Of(1000, 4000, 100_000), "states of each scenario that are explored breadth first")
	ways   = flag.Int("ways", tier.Of(10, 40, 3000), "ways through each scenario that are gone at random")
	heal   = flag.Int("heal", tier.Of(5, 5, 1), "how many states there are for one that is healed")
	seed   = flag.Uint64("walk", tier.Seed(), "seed of the ways")
)

// TestProtocolHoldsInEveryState explores each scenario breadth first, up to a bound, and then at
// random.
func TestProtocolHoldsInEveryState(t *testing.T) {
	for i, s := range scenarios() {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			r := honest()
			x := s.search(r, *states, *heal)
			if x.wrong != "" {
				t.Fatal(&x)
			}
			y := s.walk(r, *seed+uint64(i), *ways)
			if y.wrong != "" {
				t.Fatal(&y)
			}
			t.Logf("%d states, complete %v, no room %d; then %d at random, no room %d", x.states, x.complete, x.noRoom, y.states, y.noRoom)
		})
	}
}
