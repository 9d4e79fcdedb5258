package sim

import (
	"slices"

	"github.com/ledgerd/ledger/cloudsync/mem"
)

// Minimise simplifies a history while fails holds; fails(h) must hold at the start. It removes
// steps, changes, devices and unusual settings. It calls fails at most limit times.
func Minimise(h History, limit int, fails func(History) bool) History {
	m := minimiser{h, limit, fails}
	for again := true; again && m.limit > 0; {
		again = m.leaveOut()
		again = m.simplify() || again
	}
	return m.h
}

type minimiser struct {
	h     History
	limit int
	fails func(History) bool
}

// try adopts a history if it fails, too.
func (m *minimiser) try(h History) bool {
	if m.limit--; m.limit < 0 || !m.fails(h) {
		return false
	}
	m.h = h
	return true
}

// trySteps tries a changed copy of the steps.
func (m *minimiser) trySteps(change func([]Step) []Step) bool {
	h := m.h
	h.Steps = change(slices.Clone(h.Steps))
	return m.try(h)
}

// leaveOut removes steps, many at once first.
func (m *minimiser) leaveOut() bool {
	less := false
	for size := max(len(m.h.Steps)/2, 1); size > 0; size /= 2 {
		for at := 0; at < len(m.h.Steps); {
			if m.trySteps(func(s []Step) []Step { return slices.Delete(s, at, min(at+size, len(s))) }) {
				less = true
			} else {
				at += size
			}
		}
	}
	return less
}

// simplify makes the remaining history more usual.
func (m *minimiser) simplify() bool {
	less := false
	for i := range m.h.Steps {
		for c := 0; c < len(m.h.Steps[i].Changes) && len(m.h.Steps[i].Changes) > 1; {
			if m.trySteps(func(s []Step) []Step { s[i].Changes = slices.Delete(slices.Clone(s[i].Changes), c, c+1); return s }) {
				less = true
			} else {
				c++
			}
		}
		for _, simpler := range []func(*Step){
			func(s *Step) { s.After = 0 },
			func(s *Step) { s.Apart = false },
			func(s *Step) { s.Heads = 0 },
			func(s *Step) { s.Stop = 0 },
			func(s *Step) {
				if s.Kind == SyncCrash {
					s.Kind, s.At = Sync, 0
				}
			},
			func(s *Step) {
				if s.Kind == Sibling || s.Kind == Crash {
					s.Kind, s.Base, s.At = Edit, 0, 0
				}
			},
		} {
			s := m.h.Steps[i]
			if simpler(&s); s.fields() != m.h.Steps[i].fields() {
				less = m.trySteps(func(all []Step) []Step { all[i] = s; return all }) || less
			}
		}
	}
	return m.simplifyDevices() || less
}

func (m *minimiser) simplifyDevices() bool {
	less := m.simplifyCloud()
	for i := range m.h.Devices {
		h := m.h
		h.Devices = slices.Clone(h.Devices)
		if h.Devices[i].Skew, h.Devices[i].Table = 0, false; h.Devices[i] != m.h.Devices[i] {
			less = m.try(h) || less
		}
	}
	for i := len(m.h.Devices) - 1; i >= 0 && len(m.h.Devices) > 2; i-- {
		less = m.try(m.h.without(i)) || less
	}
	return less
}

// without returns the history without a device and its steps.
func (h History) without(device int) History {
	n := len(h.Devices)
	var steps []Step
	for _, s := range h.Steps {
		s.Device, s.Peer = s.Device%n, s.Peer%n
		if s.Device == device || s.Kind == Deliver && s.Peer == device {
			continue
		}
		if s.Device > device {
			s.Device--
		}
		if s.Peer > device {
			s.Peer--
		}
		steps = append(steps, s)
	}
	h.Devices, h.Steps = slices.Delete(slices.Clone(h.Devices), device, device+1), steps
	return h
}

// simplifyCloud removes faults of the bucket, one after another.
func (m *minimiser) simplifyCloud() bool {
	if m.h.Cloud == nil {
		return false
	}
	less := false
	for _, simpler := range []func(*Cloud){
		func(c *Cloud) { c.Faults = mem.Faults{} },
		func(c *Cloud) { c.Plain = true },
		func(c *Cloud) { c.Faults.Conflict, c.Faults.TooMany = 0, 0 },
		func(c *Cloud) { c.Faults.Unavailable = 0 },
		func(c *Cloud) { c.Faults.Refused = 0 },
		func(c *Cloud) { c.Faults.LostAnswer = 0 },
		func(c *Cloud) { c.Faults.CutBody, c.Faults.SlowBody = 0, 0 },
		func(c *Cloud) { c.Faults.WrongByte = 0 },
		func(c *Cloud) { c.Faults.WriteInterval = 0 },
	} {
		c := *m.h.Cloud
		if simpler(&c); c != *m.h.Cloud {
			h := m.h
			h.Cloud = &c
			less = m.try(h) || less
		}
	}
	return less
}
