package protocol

// look asks for the newest floor. now is a time not later than the present, or 0. Floors have
// numbers without gaps, so that the newest is found in steps that double and then halve. check
// begins with the newest one known: it must be there.
func (m *Machine) look(now Time, after then, check bool) []Effect {
	m.phase, m.after, m.lookNow = phaseLook, after, now
	m.lo, m.hi, m.step = m.floor.K, 0, 1
	if check && m.lo > 0 {
		return m.floorAt(m.lo)
	}
	return m.floorAt(m.lo + 1)
}

func (m *Machine) floorAt(k uint64) []Effect {
	m.asked = k
	return []Effect{GetFloor{K: k}}
}

func (m *Machine) floorRead(e *FloorRead) []Effect {
	switch {
	case e.Found:
		if m.asked > m.lo {
			m.lo, m.step = m.asked, m.step*2
		}
		m.see(&e.Floor)
	case m.asked <= m.lo:
		return m.done(Done{Outcome: RolledBack})
	default:
		m.hi = m.asked
	}
	switch {
	case m.hi == 0:
		return m.floorAt(m.lo + m.step)
	case m.hi-m.lo > 1:
		return m.floorAt(m.lo + (m.hi-m.lo)/2)
	}
	m.looked, m.everLooked = max(m.looked, m.lookNow), true
	return m.afterLook()
}

// see takes note of a floor. One that is lower than an older one means nothing.
func (m *Machine) see(f *Floor) {
	switch {
	case f.K == m.floor.K && m.floor.Created == 0:
		m.floor.Created = f.Created
	case f.K > m.floor.K:
		low := max(f.Low, m.floor.Low)
		deleted := f.Deleted || m.floor.Deleted
		m.floor = *f
		m.floor.Low, m.floor.Deleted = low, deleted
	}
}

func (m *Machine) afterLook() []Effect {
	if m.floor.Deleted && m.op != opLook {
		return m.done(Done{Outcome: Deleted})
	}
	switch m.after {
	case thenJudge:
		return m.judge()
	case thenProved:
		return m.proved()
	case thenExplain:
		return m.explain()
	case thenDone:
		return m.done(Done{Outcome: Completed})
	}
	return m.seek()
}

// search asks for the first floor above the held entry, by halving: lo is below or at it, hi above.
func (m *Machine) search() []Effect {
	m.phase = phaseSearch
	m.lo, m.loLow, m.hi, m.hiFloor, m.hiRead = 0, 0, m.floor.K, m.floor, false
	return m.halve()
}

func (m *Machine) halve() []Effect {
	if m.hi-m.lo > 1 {
		return m.floorAt(m.lo + (m.hi-m.lo)/2)
	}
	if m.hiFloor.Created == 0 && !m.hiRead {
		return m.floorAt(m.hi)
	}
	m.first = band{from: m.loLow, to: m.hiFloor.Low, created: m.hiFloor.Created}
	return m.judge()
}

func (m *Machine) searchRead(e *FloorRead) []Effect {
	if !e.Found {
		return m.done(Done{Outcome: RolledBack})
	}
	n := m.tail.Number + 1
	if m.asked < m.hi && e.Floor.Low <= n {
		m.lo, m.loLow = m.asked, e.Floor.Low
		return m.halve()
	}
	low := e.Floor.Low
	if m.asked == m.hi { // only its time was missing
		low = m.hiFloor.Low
		m.hiRead = true
	}
	m.hi, m.hiFloor = m.asked, e.Floor
	m.hiFloor.Low = low
	m.see(&e.Floor)
	return m.halve()
}
