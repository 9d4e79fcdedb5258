package protocol

// seek asks for the entry behind the tail, from where it has not been looked for yet, or decides
// that it is not there.
func (m *Machine) seek() []Effect {
	n := m.tail.Number + 1
	if m.in != 0 && n <= m.inTo {
		return m.get(n, m.in)
	}
	m.in = 0
	if m.eager || m.hits >= hitsForRanges {
		for _, span := range [...]uint64{SpanLargest, SpanLarge, SpanSmall} {
			if m.worth(n, span) && (span < SpanLargest || m.hits >= SpanLarge/2) {
				return m.get(n, span)
			}
		}
	}
	if m.single == 0 {
		return m.get(n, Single)
	}
	expected := m.rules.expected(n, m.floor.Low, m.beyond)
	if !expected && !m.bad {
		if m.looked == 0 && !m.everLooked {
			return m.look(m.answered, thenSeek, false)
		}
		return m.end()
	}
	if (m.beyond || m.bad) && m.single == 1 {
		return m.get(n, Single)
	}
	for _, span := range [...]uint64{SpanSmall, SpanLarge} {
		if m.untried(n, span) {
			return m.get(n, span)
		}
	}
	if !m.looking {
		m.looking = true
		return m.look(m.answered, thenSeek, false)
	}
	return m.nowhere(n)
}

// nowhere ends with an entry that should be there and is not, once those before it are applied.
// What is damaged below a floor, nobody needs.
func (m *Machine) nowhere(n uint64) []Effect {
	m.why = Hole
	switch {
	case n < m.floor.Low:
		m.why = Passed
	case m.bad:
		m.why = Bad
	}
	return m.flush(thenNowhere)
}

func (m *Machine) get(n, span uint64) []Effect {
	m.phase, m.span = phaseSeek, span
	g := GetEntry{Number: n, Span: span}
	if span == Single {
		if m.single++; (m.eager || m.hits >= hitsForRanges) && m.single == 1 {
			g.Ahead = aheadSingle
		}
	}
	return []Effect{g}
}

// worth reports whether the range that holds n should be tried first: when it is there, at least an
// eighth of it is still to be read. Of a long one only that is read.
func (m *Machine) worth(n, span uint64) bool {
	from, to := RangeOf(n, span)
	return m.untried(n, span) && to-n >= (to-from)/8
}

func (m *Machine) untried(n, span uint64) bool {
	from, _ := RangeOf(n, span)
	return m.missing[slot(span)] != from
}

func (m *Machine) miss(n, span uint64) {
	m.in = 0
	m.missing[slot(span)], _ = RangeOf(n, span)
}

func slot(span uint64) int {
	switch span {
	case SpanLargest:
		return 2
	case SpanLarge:
		return 1
	}
	return 0
}

// entryRead takes what was read of the entry behind the tail.
func (m *Machine) entryRead(e *EntryRead) []Effect {
	n := m.tail.Number + 1
	m.beyond = m.beyond || e.Beyond
	m.answered = max(m.answered, e.Now)
	if e.Bad || !e.Found {
		m.bad = m.bad || e.Bad
		if m.span != Single {
			m.miss(n, m.span)
		}
		return m.seek()
	}
	if m.span == Single {
		return m.hit(&e.Entry, max(e.Now, e.Entry.Created))
	}
	if m.in == 0 {
		m.in = m.span
		_, m.inTo = RangeOf(n, m.span)
	}
	if !m.rules.chained(e.Entry.Previous, m.tail.Hash) {
		m.bad = true
		m.miss(n, m.span)
		return m.seek()
	}
	m.held = e.Entry
	return m.accept()
}

// hit takes an entry that stands in an object of its own: one that was read, or that was just put.
// now is not later than the present.
func (m *Machine) hit(e *Entry, now Time) []Effect {
	m.held = *e
	if m.rules.stale(e.Created, m.looked) {
		return m.look(now, thenJudge, false)
	}
	return m.judge()
}

// judge decides whether the held entry is a part of the log. The floor was looked for.
func (m *Machine) judge() []Effect {
	n := m.tail.Number + 1
	if n < m.floor.Low {
		if n < m.first.from || n >= m.first.to {
			return m.search()
		}
		if m.rules.junk(m.held.Created, m.first.created) {
			m.single = max(m.single, 1)
			return m.seek()
		}
	}
	if !m.rules.chained(m.held.Previous, m.tail.Hash) {
		if m.proving {
			return m.elsewhere()
		}
		return m.flush(thenBroken)
	}
	return m.accept()
}

// accept takes the held entry as the one behind the tail. In a proof it only was a witness, and is
// read again.
func (m *Machine) accept() []Effect {
	if m.proving {
		return m.proved()
	}
	e := m.held
	if m.op == opAppend && m.rules.own(m.body.ID, &e) {
		return m.flush(thenOwn)
	}
	m.tail = m.tailWithHeld()
	m.pending++
	m.weight += e.Weight
	m.hits++
	m.note(&e)
	m.single, m.beyond, m.bad, m.looking = 0, false, false, false
	return append([]Effect{Accept{}}, m.accepted(&e)...)
}

// note remembers what an entry means for later operations.
func (m *Machine) note(e *Entry) {
	m.proofs++
	m.packs, m.entries = append(m.packs, e.Condemned...), max(m.entries, e.Below)
	switch {
	case m.open == (ID{}):
	case e.ID == m.open:
		m.landed, m.landedAt, m.landedNew = e.ID, m.tail, e.Created
	case m.rules.again(&Body{Device: m.openDevice}, e):
		m.outdated = true
	}
}

// accepted goes on after an entry of another device.
func (m *Machine) accepted(e *Entry) []Effect {
	if m.op == opAppend {
		if b := &m.body; m.rules.again(b, e) || m.rules.condemns(b, e) || m.rules.needs(b, e) {
			return m.flush(thenRemake)
		}
		if m.sent {
			return m.lostOne()
		}
	}
	if m.weight >= m.maxBatch {
		return m.flush(thenSeek)
	}
	return m.seek()
}

// end takes note that there is no entry behind the tail.
func (m *Machine) end() []Effect {
	if m.proving {
		return m.proved()
	}
	if m.op == opAppend {
		if n := m.tail.Number + 1; n < m.floor.Low {
			return m.nowhere(n)
		}
		if m.unconfirmed { // nothing stands at the name of the last put
			m.unconfirmed = false
			m.tries++
		}
		m.row = 0
		return m.flush(thenPut)
	}
	if m.proveLast && m.hits == 0 {
		m.proveLast, m.ending = false, true
		return m.prove()
	}
	return m.flush(thenDone)
}
