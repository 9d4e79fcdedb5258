package protocol

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestAnyEvents gives a machine events that make no sense: it ends its operation and goes on with
// the next.
func TestAnyEvents(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		small := rapid.Uint64Range(0, 40)
		m := New(Options{At: Position{small.Draw(r, "at"), Hash{1}}, Floor: Floor{K: small.Draw(r, "k"), Low: small.Draw(r, "low")}, Looked: Time(small.Draw(r, "looked")), MaxBatch: 3})
		entry := func() Entry {
			return Entry{ID: ID{uint8(small.Draw(r, "id"))}, Previous: Hash{1}, Hash: Hash{1}, Created: Time(small.Draw(r, "created")), Weight: 1}
		}
		for range 60 {
			var ev Event
			switch rapid.IntRange(0, 9).Draw(r, "event") {
			case 0:
				ev = StartVerify{}
			case 1:
				ev = StartCatchUp{First: rapid.Bool().Draw(r, "first"), Prove: rapid.Bool().Draw(r, "prove")}
			case 2:
				ev = StartAppend{Body: Body{ID: ID{uint8(small.Draw(r, "body"))}}, Prove: rapid.Bool().Draw(r, "prove")}
			case 3:
				ev = StartLook{Now: Time(small.Draw(r, "now"))}
			case 4:
				ev = EntryRead{Found: rapid.Bool().Draw(r, "found"), Bad: rapid.Bool().Draw(r, "bad"), Entry: entry(), Beyond: rapid.Bool().Draw(r, "beyond")}
			case 5:
				ev = FloorRead{Found: rapid.Bool().Draw(r, "found"), Floor: Floor{K: small.Draw(r, "k"), Low: small.Draw(r, "low"), Created: Time(small.Draw(r, "created"))}}
			case 6:
				ev = PutAnswered{Stored: rapid.Bool().Draw(r, "stored"), Created: Time(small.Draw(r, "created"))}
			case 7:
				ev = Applied{}
			case 8:
				ev = Settled{}
			default:
				ev = EffectFailed{}
			}
			at, effects := m.Position(), m.Step(ev)
			if len(effects) == 0 {
				r.Fatalf("%#v has no effect", ev)
			}
			_, done := effects[len(effects)-1].(Done)
			if done != (m.op == opNone) {
				r.Fatalf("after %#v: %#v, operation %d", ev, effects, m.op)
			}
			switch ev.(type) {
			case Applied, Settled:
			default:
				if m.Position() != at {
					r.Fatalf("%#v moves the position", ev)
				}
			}
		}
	})
}

// TestAnyAnswers answers as a bucket without sense would: every operation ends.
func TestAnyAnswers(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		bools := rapid.SliceOfN(rapid.Bool(), 1, 8).Draw(r, "answers")
		k := 0
		next := func() bool { k++; return bools[k%len(bools)] }
		m := New(Options{At: Position{5, Hash{5}}, MaxBatch: 3})
		starts := []Event{StartVerify{}, StartCatchUp{First: next(), Prove: next()}, StartAppend{Body: Body{ID: ID{9}}, Prove: next()}, StartLook{}}
		effects := m.Step(starts[rapid.IntRange(0, 3).Draw(r, "start")])
		for n := uint64(0); ; n++ {
			switch e := effects[len(effects)-1].(type) {
			case Done:
				return
			case GetEntry:
				found := next() && e.Number < 30
				effects = m.Step(EntryRead{Found: found, Bad: !found && next(), Entry: Entry{ID: ID{1}, Previous: Hash{uint8(e.Number - 1)}, Hash: Hash{uint8(e.Number)}, Created: Time(n), Weight: 1}, Beyond: next()})
			case GetFloor:
				effects = m.Step(FloorRead{Found: next() && e.K < 9, Floor: Floor{K: e.K, Low: e.K * 3, Created: Time(n)}})
			case Put:
				effects = m.Step(PutAnswered{Stored: next(), Created: Time(n), Hash: Hash{uint8(e.Number)}})
			case Apply:
				effects = m.Step(Applied{})
			case Settle:
				effects = m.Step(Settled{})
			}
			if n == 2000 {
				r.Fatalf("no end: %#v", effects)
			}
		}
	})
}

func TestGarbage(t *testing.T) {
	day := func(n int) Time { return Time(1).Add(time.Duration(n) * 24 * time.Hour) }
	for _, k := range []struct {
		condemned, floor, now Time
		want                  bool
	}{
		{day(0), day(0), day(30), true}, {day(0), day(0), day(30) - 1, false}, {day(0), day(1), day(30), false}, {day(1), day(0), day(30), false},
		{0, day(0), day(99), false}, {day(0), 0, day(99), false}, {day(5), day(5), day(0), false},
	} {
		if got := CondemnedGone(k.condemned, k.floor, k.now); got != k.want {
			t.Errorf("condemned at %d, floor at %d, now %d: %t", k.condemned, k.floor, k.now, got)
		}
	}
	f := Floor{K: 3, Low: 10, Checkpoint: 12}
	for _, k := range []struct {
		f               Floor
		low, checkpoint uint64
		want            Floor
		ok              bool
	}{
		{f, 11, 12, Floor{K: 4, Low: 11, Checkpoint: 12}, true}, {f, 13, 12, Floor{K: 4, Low: 13, Checkpoint: 12}, true}, {f, 14, 12, Floor{}, false},
		{f, 10, 12, Floor{}, false}, {Floor{}, 1, 0, Floor{K: 1, Low: 1}, true}, {Floor{K: 1, Deleted: true}, 20, 20, Floor{}, false},
	} {
		if got, ok := NextFloor(k.f, k.low, k.checkpoint); got != k.want || ok != k.ok {
			t.Errorf("after %+v, below %d with checkpoint %d: %+v, %t", k.f, k.low, k.checkpoint, got, ok)
		}
	}
}

func TestTimes(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	if got := TimeOf(now); !got.Time().Equal(now) || got.Add(time.Hour).Time() != now.Add(time.Hour) {
		t.Errorf("%s comes back as %s", now, got.Time())
	}
	if TimeOf(time.Time{}) != 0 || !Time(0).Time().IsZero() {
		t.Error("the zero time is a moment")
	}
	for _, k := range []struct {
		created, looked Time
		want            bool
	}{{5, 0, true}, {0, 5, true}, {5, 5, false}, {Time(5).Add(Freshness), 5, true}, {Time(5).Add(Freshness) - 1, 5, false}, {1, Time(0).Add(Freshness), false}} {
		if isStale(k.created, k.looked) != k.want {
			t.Errorf("created at %d, looked at %d", k.created, k.looked)
		}
	}
}

func TestRangeOf(t *testing.T) {
	for _, k := range [][4]uint64{{1, 32, 1, 32}, {32, 32, 1, 32}, {33, 32, 33, 64}, {1024, 1024, 1, 1024}, {1025, 1024, 1025, 2048}, {7, Single, 7, 7}} {
		if from, to := RangeOf(k[0], k[1]); from != k[2] || to != k[3] {
			t.Errorf("%d is in %d-%d", k[0], from, to)
		}
	}
	for o := Completed; o <= Failed; o++ {
		if o.String() == "" {
			t.Errorf("no word for outcome %d", o)
		}
	}
	if Outcome(0).String() != Outcome(99).String() {
		t.Error("words for no outcomes")
	}
}

// TestFloorFoundAtTheEnd has a device that was away look at a log of which all behind it was
// deleted, while a range still has its position: the proof at what looks like the end finds the
// floor that says so.
func TestFloorFoundAtTheEnd(t *testing.T) {
	floors := map[uint64]Floor{1: {K: 1, Low: 29, Checkpoint: 29, Created: 1}, 2: {K: 2, Low: 32, Checkpoint: 32, Created: 2}}
	m := New(Options{At: Position{29, Hash{1}}, Looked: 1, MaxBatch: 3})
	effects := m.Step(StartCatchUp{Prove: true})
	for range 40 {
		var ev Event
		switch e := effects[len(effects)-1].(type) {
		case GetEntry:
			ev = EntryRead{Now: 1 << 60, Found: e.Number == 29 && e.Span == SpanSmall, Entry: Entry{Hash: Hash{1}, Created: 1}}
		case GetFloor:
			f, ok := floors[e.K]
			ev = FloorRead{Found: ok, Floor: f}
		case Done:
			if e.Outcome != Passed {
				t.Errorf("the device is told %+v", e)
			}
			return
		default:
			t.Fatalf("unexpected %#v", e)
		}
		effects = m.Step(ev)
	}
	t.Error("no end")
}

// TestCondemnationReadAndNotApplied has a device read that a pack is condemned, and fail before it
// applies that. A body that relies on the pack cannot be made anew from what the device does not
// know: the append reads, and applies, first.
func TestCondemnationReadAndNotApplied(t *testing.T) {
	pack, start := ID{7}, StartAppend{Body: Body{ID: ID{9}, Packs: []ID{{7}}, Entries: []uint64{1}}}
	for name, entry := range map[string]Entry{"pack": {Condemned: []ID{pack}}, "entries": {Below: 2}} {
		entry.ID, entry.Previous, entry.Hash, entry.Created = ID{2}, Hash{1}, Hash{2}, 1
		m := New(Options{At: Position{1, Hash{1}}, Looked: 1, MaxBatch: 3})
		m.Step(StartCatchUp{})
		m.Step(EntryRead{Found: true, Now: 1, Entry: entry})
		m.Step(EffectFailed{})
		effects := m.Step(start)
		if _, ok := effects[len(effects)-1].(Put); !ok {
			t.Fatalf("%s: the append begins with %#v", name, effects)
		}
		m.Step(PutAnswered{})
		effects = m.Step(EntryRead{Found: true, Now: 1, Entry: entry})
		if _, ok := effects[len(effects)-1].(Apply); !ok {
			t.Fatalf("%s: the entry is read, and then %#v", name, effects)
		}
		for _, ev := range []Event{Applied{}, start} {
			if effects = m.Step(ev); len(effects) != 1 || effects[0] != (Done{Outcome: Remake}) {
				t.Errorf("%s: after %#v: %#v", name, ev, effects)
			}
		}
	}
}
