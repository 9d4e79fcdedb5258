package epoch_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/ledgerd/ledger/cloudsync/epoch"
)

// move is something that can happen in a world. It works on a copy, and reports whether anything
// changed.
type move struct {
	name string
	do   func(w *world) bool
}

type scenario struct {
	name  string
	start func(r *rules) *world
	// faults are those that the bucket may have: wiped, rolled back, entry, pack, checkpoint,
	// epoch.
	faults []string
	// saved is what a rolled-back bucket goes back to.
	saved *bucket
	// places lets commits refer to pieces of their parents.
	places bool
}

// moves are all that can happen in w.
func (s *scenario) moves(r *rules, w *world) (all []move) {
	add := func(name string, do func(w *world) bool) { all = append(all, move{name, do}) }
	for i := range w.devices {
		if d := &w.devices[i]; d.on {
			on := func(name string, do func(w *world, d *device) bool) {
				add(fmt.Sprintf("D%d %s", i, name), func(w *world) bool { return do(w, &w.devices[i]) })
			}
			if d.phase != idle {
				turnMoves(r, w, d, on)
			} else {
				s.idleMoves(r, w, i, on)
			}
		}
	}
	if w.fly.on {
		add("the stalled put lands", func(w *world) bool { w.land(); return true })
	}
	if len(w.left.jumps) > 0 {
		add(fmt.Sprintf("%d hours pass", w.left.jumps[0]/hour), func(w *world) bool {
			w.now += w.left.jumps[0]
			w.left.jumps = w.left.jumps[1:]
			return true
		})
	}
	if last := &w.devices[len(w.devices)-1]; w.left.clones > 0 && !last.on {
		add("D0 is cloned", func(w *world) bool {
			w.left.clones--
			c := &w.devices[len(w.devices)-1]
			*c = w.devices[0]
			c.reset()
			return true
		})
	}
	if w.left.faults > 0 {
		for _, f := range s.faultMoves(w) {
			add("FAULT: "+f.name, func(w *world) bool {
				w.left.faults--
				w.faulty = true
				f.do(w)
				w.excuse()
				return true
			})
		}
	}
	return all
}

// turnMoves are those of a device within a turn or a deletion.
func turnMoves(r *rules, w *world, d *device, on func(string, func(*world, *device) bool)) {
	on(fmt.Sprintf("goes on with phase %d", d.phase), func(w *world, d *device) bool { return w.step(r, d, well) })
	if w.left.crashes > 0 && (d.phase == writing || d.phase == closing) {
		on(fmt.Sprintf("goes on with phase %d, then crashes", d.phase), func(w *world, d *device) bool {
			w.left.crashes--
			return w.step(r, d, lost)
		})
	}
	if w.left.crashes > 0 && (d.phase == confirming || d.phase == putting) {
		on("crashes", func(w *world, d *device) bool { w.left.crashes--; d.reset(); return true })
	}
	if w.left.flights > 0 && !w.fly.on && d.phase == putting {
		on("has a put of an epoch that stalls", func(w *world, d *device) bool {
			w.left.flights--
			return w.step(r, d, stalled)
		})
	}
}

func (s *scenario) idleMoves(r *rules, w *world, i int, on func(string, func(*world, *device) bool)) {
	d := &w.devices[i]
	on("looks", func(w *world, d *device) bool { changed, _ := w.look(r, d); return changed })
	if w.left.disks > 0 && i == 0 {
		on("loses its disk", func(w *world, d *device) bool {
			w.left.disks--
			*d = device{on: true, skew: d.skew}
			w.lostDisk = true
			w.excuse()
			return true
		})
	}
	if d.at.Deleted {
		return
	}
	if !d.at.Joined() {
		if len(w.b.epochs) == 0 {
			on("founds", func(w *world, d *device) bool { return w.found(d) })
		}
		return
	}
	on("reads", func(w *world, d *device) bool { changed, _ := w.read(r, d); return changed })
	on("merges", func(w *world, d *device) bool { return w.merge(r, d, 0) })
	if len(w.heads(d)) > 2 {
		on("merges the second head", func(w *world, d *device) bool { return w.merge(r, d, 1) })
		on("merges the third head", func(w *world, d *device) bool { return w.merge(r, d, 2) })
	}
	on("prunes", func(w *world, d *device) bool { return w.prune(r, d) })
	on("uploads", func(w *world, d *device) bool { return w.upload(r, d) })
	s.commitMoves(w, d, on)
	appendMoves(r, w, d, i, on)
	s.turnBeginnings(r, w, d, on)
	for _, v := range w.victims(r, d) {
		on(fmt.Sprintf("chooses to delete %v", v), func(w *world, d *device) bool {
			d.phase, d.victim, d.entry = deleting, v.o, v.n
			return true
		})
	}
}

func (s *scenario) commitMoves(w *world, d *device, on func(string, func(*world, *device) bool)) {
	if w.left.commits > 0 && len(w.heads(d)) < 2 {
		const plain, own, referring = 0, 1, 2
		for _, kind := range []int{plain, own, referring} {
			if kind == referring && (!s.places || w.needs(w.view(d).Set()) == 0) || kind == own && s.places && len(w.commits) > 0 {
				continue
			}
			on(fmt.Sprintf("commits %d, kind %d", len(w.commits)+1, kind), func(w *world, d *device) bool {
				w.left.commits--
				var need pieces
				switch kind {
				case own:
					need = 1 << len(w.commits)
					d.held |= need
				case referring:
					need = w.needs(w.view(d).Set())
				}
				w.commit(d, w.heads(d), nil, false, need)
				return true
			})
		}
	}
	if h := w.heads(d); w.left.transactions > 0 && d.tx == 0 && len(h) == 1 {
		on("begins a transaction", func(w *world, d *device) bool {
			w.left.transactions--
			d.tx = h[0]
			return true
		})
	}
	if d.tx != 0 {
		on("ends its transaction", func(w *world, d *device) bool {
			w.commit(d, epoch.Set{d.tx}, nil, false, 0)
			d.tx = 0
			return true
		})
	}
	if w.left.tags > 0 && len(d.log.Kept) > 0 {
		on("tags the first kept commit", func(w *world, d *device) bool {
			w.left.tags--
			d.tags = []epoch.Tag{{Name: "tag", Commit: d.log.Kept[0].ID}}
			return true
		})
	}
}

func appendMoves(r *rules, w *world, d *device, i int, on func(string, func(*world, *device) bool)) {
	if _, ok := w.newEntry(r, d, i); !ok {
		return
	}
	on("appends", func(w *world, d *device) bool { return w.append(r, d, i, well) })
	if w.left.lost > 0 {
		on("appends, and the answer is lost", func(w *world, d *device) bool {
			w.left.lost--
			return w.append(r, d, i, lost)
		})
	}
	if w.left.flights > 0 && !w.fly.on {
		on("has an append that stalls", func(w *world, d *device) bool {
			w.left.flights--
			return w.append(r, d, i, stalled)
		})
	}
}

func (s *scenario) turnBeginnings(r *rules, w *world, d *device, on func(string, func(*world, *device) bool)) {
	if w.left.cuts > 0 && !w.damaged(d) && w.mayCut(r, d) {
		on("begins a cut", func(w *world, d *device) bool {
			w.left.cuts--
			d.phase, d.kind = writing, epoch.Cut
			return true
		})
	}
	if w.left.erasures > 0 && !w.damaged(d) && w.mayCut(r, d) {
		on("begins to erase", func(w *world, d *device) bool {
			w.left.erasures--
			d.phase, d.kind, d.erase = writing, epoch.Cut, true
			return true
		})
	}
	if w.left.deletions > 0 {
		on("begins to delete the page", func(w *world, d *device) bool {
			w.left.deletions--
			d.phase, d.kind = writing, epoch.Deleted
			return true
		})
	}
	if w.faulty && w.evidence(r, d) {
		on("begins a renewal", func(w *world, d *device) bool {
			d.phase, d.kind = writing, epoch.Renewal
			return true
		})
	}
}

// faultMoves are the faults that the bucket may have now.
func (s *scenario) faultMoves(w *world) (all []move) {
	add := func(name string, do func(w *world)) {
		all = append(all, move{name, func(w *world) bool { do(w); return true }})
	}
	for _, f := range s.faults {
		switch f {
		case "wiped":
			add(f, func(w *world) { w.b = bucket{} })
		case "rolled back":
			add(f, func(w *world) { w.b = s.saved.clone() })
		case "entry":
			for i, o := range w.b.entries {
				add(fmt.Sprintf("entry %d of %d lost", o.n, o.dir[0]), func(w *world) { w.b.entries = slices.Delete(w.b.entries, i, i+1) })
			}
		case "pack":
			for i, o := range w.b.packs {
				add(fmt.Sprintf("pack %d lost", o.id[0]), func(w *world) { w.b.packs = slices.Delete(w.b.packs, i, i+1) })
			}
		case "checkpoint":
			for i, o := range w.b.checkpoints {
				add(fmt.Sprintf("checkpoint %d lost", o.id[0]), func(w *world) { w.b.checkpoints = slices.Delete(w.b.checkpoints, i, i+1) })
			}
		case "epoch":
			for i, o := range w.b.epochs {
				add(fmt.Sprintf("epochs/%d lost", o.k), func(w *world) { w.b.epochs = slices.Delete(w.b.epochs, i, i+1) })
			}
		}
	}
	return all
}

// result is what an exploration found.
type result struct {
	states   int
	complete bool
	noRoom   int
	wrong    string
	trace    []string
}

func (x *result) String() string {
	return fmt.Sprintf("%s\n  %s", x.wrong, strings.Join(x.trace, "\n  "))
}

// try runs f and returns the violation that it ends with, and whether the model has no room.
func try(f func()) (wrong string, full bool) {
	defer func() {
		switch v := recover().(type) {
		case nil:
		case violation:
			wrong = string(v)
		case noRoom:
			full = true
		default:
			panic(v)
		}
	}()
	f()
	return "", false
}

// next does m in a copy of w. It returns nil where nothing changed.
func next(w *world, m *move) (c *world, wrong string) {
	c = w.clone()
	done := false
	wrong, full := try(func() {
		if done = m.do(c); done {
			c.check()
		}
	})
	if full || !done {
		return nil, wrong
	}
	return c, wrong
}

// search explores breadth first, at most most states. Every healEvery-th state is healed.
func (s *scenario) search(r *rules, most, healEvery int) (x result) {
	type node struct {
		w      *world
		parent int
		move   string
	}
	nodes := []node{{w: s.start(r), parent: -1}}
	seen := map[[16]byte]struct{}{nodes[0].w.key(): {}}
	trace := func(i int, last string) (t []string) {
		for t = []string{last}; i > 0; i = nodes[i].parent {
			t = append(t, nodes[i].move)
		}
		slices.Reverse(t)
		return t
	}
	x.complete = true
	for i := 0; i < len(nodes); i++ {
		w := nodes[i].w
		nodes[i].w = nil
		x.states++
		if i%healEvery == 0 {
			c := w.clone()
			wrong, full := try(func() { c.heal(r) })
			if full {
				x.noRoom++
			}
			if wrong != "" {
				x.wrong, x.trace = wrong, trace(i, "healing")
				return x
			}
		}
		for _, m := range s.moves(r, w) {
			c, wrong := next(w, &m)
			if wrong != "" {
				x.wrong, x.trace = wrong, trace(i, m.name)
				return x
			}
			if c == nil {
				continue
			}
			k := c.key()
			if _, there := seen[k]; there {
				continue
			}
			if len(nodes) >= most {
				x.complete = false
				continue
			}
			seen[k] = struct{}{}
			nodes = append(nodes, node{c, i, m.name})
		}
	}
	return x
}

// walk goes ways at random, each of at most 120 moves, and heals a third of the states.
func (s *scenario) walk(r *rules, seed uint64, ways int) (x result) {
	rnd := rand.New(rand.NewPCG(seed, 0))
	for range ways {
		w := s.start(r)
		var trace []string
		for range 120 {
			all := s.moves(r, w)
			if len(all) == 0 {
				break
			}
			m := all[rnd.IntN(len(all))]
			c, wrong := next(w, &m)
			if wrong != "" {
				return result{states: x.states, wrong: wrong, trace: append(trace, m.name)}
			}
			if c == nil {
				continue
			}
			w = c
			trace = append(trace, m.name)
			x.states++
			if rnd.IntN(3) > 0 {
				continue
			}
			h := w.clone()
			wrong, full := try(func() { h.heal(r) })
			if full {
				x.noRoom++
			}
			if wrong != "" {
				return result{states: x.states, wrong: wrong, trace: append(trace, "healing")}
			}
		}
	}
	return x
}
