package protocol

// move is one thing that can happen in a world.
type move struct {
	kind   moveKind
	device int
}

type moveKind uint8

const (
	moveGo        moveKind = iota // a device's pending effect or action is carried out
	moveLost                      // so is its put, but the answer is lost
	moveRefused                   // its put is refused, though the name may be free
	moveDelayed                   // its put is under way, and nothing is known of it
	moveFail                      // its get fails
	moveCrash                     // it crashes before what it was about to do
	moveCrashSent                 // it crashes after the bucket has carried out its put
	moveLand                      // the put that is under way arrives
	moveJump                      // a month passes
	moveRollback                  // the bucket goes back to what it was in the beginning
)

// moves returns what can happen.
func (x *model) moves(w *world) (ms []move) {
	for i := range x.programs {
		d := &w.devices[i]
		if d.over || d.pending == nil && !x.ready(w, d) {
			continue
		}
		ms = append(ms, move{moveGo, i})
		_, put := d.pending.(Put)
		if w.crashes > 0 {
			ms = append(ms, move{moveCrash, i})
			if put {
				ms = append(ms, move{moveCrashSent, i})
			}
		}
		if w.faults == 0 {
			continue
		}
		switch d.pending.(type) {
		case Put:
			ms = append(ms, move{moveLost, i}, move{moveRefused, i})
			if w.flight.id == 0 {
				ms = append(ms, move{moveDelayed, i})
			}
		case GetEntry:
			ms = append(ms, move{moveFail, i})
		}
	}
	if w.flight.id != 0 {
		ms = append(ms, move{moveLand, 0})
	}
	if w.jumps > 0 {
		ms = append(ms, move{moveJump, 0})
	}
	if w.rollback > 0 {
		ms = append(ms, move{moveRollback, 0})
	}
	return ms
}

// ready reports whether a worker's action can be done now: deletions wait for the grace.
func (x *model) ready(w *world, d *modelDevice) bool {
	switch d.action {
	case actNone:
		return false
	case actDeleteEntry, actDeletePack:
		return x.mayDelete(w, d)
	}
	return true
}

// do carries out a move.
func (x *model) do(w *world, mv move) {
	d := &w.devices[mv.device]
	switch mv.kind {
	case moveJump:
		w.jumps--
		w.day += jumpDays
		return
	case moveLand:
		r := w.flight
		w.flight = record{}
		x.land(w, r)
		return
	case moveRollback:
		w.rollback, w.rolled = 0, true
		w.entries, w.length = w.saved, w.savedLen
		w.flight = record{}
		return
	case moveCrash, moveCrashSent:
		if put, ok := d.pending.(Put); ok && mv.kind == moveCrashSent {
			x.land(w, x.sent(w, d, put))
		}
		w.crashes--
		x.boot(d)
		x.work(w, mv.device)
		return
	case moveGo:
	default:
		w.faults--
	}
	if d.action != actNone {
		a := d.action
		d.action = actNone
		x.act(w, mv.device, a)
		x.work(w, mv.device)
		return
	}
	e := d.pending
	d.pending = nil
	switch e := e.(type) {
	case GetEntry:
		x.feed(w, mv.device, x.getEntry(w, d, e, mv.kind))
	case GetFloor:
		var a FloorRead
		if e.K >= 1 && e.K <= uint64(w.floorN) {
			a = FloorRead{Found: true, Floor: w.floors[e.K-1]}
		}
		x.feed(w, mv.device, a)
	case Put:
		x.feed(w, mv.device, x.put(w, d, e, mv.kind))
	default:
		x.feed(w, mv.device, x.local(w, mv.device, e))
	}
}

func (x *model) getEntry(w *world, d *modelDevice, e GetEntry, kind moveKind) Event {
	if kind == moveFail {
		return EffectFailed{}
	}
	if e.Span != Single || e.Number > maxNumber || w.entries[e.Number].id == 0 {
		return EntryRead{}
	}
	d.last = w.entries[e.Number]
	return EntryRead{Found: true, Entry: d.last.entry(), Now: modelTime(w.day)}
}

func (x *model) sent(w *world, d *modelDevice, e Put) record {
	r := d.body
	r.number, r.prev, r.day = uint8(e.Number), untoken(e.Previous), w.day
	r.tok = mix(r)
	return r
}

func (x *model) put(w *world, d *modelDevice, e Put, kind moveKind) Event {
	if e.Number != d.at.Number+1 || e.Previous != d.at.Hash {
		violate("put of %d at position %d", e.Number, d.at.Number)
	}
	if e.Number > maxNumber {
		violate("put of %d: the model is too small", e.Number)
	}
	r := x.sent(w, d, e)
	switch kind {
	case moveRefused:
		return PutAnswered{}
	case moveDelayed:
		w.flight = r
		return PutAnswered{}
	}
	if !x.land(w, r) || kind == moveLost {
		return PutAnswered{}
	}
	d.last = r
	return PutAnswered{Stored: true, Created: modelTime(w.day), Hash: r.hash()}
}

// land lets a put arrive at the bucket.
func (x *model) land(w *world, r record) bool {
	if w.entries[r.number].id != 0 {
		return false
	}
	r.day = w.day
	w.entries[r.number] = r
	if w.rolled || r.number <= w.length {
		return true // at a name that was free because of a deletion: no part of the log
	}
	if r.number != w.length+1 || r.prev != w.truth[w.length].tok {
		violate("entry %d (%x) does not continue the log of %d", r.number, r.id, w.length)
	}
	for n := uint8(1); n <= w.length; n++ {
		t := w.truth[n]
		switch {
		case t.id == r.id:
			violate("body %x is in the log twice", r.id)
		case r.commit != 0 && t.commit == r.commit:
			violate("commit %x is in the log twice", r.commit)
		case t.condemned&r.packs != 0:
			violate("entry %d relies on packs that entry %d condemned", r.number, n)
		case r.base > 0 && t.below > r.base:
			violate("entry %d is built on the log as of entry %d, and entry %d has given up what is below %d", r.number, r.base, n, t.below)
		case n > r.below && t.base > 0 && t.base < r.below:
			violate("entry %d gives up what is below %d, and entry %d is built on the log as of entry %d", r.number, r.below, n, t.base)
		case n > 1 && t.packs&r.condemned != 0:
			violate("entry %d condemns packs that entry %d relies on", r.number, n)
		}
	}
	if r.packs&^w.packs != 0 {
		violate("entry %d relies on packs that are deleted", r.number)
	}
	w.length = r.number
	w.truth[r.number] = r
	return true
}

// act carries out what a worker does itself.
func (x *model) act(w *world, i int, a action) {
	d := &w.devices[i]
	switch a {
	case actUpload:
		d.uploaded = 2 << i
		w.packs |= d.uploaded
	case actFloor:
		d.pc++
		f, ok := x.next(d.m.floor, uint64(d.given), d.at.Number)
		if !ok || f.K != uint64(w.floorN)+1 {
			return // another one was faster
		}
		f.Created = modelTime(w.day)
		checkFloor(w, f)
		w.floors[w.floorN] = f
		w.floorN++
	case actDeleteEntry:
		for n := uint8(1); n < d.given; n++ {
			if w.entries[n].id != 0 && w.entries[n] == w.truth[n] {
				checkDeletedEntry(w, n)
				w.entries[n] = record{}
				return
			}
		}
	case actDeletePack:
		for i := range uint8(8) {
			if bit := uint8(1) << i; d.condemned&w.packs&bit != 0 {
				checkDeletedPack(w, bit)
				w.packs &^= bit
			}
		}
	}
}

func checkFloor(w *world, f Floor) {
	given := uint8(0)
	for n := uint8(1); n <= w.length; n++ {
		given = max(given, w.truth[n].below)
	}
	switch {
	case f.Low > uint64(given):
		violate("floor %d passes entry %d, which was not given up", f.K, f.Low-1)
	case f.Low > f.Checkpoint+1 || f.Checkpoint > uint64(w.length):
		violate("floor %d passes entries that its checkpoint %d does not hold", f.K, f.Checkpoint)
	case w.floorN > 0 && f.Low <= w.floors[w.floorN-1].Low:
		violate("floor %d is not higher than the one before", f.K)
	}
}

func old(day uint8, w *world) bool { return w.day >= day+30 }

func checkDeletedEntry(w *world, n uint8) {
	given, floored := false, false
	for k := uint8(1); k <= w.length; k++ {
		given = given || w.truth[k].below > n && old(w.truth[k].day, w)
	}
	for _, f := range w.floors[:w.floorN] {
		floored = floored || f.Low > uint64(n) && modelTime(w.day) >= f.Created.Add(Grace)
	}
	if !given || !floored {
		violate("entry %d is deleted before its grace: condemned %t, below a floor %t", n, given, floored)
	}
}

func checkDeletedPack(w *world, bit uint8) {
	for k := uint8(1); k <= w.length; k++ {
		if w.truth[k].condemned&bit != 0 && old(w.truth[k].day, w) {
			return
		}
	}
	violate("packs %x are deleted before their grace", bit)
}
