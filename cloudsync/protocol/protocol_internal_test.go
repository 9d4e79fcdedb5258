package protocol

import (
	"testing"
	"time"

	"github.com/ledgerd/ledger/internal/tier"
)

const (
	c0 uint8 = 1 << iota
	c1
	c2
	c3
)

const p0 = 1

// maxStates bounds an exploration, so that a machine that never rests ends.
const maxStates = 20_000_000

var scenarios = []scenario{
	{name: "race", length: 1, at: []uint8{1, 1, 1}, faults: 2, programs: [][]step{
		{{kind: doWrite, commit: c0}}, {{kind: doWrite, commit: c1}}, {{kind: doWrite, commit: c2}}}},
	{name: "crash", length: 1, at: []uint8{1, 1, 1}, faults: 1, crashes: 1, programs: [][]step{
		{{kind: doWrite, commit: c0}, {kind: doWrite, commit: c3}}, {{kind: doWrite, commit: c1}}, {{kind: doCatchUp}}}},
	{name: "condemned", length: 1, at: []uint8{1, 1, 1}, faults: 1, jumps: 1, programs: [][]step{
		{{kind: doWrite, commit: c0, rely: p0}},
		{{kind: doCatchUp}, {kind: doCondemn, pack: p0, below: true}, {kind: doFloor}, {kind: doCollect}},
		{{kind: doWrite, commit: c1, rely: p0}}}},
	{name: "away", length: 3, at: []uint8{1, 3, 1}, jumps: 2, programs: [][]step{
		{{kind: doWrite, commit: c0}},
		{{kind: doCondemn, pack: p0, below: true}, {kind: doFloor}, {kind: doCollect}},
		{{kind: doCatchUp}, {kind: doWrite, commit: c1}}}},
	{name: "built on", length: 3, at: []uint8{2, 3, 3}, faults: 1, programs: [][]step{
		{{kind: doWrite, commit: c0}},
		{{kind: doCondemn, below: true}, {kind: doFloor}, {kind: doWrite, commit: c1}},
		{{kind: doWrite, commit: c2}}}},
	{name: "reader", length: 3, at: []uint8{1, 3}, jumps: 2, programs: [][]step{
		{{kind: doCatchUp}},
		{{kind: doCondemn, pack: p0, below: true}, {kind: doFloor}, {kind: doWrite, commit: c0}, {kind: doCollect}}}},
	{name: "rollback", length: 2, at: []uint8{2, 2, 1}, rollback: true, programs: [][]step{
		{{kind: doWrite, commit: c0, prove: true}, {kind: doWrite, commit: c3, prove: true}},
		{{kind: doCatchUp, prove: true}, {kind: doWrite, commit: c1, prove: true}, {kind: doCatchUp, prove: true}},
		{{kind: doWrite, commit: c2, prove: true}}}},
	{name: "race of four", length: 1, at: []uint8{1, 1, 1, 1}, faults: 1, programs: [][]step{
		{{kind: doWrite, commit: c0}}, {{kind: doWrite, commit: c1}}, {{kind: doWrite, commit: c2}}, {{kind: doWrite, commit: c3}}}},
	// Those below take longer.
	{name: "race of four, two faults", tier: 2, length: 1, at: []uint8{1, 1, 1, 1}, faults: 2, programs: [][]step{
		{{kind: doWrite, commit: c0}}, {{kind: doWrite, commit: c1}}, {{kind: doWrite, commit: c2}}, {{kind: doWrite, commit: c3}}}},
	{name: "condemned, with crashes", tier: 2, length: 2, at: []uint8{1, 2, 1}, crashes: 1, jumps: 1, programs: [][]step{
		{{kind: doWrite, commit: c0, rely: p0}},
		{{kind: doCatchUp}, {kind: doCondemn, pack: p0, below: true}, {kind: doFloor}, {kind: doCollect}},
		{{kind: doWrite, commit: c1, rely: p0}}}},
	{name: "away, with faults", tier: 2, length: 3, at: []uint8{1, 3, 1}, faults: 1, jumps: 2, programs: [][]step{
		{{kind: doWrite, commit: c0}},
		{{kind: doCondemn, pack: p0, below: true}, {kind: doFloor}, {kind: doCollect}},
		{{kind: doWrite, commit: c1}}}},
	{name: "two collectors", tier: 2, length: 3, at: []uint8{1, 3, 3}, jumps: 2, programs: [][]step{
		{{kind: doWrite, commit: c0, rely: p0}, {kind: doCatchUp}},
		{{kind: doCondemn, pack: p0, below: true}, {kind: doFloor}, {kind: doCollect}},
		{{kind: doCatchUp}, {kind: doCondemn, below: true}, {kind: doFloor}, {kind: doCollect}}}},
}

func newModel(s scenario) *model {
	return &model{scenario: s, rules: honest, gone: CondemnedGone, next: NextFloor}
}

// TestExplore visits every interleaving of every scenario. To see the numbers, and the larger
// scenarios:
//
//	LEDGER_TIER=2 go test -v -run TestExplore ./cloudsync/protocol
func TestExplore(t *testing.T) {
	states, moves := 0, 0
	for _, s := range scenarios {
		if s.tier > 1 && !tier.Nightly() {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			began := time.Now()
			r := newModel(s).explore(maxStates)
			t.Logf("%d states, %d moves, %s", r.states, r.moves, time.Since(began))
			if r.outcome != "" {
				t.Error(r.outcome)
			}
			states, moves = states+r.states, moves+r.moves
		})
	}
	t.Logf("%d states and %d moves in all", states, moves)
}

// bugs are machines, and collectors, that lack one rule.
var bugs = []struct {
	name   string
	plant  func(m *model)
	caught string // the scenario that shows it
}{
	{"knows neither its own entry nor its device's", func(m *model) {
		m.rules.own = func(ID, *Entry) bool { return false }
		m.rules.again = func(*Body, *Entry) bool { return false }
	}, "race"},
	{"takes another's entry for its own", func(m *model) { m.rules.own = func(ID, *Entry) bool { return true } }, "race"},
	{"takes a refusal for a loss, without looking", func(m *model) {
		m.rules.refused = func(m *Machine) []Effect {
			m.tail.Number++
			return m.put()
		}
	}, "race"},
	{"takes a refusal for a success", func(m *model) {
		m.rules.refused = func(m *Machine) []Effect {
			m.held = Entry{ID: m.body.ID, Previous: m.tail.Hash, Created: m.looked}
			return m.flush(thenOwn)
		}
	}, "race"},
	{"takes a lost answer for a failure, and puts once more behind", func(m *model) {
		m.rules.own = func(body ID, e *Entry) bool { return e.ID == body && e.Weight == 0 } // a confirmed put has no weight
		m.rules.again = func(b *Body, e *Entry) bool { return e.Device == b.Device && e.ID != b.ID }
	}, "race"},
	{"does not see itself after a crash", func(m *model) { m.rules.again = func(*Body, *Entry) bool { return false } }, "crash"},
	{"forgets an append that has failed", func(m *model) { m.rules.landed = func(ID, ID) bool { return false } }, "race"},
	{"ignores condemnations", func(m *model) { m.rules.condemns = func(*Body, *Entry) bool { return false } }, "condemned"},
	{"ignores condemnations before the append", func(m *model) {
		m.rules.condemned = func(*Body, map[ID]struct{}, uint64) bool { return false }
	}, "condemned"},
	{"condemns what is needed", func(m *model) { m.rules.needs = func(*Body, *Entry) bool { return false } }, "condemned"},
	{"builds on what is given up", func(m *model) {
		m.rules.condemns = func(b *Body, e *Entry) bool { return condemns(&Body{Packs: b.Packs}, e) }
	}, "built on"},
	{"gives up what others have built on", func(m *model) {
		m.rules.needs = func(b *Body, e *Entry) bool { return needs(b, &Entry{Packs: e.Packs}) }
	}, "built on"},
	{"ignores the age of the floor", func(m *model) { m.rules.stale = func(Time, Time) bool { return false } }, "away"},
	{"takes every entry at a free name for a part of the log", func(m *model) { m.rules.junk = func(Time, Time) bool { return false } }, "away"},
	{"takes every gap for the end", func(m *model) { m.rules.expected = func(uint64, uint64, bool) bool { return false } }, "reader"},
	{"does not check the chain", func(m *model) { m.rules.chained = func(Hash, Hash) bool { return true } }, "rollback"},
	{"believes any entry at its position", func(m *model) { m.rules.same = func(Hash, Hash) bool { return true } }, "rollback"},
	{"deletes at once", func(m *model) { m.gone = func(Time, Time, Time) bool { return true } }, "condemned"},
	{"deletes without regard to the floor's age", func(m *model) {
		m.gone = func(condemned, _, now Time) bool { return CondemnedGone(condemned, condemned, now) }
	}, "away"},
	{"deletes without regard to the condemnation's age", func(m *model) {
		m.gone = func(_, floor, now Time) bool { return now >= floor }
	}, "condemned"},
	{"passes more than was given up", func(m *model) {
		m.next = func(f Floor, low, checkpoint uint64) (Floor, bool) { return NextFloor(f, checkpoint+1, checkpoint) }
	}, "condemned"},
	{"passes what no checkpoint holds", func(m *model) {
		m.next = func(f Floor, low, checkpoint uint64) (Floor, bool) {
			return Floor{K: f.K + 1, Low: low, Checkpoint: 1}, true
		}
	}, "away"},
}

// TestBugs shows that the exploration catches a machine without any of the rules.
func TestBugs(t *testing.T) {
	byName := map[string]scenario{}
	for _, s := range scenarios {
		byName[s.name] = s
	}
	for _, b := range bugs {
		t.Run(b.name, func(t *testing.T) {
			m := newModel(byName[b.caught])
			b.plant(m)
			r := m.explore(maxStates)
			if r.outcome == "" {
				t.Fatalf("not caught in %d states", r.states)
			}
			t.Logf("after %d states: %s", r.states, r.outcome)
		})
	}
}
