package protocol

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"reflect"
	"strings"
)

// result is what an exploration has found.
type result struct {
	states, moves int
	outcome       string // empty, or the violation with the moves that lead to it
}

var seeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

type stateKey [2]uint64

// explore visits every world that can be reached, depth first.
func (x *model) explore(limit int) (r result) {
	seen := map[stateKey]struct{}{}
	var path []move
	defer func() {
		if v := recover(); v != nil {
			text, ok := v.(violation)
			if !ok {
				panic(v)
			}
			r.states, r.outcome = len(seen), fmt.Sprintf("%s after %s", text, describe(path))
		}
	}()
	var buf []byte
	var visit func(w *world)
	visit = func(w *world) {
		buf = w.encode(buf[:0], len(x.programs))
		key := digest(buf)
		if _, ok := seen[key]; ok {
			return
		}
		if seen[key] = struct{}{}; len(seen) > limit {
			violate("more than %d states", limit)
		}
		ms := x.moves(w)
		final := true
		for _, mv := range ms {
			final = final && mv.kind != moveGo
			path = append(path, mv)
			next := *w
			next.devices[mv.device].digest = stateKey{}
			x.do(&next, mv)
			r.moves++
			visit(&next)
			path = path[:len(path)-1]
		}
		if final {
			x.atEnd(w)
		}
	}
	visit(x.begin())
	r.states = len(seen)
	return r
}

// atEnd checks a world in which no device has anything to do.
func (x *model) atEnd(w *world) {
	if w.rolled {
		for i := range x.programs {
			x.provesTruly(*w, i)
		}
		return
	}
	for i, p := range x.programs {
		d := &w.devices[i]
		if !d.over && d.action == actNone {
			violate("device %d is stuck at line %d", i, d.pc)
		}
		for _, s := range p {
			if s.kind == doWrite && !w.has(s.commit) {
				violate("device %d: commit %x is not in the log", i, s.commit)
			}
		}
		if d.over {
			x.readsAll(*w, i)
		}
	}
}

// provesTruly lets a device prove its position: that succeeds if and only if the bucket has the
// entry.
func (x *model) provesTruly(w world, i int) {
	d := &w.devices[i]
	x.boot(d)
	e := d.m.Step(StartVerify{})[0]
	for n := 0; n < 100; n++ {
		switch f := e.(type) {
		case GetEntry:
			e = d.m.Step(x.getEntry(&w, d, f, moveGo))[0]
		case GetFloor:
			e = d.m.Step(FloorRead{})[0]
		case Done:
			there := w.entries[d.at.Number].id != 0 && w.entries[d.at.Number].hash() == d.at.Hash
			if proved := f.Outcome == Completed; proved != (there || d.at.Number == 0) {
				violate("device %d: proof of position %d ends with %s, the entry is there: %t", i, d.at.Number, f.Outcome, there)
			}
			return
		}
	}
	violate("device %d: proof does not end", i)
}

func (w *world) has(commit uint8) bool {
	for _, r := range w.truth[1 : w.length+1] {
		if r.commit == commit {
			return true
		}
	}
	return false
}

// readsAll lets a device catch up alone: it has to come to the end of the log, or to learn that it
// was passed.
func (x *model) readsAll(w world, i int) {
	y := *x
	y.programs = append([][]step{}, x.programs...)
	y.programs[i] = append(append([]step{}, x.programs[i]...), step{kind: doCatchUp, prove: true})
	w.faults, w.crashes, w.jumps = 0, 0, 0
	d := &w.devices[i]
	d.over, d.pc = false, uint8(len(x.programs[i]))
	y.work(&w, i)
	for n := 0; !d.over; n++ {
		if n > 100 {
			violate("device %d does not come to the end of the log", i)
		}
		y.do(&w, move{moveGo, i})
	}
	if d.at.Number != uint64(w.length) {
		violate("device %d reads up to %d of %d entries", i, d.at.Number, w.length)
	}
}

func describe(path []move) string {
	words := [...]string{"goes on", "goes on, answer lost", "is refused", "sends, and hears nothing", "cannot read", "crashes", "crashes after its put", "put arrives", "a month passes", "the bucket is rolled back"}
	var b strings.Builder
	for i, m := range path {
		if i > 0 {
			b.WriteString("; ")
		}
		if m.kind < moveLand {
			fmt.Fprintf(&b, "%d ", m.device)
		}
		b.WriteString(words[m.kind])
	}
	return b.String()
}

// encode appends all that decides what can happen to a world.
func (w *world) encode(b []byte, devices int) []byte {
	b = append(b, w.length, w.floorN, w.packs, w.day, w.faults, w.crashes, w.jumps, w.rollback, w.savedLen)
	b = encodeRecords(b, w.entries[1:])
	b = encodeRecords(b, w.truth[1:w.length+1])
	b = w.flight.encode(b)
	for _, f := range w.floors[:w.floorN] {
		b = append(b, uint8(f.Low), uint8(f.Checkpoint))
		b = binary.AppendUvarint(b, uint64(f.Created))
	}
	for i := range devices {
		d := &w.devices[i]
		if d.digest == (stateKey{}) { // unchanged otherwise, as a move concerns one device
			buf := d.encode(make([]byte, 0, 512))
			d.digest = digest(buf)
		}
		b = binary.LittleEndian.AppendUint64(b, d.digest[0])
		b = binary.LittleEndian.AppendUint64(b, d.digest[1])
	}
	return b
}

func digest(b []byte) stateKey {
	return stateKey{maphash.Bytes(seeds[0], b), maphash.Bytes(seeds[1], b)}
}

func encodeRecords(b []byte, rs []record) []byte {
	for i := range rs {
		b = rs[i].encode(b)
	}
	return b
}

// encode appends a record: its tokens say all that they are made of.
func (r *record) encode(b []byte) []byte {
	if r.id == 0 {
		return append(b, 0)
	}
	return append(b, r.id, r.number, uint8(r.prev), uint8(r.prev>>8), uint8(r.tok), uint8(r.tok>>8), r.day, r.packs, r.condemned, r.below, r.base, r.commit)
}

func (d *modelDevice) encode(b []byte) []byte {
	b = append(b, d.pc, d.attempt, uint8(d.action), d.condemned, d.relied, d.synced, d.uploaded, d.given, d.givenDay, d.acceptN,
		bit(d.over, 1)|bit(d.stopped, 2)|bit(d.reuse, 4)|bit(d.retry, 8), uint8(d.at.Number), d.at.Hash[0], d.at.Hash[1], uint8(d.floor.K))
	b = binary.AppendUvarint(b, uint64(d.looked))
	b = d.body.encode(b)
	b = d.last.encode(b)
	b = encodeRecords(b, d.accepted[:d.acceptN])
	if d.over && d.pending == nil {
		b = append(b, 0)
	} else {
		b = encodeValue(b, reflect.ValueOf(&d.pending).Elem())
	}
	return encodeValue(b, reflect.ValueOf(&d.m).Elem())
}

func bit(is bool, b uint8) uint8 {
	if is {
		return b
	}
	return 0
}

func encodeValue(b []byte, v reflect.Value) []byte {
	switch v.Kind() {
	case reflect.Bool:
		if v.Bool() {
			return append(b, 1)
		}
		return append(b, 0)
	case reflect.Uint8:
		return append(b, uint8(v.Uint()))
	case reflect.Uint, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return binary.AppendUvarint(b, v.Uint())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return binary.AppendVarint(b, v.Int())
	case reflect.Array, reflect.Slice:
		if v.Kind() == reflect.Slice {
			b = append(b, uint8(v.Len()))
		} else if v.Type().Elem().Kind() == reflect.Uint8 {
			for i := range min(v.Len(), 2) { // of ids and hashes the model uses two bytes
				b = append(b, uint8(v.Index(i).Uint()))
			}
			return b
		}
		for i := range v.Len() {
			b = encodeValue(b, v.Index(i))
		}
		return b
	case reflect.Struct:
		for i := range v.NumField() {
			b = encodeValue(b, v.Field(i))
		}
		return b
	case reflect.Map: // a set of ids: packs of the model
		var set [256]bool
		for _, k := range v.MapKeys() {
			set[k.Index(1).Uint()] = true
		}
		for i, in := range set[:8] {
			if in {
				b = append(b, uint8(i))
			}
		}
		return append(b, 0xff)
	case reflect.Interface:
		if v.IsNil() {
			return append(b, 0)
		}
		e := v.Elem()
		b = append(b, e.Type().Name()[0], e.Type().Name()[len(e.Type().Name())-1])
		return encodeValue(b, e)
	case reflect.Pointer: // the rules
		return b
	}
	panic(fmt.Sprintf("encode %s", v.Kind()))
}
