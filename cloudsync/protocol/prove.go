package protocol

// Where the entry at the position is looked for, bits of tried.
const (
	triedSingle uint8 = 1 << iota
	triedAgain
	triedSmall
	triedLarge
)

// prove asks for the entry at the position.
func (m *Machine) prove() []Effect {
	if m.at.Number == 0 {
		return m.proved()
	}
	m.phase = phaseProve
	for _, w := range [...]struct {
		bit  uint8
		span uint64
	}{{triedSingle, Single}, {triedAgain, Single}, {triedSmall, SpanSmall}, {triedLarge, SpanLarge}} {
		if m.tried&w.bit != 0 || w.bit == triedAgain && !m.bad {
			continue
		}
		m.tried |= w.bit
		m.span = w.span
		return []Effect{GetEntry{Number: m.at.Number, Span: w.span}}
	}
	return m.look(m.answered, thenExplain, true)
}

// positionRead takes what was read at the position.
func (m *Machine) positionRead(e *EntryRead) []Effect {
	m.answered = max(m.answered, e.Now)
	switch {
	case e.Bad:
		m.bad = true
	case e.Found && m.rules.same(e.Entry.Hash, m.at.Hash):
		m.bad = false
		// That the object of its own is gone is the work of a floor.
		if now := max(e.Now, e.Entry.Created); m.span != Single || m.rules.stale(now, m.looked) {
			return m.look(now, thenProved, false)
		}
		return m.proved()
	case e.Found:
		m.other = true
	}
	return m.prove()
}

// explain decides what it means that the entry at the position was not found. The floors were
// looked for.
func (m *Machine) explain() []Effect {
	switch {
	case m.at.Number < m.floor.Low && m.broken:
		return m.elsewhere()
	case m.at.Number < m.floor.Low:
		m.proving, m.bad, m.single, m.looking = true, false, 0, true
		return m.seek()
	case m.other:
		return m.done(Done{Outcome: Replaced})
	case m.bad:
		return m.done(Done{Outcome: Bad, Number: m.at.Number})
	}
	return m.done(Done{Outcome: RolledBack})
}

// elsewhere ends with an entry at the position that a floor has passed, and one behind it that does
// not fit. When the log begins anew with that one, the entry at the position was damaged for who
// put it: the device begins with the floor's checkpoint, as whoever the floor has passed.
func (m *Machine) elsewhere() []Effect {
	if m.held.Renewed {
		return m.done(Done{Outcome: Passed})
	}
	return m.done(Done{Outcome: Replaced})
}

// proved goes on once the position is known to belong to the bucket.
func (m *Machine) proved() []Effect {
	if m.broken {
		return m.brokenBehind()
	}
	m.proving, m.bad, m.single, m.beyond, m.looking = false, false, 0, false, false
	m.in, m.missing, m.tail = 0, [3]uint64{}, m.at
	m.proofs++
	if m.ending {
		if m.ending = false; m.at.Number+1 < m.floor.Low { // which this proof has found: what looked like the end was deleted
			return m.seek()
		}
		return m.flush(thenDone)
	}
	switch m.op {
	case opVerify:
		return m.done(Done{Outcome: Completed})
	case opAppend:
		return m.tryPut()
	}
	return m.seek()
}

// brokenBehind ends with an entry that does not carry the hash of the position, which is proved: a
// floor above it says with which checkpoint to go on instead.
func (m *Machine) brokenBehind() []Effect {
	switch {
	case m.at.Number+1 < m.floor.Low:
		return m.done(Done{Outcome: Passed})
	case !m.looking:
		m.looking = true
		return m.look(m.answered, thenProved, false)
	}
	return m.done(Done{Outcome: Broken, Number: m.at.Number + 1})
}
