package epoch_test

import (
	"slices"

	"github.com/ledgerd/ledger/cloudsync/epoch"
)

// check checks the invariants that hold in every state.
func (w *world) check() {
	newest := w.b.newest()
	for i := range w.devices {
		a := &w.devices[i]
		if !a.on || !a.at.Joined() {
			continue
		}
		for j := i + 1; j < len(w.devices); j++ {
			b := &w.devices[j]
			if b.on && a.at.Epoch == b.at.Epoch && a.at.Number == b.at.Number && a.at.Hash == b.at.Hash && !equalStates(&a.log, &b.log) {
				fail("I1: devices %d and %d are at one position with %+v and %+v", i, j, a.log, b.log)
			}
		}
		if !w.faulty && newest != nil && a.at.Epoch == newest.x.ID {
			for _, id := range a.log.Packs {
				if !w.b.has(id) {
					fail("I3: pack %v is gone, which the newest epoch names", id[0])
				}
			}
			if _, ok := w.b.checkpointOf(newest.x); !ok {
				fail("I3: the checkpoint of the newest epoch is gone")
			}
		}
	}
	if lost := w.allCommits().Without(w.present()).Without(w.excused); len(lost) > 0 && !w.gone {
		fail("I2: commits %v are on no device, nor what was built on them", lost)
	}
}

// checkInLog checks that an entry which counts for the device is in the log of all successors.
func (w *world) checkInLog(d *device) {
	for _, o := range w.b.epochs {
		if w.faulty || o.x.Parent != d.at.Epoch {
			continue
		}
		if c := w.chainOf(o.x.ID); uint64(len(c)) < d.at.Number || c[d.at.Number-1] != d.at.Hash {
			fail("I4: entry %d of epoch %v counts for its writer, and is not in the log", d.at.Number, d.at.Epoch[0])
		}
	}
}

// present are the commits on devices, with all that they were built on. Once a disk was lost it
// includes what can be recovered from the bucket.
func (w *world) present() epoch.Set {
	var all epoch.Set
	for i := range w.devices {
		if d := &w.devices[i]; d.on {
			all = all.Union(w.view(d).Set())
		}
	}
	all = w.covered(all)
	if !w.lostDisk {
		return all
	}
	for i := range w.devices {
		if d := &w.devices[i]; d.on {
			all = all.Union(w.inLog(d.at.Epoch, all))
		}
	}
	return all.Union(w.covered(w.recoverable(all)))
}

// recoverable are the commits in the newest epoch that can be joined: of its checkpoint, of its
// log, and behind a hole those that build on what is there.
func (w *world) recoverable(have epoch.Set) epoch.Set {
	for _, o := range slices.Backward(w.b.epochs) {
		c, ok := w.b.checkpointOf(o.x)
		if !ok {
			continue
		}
		all := have.Union(c.state.Kept.Set())
		return all.Union(w.inLog(o.x.ID, all))
	}
	return nil
}

// inLog are the commits in the log of an epoch that build on what is there already.
func (w *world) inLog(dir epoch.ID, have epoch.Set) epoch.Set {
	for n := uint64(1); n <= w.b.last(dir); n++ {
		o := w.b.entryAt(dir, n)
		if o == nil || o.entry.long != (epoch.ID{}) && !w.b.has(o.entry.long) {
			continue
		}
		for _, node := range o.entry.body.Commits {
			if node.Near.Within(have) {
				have = have.Union(epoch.Set{node.ID})
			}
		}
	}
	return have
}

// excuse lets go what a fault has taken away with a disk.
func (w *world) excuse() {
	if w.lostDisk {
		w.excused = w.excused.Union(w.allCommits().Without(w.present()))
	}
}

func equalStates(a, b *epoch.State) bool {
	return equalGraphs(a.Kept, b.Kept) && slices.Equal(a.Gone, b.Gone) && slices.Equal(a.Packs, b.Packs) &&
		slices.Equal(a.Tags, b.Tags) && a.Retention == b.Retention
}

// damaged reports whether the bucket does not have the entry at the device's position.
func (w *world) damaged(d *device) bool {
	own := w.b.epochAt(d.at.K)
	if !d.at.Joined() || own == nil || own.x.ID != d.at.Epoch || d.at.Number == own.x.Base {
		return false
	}
	o := w.b.entryAt(d.at.Epoch, d.at.Number)
	return o == nil || o.entry.hash != d.at.Hash
}

// evidence reports whether an audit of the device finds reason for a renewal.
func (w *world) evidence(r *rules, d *device) bool {
	if !d.at.Joined() || d.at.Deleted || d.phase != idle {
		return false
	}
	l, newest := w.seen(r, d)
	switch r.look(d.at, l) {
	case epoch.Empty:
		return true
	case epoch.Enter:
		_, ok := w.b.checkpointOf(newest.x)
		return !ok
	}
	if w.damaged(d) {
		return true
	}
	gone := slices.DeleteFunc(slices.Clone(d.log.Packs), w.b.has)
	if w.placed(gone)&^w.b.in(d.log.Packs)&w.needs(d.log.Kept.Set()) != 0 {
		return true
	}
	c := w.clone()
	copied := *d
	_, bad := c.read(r, &copied)
	return bad || w.holeBehind(d)
}

// holeBehind reports whether an entry of the device's epoch below its position is missing.
func (w *world) holeBehind(d *device) bool {
	own := w.b.epochAt(d.at.K)
	if own == nil || own.x.ID != d.at.Epoch {
		return false
	}
	for n := own.x.Base + 1; n < d.at.Number; n++ {
		o := w.b.entryAt(d.at.Epoch, n)
		if o == nil || o.entry.long != (epoch.ID{}) && !w.b.has(o.entry.long) {
			return true
		}
	}
	return false
}

// heal runs all devices in turn without faults until nothing changes, and checks that all is one
// then.
func (w *world) heal(r *rules) {
	if w.fly.on {
		w.land()
	}
	for range 30 {
		changed := false
		for i := range w.devices {
			d := &w.devices[i]
			if !d.on {
				continue
			}
			d.reset()
			d.tx = 0
			for steps := 0; w.drive(r, i); steps++ {
				if steps > 100 {
					fail("I8: device %d does not come to rest", i)
				}
				changed = true
			}
		}
		if !changed {
			w.healed()
			return
		}
	}
	fail("I8: no rest")
}

// drive does the next thing that a device would do.
func (w *world) drive(r *rules, i int) bool {
	d := &w.devices[i]
	if w.ids > 250 {
		panic(noRoom{})
	}
	run := func() bool {
		for d.phase != idle {
			w.step(r, d, well)
		}
		return true
	}
	changed, bad := w.look(r, d)
	switch {
	case changed:
		return true
	case d.at.Deleted:
		return false
	case bad && !d.at.Joined():
		return len(w.b.epochs) == 0 && w.found(d) && run()
	case w.evidence(r, d):
		d.phase, d.kind = writing, epoch.Renewal
		return run()
	case !d.at.Joined():
		return false
	}
	if changed, _ := w.read(r, d); changed {
		return run()
	}
	if w.prune(r, d) || w.merge(r, d, i) || w.upload(r, d) {
		return true
	}
	return w.append(r, d, i, well)
}

// upload uploads what an append needs first.
func (w *world) upload(r *rules, d *device) bool {
	if p := w.toSend(d); p != 0 && d.at.Joined() && !d.at.Deleted {
		d.pending = append(slices.Clip(d.pending), w.newPack(d.at.Epoch, p))
		return true
	}
	b := d.body(r)
	if !w.long || b.Empty() || d.long != (epoch.ID{}) && d.longOf == bodyHash(&b) || !d.at.Joined() || d.at.Deleted {
		return false
	}
	d.long, d.longOf = w.newPack(d.at.Epoch, 0), bodyHash(&b)
	return true
}

// found begins the first epoch of a page.
func (w *world) found(d *device) bool {
	x := epoch.Proposal{ID: w.newID(), Kind: epoch.Found}
	x.Hash = hashOf(x.ID)
	d.x, d.number, d.phase = &x, 0, putting
	return true
}

// healed checks what holds at rest.
func (w *world) healed() {
	var first *device
	var held pieces
	for i := range w.devices {
		d := &w.devices[i]
		if !d.on {
			continue
		}
		held |= d.held
		if first == nil {
			first = d
		}
		if w.known && !d.at.Deleted {
			fail("I8: the page was deleted, and device %d still has it", i)
		}
		if len(d.unsynced) > 0 || d.at.Epoch != first.at.Epoch || d.at.Number != first.at.Number || !equalStates(&d.log, &first.log) {
			fail("I8: device %d is at %v with %+v and %v unsynced, the first one at %v with %+v",
				i, d.at, d.log, d.unsynced.Set(), first.at, first.log)
		}
	}
	if first == nil || first.at.Deleted || !first.at.Joined() {
		return
	}
	w.healedContent(first, held)
}

func (w *world) healedContent(d *device, held pieces) {
	if w.gone {
		return // and came back, since the bucket has lost the deletion before anybody knew of it
	}
	heads := d.log.Heads()
	if len(heads) > 1 {
		fail("I8: heads %v", heads)
	}
	if lost := w.allCommits().Without(w.covered(heads)).Without(w.excused); len(lost) > 0 {
		fail("I2: commits %v are not below the head %v", lost, heads)
	}
	if miss := w.needs(d.log.Kept.Set()) &^ w.b.in(d.log.Packs); miss&held != 0 {
		fail("I7: pieces %b have no place, and a device holds them", miss&held)
	} else if miss != 0 && !w.faulty {
		fail("I7: pieces %b are gone", miss)
	}
	var flagged epoch.Set
	for _, o := range w.b.epochs {
		flagged = flagged.Union(o.x.Erased)
	}
	if back := d.log.Kept.Set().And(w.erased).And(flagged); len(back) > 0 {
		fail("erased commits %v are back", back)
	}
}
