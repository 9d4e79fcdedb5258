package protocol

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"time"
)

// The model: a bucket, a network that loses and delays answers, and devices that work through small
// programs. All that matters is in world, which is copied, changed by one transition, and compared
// with worlds that were seen before.

const (
	maxNumber  = 9
	maxDevices = 4
	maxFloors  = 3
	jumpDays   = 31
)

// record is an entry in the model. id 0 is none.
type record struct {
	id        uint8 // device and attempt
	number    uint8
	prev, tok uint16 // hash of the entry before, and its own
	day       uint8
	packs     uint8 // bits: announced or relied on
	condemned uint8 // bits
	below     uint8
	base      uint8 // of which entry's heads the diffs lead from, 0 for none
	commit    uint8 // bit
}

func (r record) hash() Hash { return token(r.tok) }

func token(t uint16) (h Hash) {
	binary.BigEndian.PutUint16(h[:], t)
	return h
}

func untoken(h Hash) uint16 { return binary.BigEndian.Uint16(h[:]) }

func modelID(kind, n uint8) ID { return ID{kind, n} }

func packIDs(mask uint8) (ids []ID) {
	for i := range uint8(8) {
		if mask&(1<<i) != 0 {
			ids = append(ids, modelID('p', i))
		}
	}
	return ids
}

// modelTime is a time on a day of the model.
func modelTime(day uint8) Time {
	return Time(0).Add(1000 * time.Hour).Add(time.Duration(day) * 24 * time.Hour)
}

func (r record) entry() Entry {
	e := Entry{ID: modelID('e', r.id), Previous: token(r.prev), Hash: r.hash(), Created: modelTime(r.day), Device: modelID('d', r.id>>4), Weight: 1,
		Packs: packIDs(r.packs), Condemned: packIDs(r.condemned), Below: uint64(r.below)}
	if r.base > 0 {
		e.Entries = []uint64{uint64(r.base)}
	}
	return e
}

// world is the state of everything.
type world struct {
	entries  [maxNumber + 1]record
	truth    [maxNumber + 1]record // the log as it was made, whatever is deleted
	length   uint8
	floors   [maxFloors]Floor
	floorN   uint8
	packs    uint8 // bits: those in the bucket
	day      uint8
	flight   record // a put that was sent, of which nothing is known
	faults   uint8  // left
	crashes  uint8
	jumps    uint8
	rollback uint8
	saved    [maxNumber + 1]record // the bucket as it was when the scenario began
	savedLen uint8
	rolled   bool
	devices  [maxDevices]modelDevice
}

// modelDevice is a device: a worker that runs a program, and its machine.
type modelDevice struct {
	m       Machine
	pending Effect // of the machine, that concerns others
	action  action // of the worker
	pc      uint8
	over    bool
	stopped bool // saw that the bucket was rolled back
	attempt uint8
	reuse   bool // append the same body again, after a catch-up
	retry   bool // the catch-up before that

	at        Position // durable, with what follows
	floor     Floor
	looked    Time
	condemned uint8 // packs that applied entries condemned
	relied    uint8 // packs that applied entries relied on, after the first entry
	synced    uint8 // commits
	uploaded  uint8 // pack that no entry has announced
	given     uint8 // below of the condemnation that was appended
	givenDay  uint8

	digest   stateKey // of all the rest, zero when it is to be computed
	body     record
	accepted [maxNumber]record
	acceptN  uint8
	last     record
}

// action is something that a worker does itself with the bucket.
type action uint8

const (
	actNone action = iota
	actUpload
	actFloor
	actDeleteEntry
	actDeletePack
)

type stepKind uint8

const (
	doWrite stepKind = iota
	doCatchUp
	doCondemn
	doFloor
	doCollect
)

// step is a line of a worker's program.
type step struct {
	kind   stepKind
	commit uint8 // bit
	rely   uint8 // pack bit
	pack   uint8 // pack bit to condemn
	below  bool  // condemn all entries below the position
	prove  bool
}

// scenario is what is explored.
type scenario struct {
	name     string
	programs [][]step
	at       []uint8 // where devices begin
	length   uint8   // of the log
	faults   uint8
	crashes  uint8
	jumps    uint8
	rollback bool
	tier     int
}

// model is a scenario with the rules under test.
type model struct {
	scenario
	rules rules
	gone  func(condemned, floor, now Time) bool
	next  func(f Floor, low, checkpoint uint64) (Floor, bool)
}

// violation is what a transition panics with; explore recovers it.
type violation string

func violate(format string, args ...any) { panic(violation(fmt.Sprintf(format, args...))) }

func (x *model) begin() *world {
	w := &world{packs: 1, faults: x.faults, crashes: x.crashes, jumps: x.jumps}
	for n := uint8(1); n <= x.length; n++ {
		r := record{id: 0xf0 | n, number: n, prev: w.truth[n-1].tok, packs: 1}
		if n > 1 {
			r.packs = 0
		}
		r.tok = mix(r)
		w.entries[n], w.truth[n], w.length = r, r, n
	}
	if x.rollback {
		w.rollback, w.saved, w.savedLen = 1, w.entries, w.length
	}
	for i := range x.programs {
		d := &w.devices[i]
		d.at = w.position(x.at[i])
		d.looked = modelTime(0)
		x.boot(d)
	}
	for i := range x.programs {
		x.work(w, i)
	}
	return w
}

func mix(r record) uint16 {
	h := uint32(2166136261)
	for _, b := range [...]uint8{r.id, r.number, uint8(r.prev), uint8(r.prev >> 8)} {
		h = (h ^ uint32(b)) * 16777619
	}
	return uint16(h>>16) ^ uint16(h) | 1
}

func (w *world) position(n uint8) Position {
	if n == 0 {
		return Position{}
	}
	return Position{uint64(n), w.truth[n].hash()}
}

// boot gives a device a machine that knows only what is durable.
func (x *model) boot(d *modelDevice) {
	d.m = *New(Options{At: d.at, Floor: d.floor, Looked: d.looked, MaxBatch: 2})
	d.m.rules = &x.rules
	d.pending, d.action, d.reuse, d.retry, d.acceptN = nil, actNone, false, false, 0
	d.body, d.last = record{}, record{}
}

// work lets a worker begin its next operation, or end.
func (x *model) work(w *world, i int) {
	d := &w.devices[i]
	for int(d.pc) < len(x.programs[i]) && !d.stopped {
		s := x.programs[i][d.pc]
		switch {
		case d.retry:
			x.feed(w, i, StartCatchUp{})
			return
		case s.kind == doCatchUp:
			x.feed(w, i, StartCatchUp{Prove: s.prove})
			return
		case s.kind == doWrite && d.synced&s.commit != 0 && !d.reuse:
			d.pc++
		case s.kind == doWrite:
			if !d.reuse && x.makeBody(d, i, s) {
				d.action = actUpload
				return
			}
			x.feed(w, i, StartAppend{Body: d.body.machineBody(), Prove: s.prove})
			return
		case s.kind == doCondemn && d.relied&s.pack != 0:
			d.pc++ // it is needed: nothing is condemned
		case s.kind == doCondemn:
			d.attempt++
			d.body = record{id: uint8(i)<<4 | d.attempt, condemned: s.pack}
			if s.below {
				d.body.below = uint8(d.at.Number)
			}
			x.feed(w, i, StartAppend{Body: d.body.machineBody(), Prove: s.prove})
			return
		case s.kind == doFloor && d.given == 0:
			d.pc++
		case s.kind == doFloor:
			d.action = actFloor
			return
		default:
			if x.collect(w, d) {
				return
			}
			d.pc++
		}
	}
	d.over = true
}

// makeBody makes a body for a commit, or says that a pack has to be uploaded for it.
func (x *model) makeBody(d *modelDevice, i int, s step) (upload bool) {
	packs := s.rely
	if packs&d.condemned != 0 {
		if d.uploaded == 0 || d.uploaded&d.condemned != 0 {
			return true
		}
		packs = d.uploaded
	}
	d.attempt++
	d.body = record{id: uint8(i)<<4 | d.attempt, packs: packs, base: uint8(d.at.Number), commit: s.commit}
	return false
}

func (r record) machineBody() Body {
	e := r.entry()
	return Body{ID: e.ID, Device: e.Device, Packs: e.Packs, Entries: e.Entries, Condemned: e.Condemned, Below: e.Below}
}

// collect sets the next deletion, if there is one that can still become possible.
func (x *model) collect(w *world, d *modelDevice) bool {
	if d.given == 0 || w.floorN == 0 || w.jumps == 0 && !x.mayDelete(w, d) {
		return false
	}
	for n := uint8(1); n < d.given; n++ {
		if w.entries[n].id != 0 && w.entries[n] == w.truth[n] {
			d.action = actDeleteEntry
			return true
		}
	}
	if d.condemned&w.packs != 0 {
		d.action = actDeletePack
	}
	return d.action != actNone
}

// mayDelete asks the function under test.
func (x *model) mayDelete(w *world, d *modelDevice) bool {
	f := w.floors[w.floorN-1]
	return f.Low >= uint64(d.given) && x.gone(modelTime(d.givenDay), f.Created, modelTime(w.day))
}

// feed gives an event to a machine and carries out what concerns nobody else.
func (x *model) feed(w *world, i int, ev Event) {
	d := &w.devices[i]
	for ev != nil {
		d.m.condemned, d.m.packs = maps.Clone(d.m.condemned), slices.Clip(d.m.packs) // copies of the world share them
		effects := d.m.Step(ev)
		ev = nil
		for _, e := range effects {
			switch e := e.(type) {
			case Wait:
			case Accept:
				d.accepted[d.acceptN] = d.last
				d.acceptN++
			case Done:
				x.ended(w, i, e)
				return
			case Apply, Settle:
				if d.pending = e; w.crashes == 0 {
					ev = x.local(w, i, e)
				}
			default:
				d.pending = e
			}
		}
	}
}

// local carries out an apply or a settle.
func (x *model) local(w *world, i int, e Effect) Event {
	d := &w.devices[i]
	d.pending = nil
	switch e := e.(type) {
	case Apply:
		for _, r := range d.accepted[:d.acceptN] {
			x.take(w, d, r)
		}
		d.acceptN = 0
		if d.at != e.At {
			violate("device %d: position %v behind entries up to %v", i, e.At, d.at)
		}
		return Applied{}
	case Settle:
		x.settled(w, i, e)
		return Settled{}
	}
	return EffectFailed{}
}

// take applies an entry.
func (x *model) take(w *world, d *modelDevice, r record) {
	if uint64(r.number) != d.at.Number+1 || token(r.prev) != d.at.Hash {
		violate("entry %d (%x) is applied behind %d: no chain", r.number, r.id, d.at.Number)
	}
	if !w.rolled && w.truth[r.number] != r {
		violate("entry %d (%x) is applied, the log has %x", r.number, r.id, w.truth[r.number].id)
	}
	d.at = Position{uint64(r.number), r.hash()}
	d.condemned |= r.condemned
	d.relied |= r.packs
	if r.id>>4 == d.body.id>>4 {
		d.synced |= r.commit
	}
}

func (x *model) settled(w *world, i int, e Settle) {
	d := &w.devices[i]
	n := uint8(e.At.Number)
	if !w.rolled && (w.truth[n].id != d.body.id || w.truth[n].hash() != e.At.Hash) {
		violate("device %d: entry %d (%x) counts, the log has %x", i, n, d.body.id, w.truth[n].id)
	}
	if e.At.Number != d.at.Number+1 {
		violate("device %d: settles %d at %d", i, n, d.at.Number)
	}
	d.at = e.At
	d.synced |= d.body.commit
	d.condemned |= d.body.condemned
	d.uploaded &^= d.body.packs
	if d.body.below > 0 {
		d.given, d.givenDay = d.body.below, uint8((e.Created-modelTime(0))/Time(24*time.Hour))
	} else if d.body.condemned != 0 {
		d.given, d.givenDay = 1, uint8((e.Created-modelTime(0))/Time(24*time.Hour))
	}
}

// ended goes on after an operation.
func (x *model) ended(w *world, i int, e Done) {
	d := &w.devices[i]
	d.pending, d.acceptN = nil, 0
	d.floor, d.looked = d.m.floor, d.m.looked
	if !w.rolled && d.at != w.position(uint8(d.at.Number)) || d.at != d.m.at {
		violate("device %d: position %v, the machine's %v, is not in the log", i, d.at, d.m.at)
	}
	s := x.programs[i][d.pc]
	wasRetry := d.retry
	d.retry, d.reuse = false, false
	switch e.Outcome {
	case Completed:
		switch {
		case wasRetry:
			d.reuse = true
		case s.kind == doWrite && d.synced&s.commit == 0:
			violate("device %d: an append is complete and its commit is not settled", i)
		default:
			d.pc++
		}
	case Landed:
		d.pc++
	case Failed: // it tries the same body again, with a catch-up between
		d.retry = s.kind == doWrite
	case Remake, Busy:
	case Passed:
		x.join(w, i)
	case RolledBack, Replaced:
		if !w.rolled {
			violate("device %d: outcome %s, and nothing was rolled back", i, e.Outcome)
		}
		d.stopped = true
	default:
		if !w.rolled {
			violate("device %d: outcome %s", i, e.Outcome)
		}
		d.stopped = true
	}
	x.work(w, i)
}

// join begins anew at the checkpoint of the newest floor.
func (x *model) join(w *world, i int) {
	d := &w.devices[i]
	f := w.floors[w.floorN-1]
	for n := uint8(d.at.Number) + 1; n <= uint8(f.Checkpoint); n++ {
		r := w.truth[n]
		d.condemned |= r.condemned
		d.relied |= r.packs
		if r.id>>4 == uint8(i) {
			d.synced |= r.commit
		}
	}
	d.at, d.floor = w.position(uint8(f.Checkpoint)), f
	condemned := d.m.condemned
	x.boot(d)
	d.m.condemned = condemned
}
