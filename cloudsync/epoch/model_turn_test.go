package epoch_test

import (
	"slices"

	"github.com/ledgerd/ledger/cloudsync/epoch"
)

// reset forgets a turn, as a crash does. A deleted page keeps its epoch.
func (d *device) reset() {
	if !d.at.Deleted {
		d.x = nil
	}
	d.phase, d.kind, d.erase, d.number, d.victim, d.entry = idle, 0, false, 0, epoch.Object{}, 0
}

// step makes one request of a turn. It reports whether there was one.
func (w *world) step(r *rules, d *device, how outcome) bool {
	switch d.phase {
	case writing:
		w.write(r, d)
		if how == lost {
			d.reset()
		}
	case closing:
		w.close(d)
		if how == lost {
			d.reset()
		}
	case confirming:
		return w.confirm(r, d)
	case putting:
		w.putEpoch(r, d, how)
	case deleting:
		w.delete(d)
	default:
		return false
	}
	return true
}

// write uploads a checkpoint with what its manifest needs, and makes the proposal.
func (w *world) write(r *rules, d *device) {
	x := *d.at.Propose(epoch.ID{}, epoch.Deleted)
	if d.kind != epoch.Deleted {
		var next epoch.State
		dir := w.newID()
		if r.oldDir {
			dir = d.at.Epoch
		}
		x, next = w.propose(r, d, dir)
		x.Checkpoint = w.newID()
		w.b.checkpoints = append(w.b.checkpoints, checkpointObject{x.Checkpoint, dir, &checkpoint{next}, w.now})
	}
	if r.oldDir || x.ID == (epoch.ID{}) {
		x.ID = w.newID()
	}
	if x.Kind == epoch.Renewal {
		x.Renewed = x.ID
	}
	x.Hash = hashOf(x.ID, x.Parent, x.BaseHash, x.Checkpoint)
	w.chained = append(slices.Clip(w.chained), chained{x.ID, d.chain})
	d.x, d.phase = &x, closing
}

func (w *world) propose(r *rules, d *device, dir epoch.ID) (epoch.Proposal, epoch.State) {
	log, named := w.linkedTo(d.log, nil), d.log.Packs
	var keep, erase epoch.Set
	switch {
	case d.kind == epoch.Renewal:
		keep = d.log.Kept.Set()
		if n := w.b.newest(); n != nil && n.x.ID != d.at.Epoch && !r.namesAll {
			named = nil // what is of another lineage may be deleted at any time
		}
		named = slices.DeleteFunc(slices.Clone(named), func(id epoch.ID) bool { return !w.b.has(id) })
		if !r.noErased {
			for _, o := range w.b.epochs {
				erase = erase.Union(o.x.Erased)
			}
		}
	default:
		if d.erase {
			for _, n := range d.log.Kept {
				if w.commits[n.ID-1].secret {
					erase = erase.Union(epoch.Set{n.ID})
				}
			}
			erase = erase.Without(d.log.Heads())
		}
		at := epoch.Time(0)
		if o := w.b.entryAt(d.at.Epoch, d.at.Number); o != nil {
			at = o.created
		}
		keep = r.keep(log, at, erase)
	}
	need := w.needs(keep)
	var manifest []epoch.ID
	for _, id := range named {
		if w.placed([]epoch.ID{id})&need != 0 {
			manifest = append(manifest, id)
		}
	}
	if miss := need &^ w.placed(manifest) & (d.held | w.b.in(d.log.Packs)); miss != 0 {
		manifest = append(manifest, w.newPack(dir, miss))
	}
	if d.kind == epoch.Renewal {
		seen, _ := w.seen(r, d)
		return r.renew(log, dir, d.at, seen, erase, d.send, manifest)
	}
	x := d.at.Propose(dir, epoch.Cut)
	x.Erased = erase
	return *x, log.Reduced(keep, manifest)
}

// renewal returns the proposal of the renewal id, and the state in its checkpoint.
func renewal(s epoch.State, id epoch.ID, p epoch.Position, seen epoch.Looked, erased, send epoch.Set, packs []epoch.ID) (epoch.Proposal, epoch.State) {
	x := p.Propose(id, epoch.Renewal)
	x.Erased, x.Behind = erased, seen.Behind()
	return *x, s.Renewal(erased, send, packs)
}

// enterNewest is the verdict of help where another epoch can be joined.
const enterNewest epoch.TurnVerdict = 100

// help judges a proposal. joinable reports whether the newest epoch can be joined.
func help(p epoch.Position, x *epoch.Proposal, l epoch.Looked, joinable bool) (epoch.TurnVerdict, uint64) {
	if p.Look(l) == epoch.Enter && joinable {
		return enterNewest, 0
	}
	return p.Help(x, l)
}

// close puts the closing entry: a renewal behind all that there is.
func (w *world) close(d *device) {
	n, previous := d.at.Number, d.at.Hash
	if last := w.b.last(d.at.Epoch); d.kind == epoch.Renewal && last > n {
		n, previous = last, w.b.entryAt(d.at.Epoch, last).entry.hash
	}
	e := &entry{previous: previous, closing: d.x, hash: hashOf(previous, d.x.Hash)}
	if !w.b.putEntry(entryObject{d.at.Epoch, n + 1, e, w.now}) {
		d.reset() // lost the race: read, and begin again
		return
	}
	d.phase = confirming
}

// confirm looks before the proposal is put.
func (w *world) confirm(r *rules, d *device) bool {
	l, newest := w.seen(r, d)
	joinable := false
	if newest != nil {
		_, joinable = w.b.checkpointOf(newest.x)
	}
	verdict, number := r.help(d.at, d.x, l, joinable)
	switch verdict {
	case epoch.PutEpoch:
		d.phase, d.number = putting, number
	case enterNewest:
		w.join(r, d, newest.k, newest.x, l.At)
	default:
		d.reset()
	}
	return true
}

func (w *world) putEpoch(r *rules, d *device, how outcome) {
	o := epochObject{d.number, d.x, w.now}
	x := d.x
	if how == stalled {
		w.fly = flight{on: true, epoch: &o}
		d.reset()
		return
	}
	stored := w.b.putEpoch(o)
	if c, ok := w.b.checkpointOf(x); ok && stored {
		if bare := c.state.Gone.Without(w.covered(c.state.Heads())).Without(w.erased); len(bare) > 0 {
			fail("I10: an epoch gives %v up, and no head of it descends from them", bare)
		}
	}
	if stored && x.Kind == epoch.Deleted {
		w.gone = true
	}
	if stored {
		w.erased = w.erased.Union(x.Erased)
	}
	d.reset() // a look comes next, and says what holds
}

// deletion is what the device knows of what it may delete.
func (w *world) deletion(r *rules, d *device) *epoch.Deletion {
	own := w.b.epochAt(d.at.K)
	if own == nil || own.x.ID != d.at.Epoch {
		return nil
	}
	del := &epoch.Deletion{Lineage: []epoch.Began{{Epoch: own.x.ID, At: own.created}}, Kind: own.x.Kind, Named: d.manifest}
	line := []*epoch.Proposal{own.x}
	for id := own.x.Parent; id != (epoch.ID{}); {
		i := slices.IndexFunc(w.b.epochs, func(o epochObject) bool { return o.x.ID == id })
		if i < 0 {
			break
		}
		del.Lineage = append(del.Lineage, epoch.Began{Epoch: id, At: w.b.epochs[i].created})
		line = append(line, w.b.epochs[i].x)
		id = w.b.epochs[i].x.Parent
	}
	if del.Settled = r.settled(del.Lineage, w.now); del.Settled == 0 || del.Settled == len(line) || r.ownNames {
		return del
	}
	c, ok := w.b.checkpointOf(line[del.Settled])
	if !ok {
		return nil
	}
	del.Named = c.state.Packs
	return del
}

// victim is an object that a device may delete.
type victim struct {
	o epoch.Object
	n uint64 // of an entry
}

// victims are the objects that the device may delete: of the entries of an epoch the first and the
// last one, which stand for any order.
func (w *world) victims(r *rules, d *device) (all []victim) {
	if !d.at.Joined() {
		return nil
	}
	del := w.deletion(r, d)
	if del == nil {
		return nil
	}
	may := func(o epoch.Object) bool { return r.may(del, o) }
	for i, o := range w.b.entries {
		first := i == 0 || w.b.entries[i-1].dir != o.dir
		end := i == len(w.b.entries)-1 || w.b.entries[i+1].dir != o.dir
		if (first || end) && may(epoch.Object{Dir: o.dir, Created: o.created}) {
			all = append(all, victim{epoch.Object{Dir: o.dir, Created: o.created}, o.n})
		}
	}
	for _, o := range w.b.packs {
		if may(epoch.Object{Dir: o.dir, ID: o.id, Created: o.created}) {
			all = append(all, victim{epoch.Object{Dir: o.dir, ID: o.id, Created: o.created}, 0})
		}
	}
	for _, o := range w.b.checkpoints {
		if may(epoch.Object{Dir: o.dir, ID: o.id, Created: o.created}) {
			all = append(all, victim{epoch.Object{Dir: o.dir, ID: o.id, Created: o.created}, 0})
		}
	}
	return all
}

// delete deletes what the device chose before.
func (w *world) delete(d *device) {
	v := d.victim
	if n := w.b.newest(); w.strict && n != nil && v.ID != (epoch.ID{}) {
		if c, ok := w.b.checkpointOf(n.x); ok && (slices.Contains(c.state.Packs, v.ID) || n.x.Checkpoint == v.ID) {
			fail("I3: %v is deleted, which the newest epoch names", v.ID[0])
		}
	}
	w.b.entries = slices.DeleteFunc(w.b.entries, func(o entryObject) bool { return o.dir == v.Dir && o.n == d.entry && v.ID == epoch.ID{} })
	w.b.packs = slices.DeleteFunc(w.b.packs, func(o packObject) bool { return o.id == v.ID })
	w.b.checkpoints = slices.DeleteFunc(w.b.checkpoints, func(o checkpointObject) bool { return o.id == v.ID })
	d.reset()
}
