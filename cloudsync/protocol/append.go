package protocol

func (m *Machine) startAppend(prove bool) []Effect {
	id := m.body.ID
	if m.landed != (ID{}) && m.rules.landed(id, m.landed) {
		return m.done(Done{Outcome: Landed, Number: m.landedAt.Number, At: m.landedAt, Created: m.landedNew})
	}
	outdated := m.outdated && m.open == id
	if m.open != id {
		m.open, m.outdated = ID{}, false
	}
	if outdated || m.rules.condemned(&m.body, m.condemned, m.below) {
		return m.done(Done{Outcome: Remake})
	}
	if prove {
		return m.prove()
	}
	return m.tryPut()
}

// tryPut puts the body behind the position, unless it is known that others have been there.
func (m *Machine) tryPut() []Effect {
	if m.tail.Number+1 < m.floor.Low {
		return m.seek()
	}
	return m.put()
}

// put puts the body behind the tail, which is the position.
func (m *Machine) put() []Effect {
	if m.tries >= maxTries || m.puts >= maxPuts {
		return m.done(Done{Outcome: Busy, Number: m.tail.Number + 1})
	}
	m.phase, m.sent = phasePut, true
	m.puts++
	put := Put{Number: m.tail.Number + 1, Previous: m.tail.Hash}
	if pause := max(m.tries, m.losses-losesForward+1); pause > 0 {
		return []Effect{Wait{Tries: min(pause, maxTries)}, put}
	}
	return []Effect{put}
}

// putAnswered takes a success as an entry that was read, and looks what is there otherwise.
func (m *Machine) putAnswered(e *PutAnswered) []Effect {
	if e.Stored && e.Created != 0 {
		return m.hit(&Entry{ID: m.body.ID, Device: m.body.Device, Previous: m.tail.Hash, Hash: e.Hash, Created: e.Created}, e.Created)
	}
	m.single, m.unconfirmed = 0, true
	return m.rules.refused(m)
}

// lookAtName reads the entry at the name of the put.
func lookAtName(m *Machine) []Effect { return m.get(m.tail.Number+1, Single) }

// lostOne goes on after the number that was put at, or one behind it, turned out to be another's.
func (m *Machine) lostOne() []Effect {
	m.lost++
	if m.unconfirmed {
		m.losses++
		m.row++
	}
	m.unconfirmed, m.tries = false, 0
	switch {
	case m.row < losesForward:
		return m.flush(thenPut)
	case m.weight >= m.maxBatch:
		return m.flush(thenSeek)
	}
	return m.seek()
}

// remember takes note, at the end of an operation, of what it leaves open.
func (m *Machine) remember(o Outcome) {
	if m.op == opAppend && o != Completed && o != Landed {
		m.open, m.openDevice = m.body.ID, m.body.Device
	}
	if m.landed != (ID{}) && m.landedAt.Number > m.at.Number { // read, but not applied
		m.landed = ID{}
	}
}
