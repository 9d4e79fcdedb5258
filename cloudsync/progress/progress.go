package progress

import "sync"

// State says how much is done of what is known to be there.
type State struct {
	// Values counts keys that get a value, and TotalValues all of them.
	Values, TotalValues int64
	// Bytes and TotalBytes measure the same in bytes.
	Bytes, TotalBytes int64
}

// add returns the sum of two states.
func (s State) add(o State) State {
	return State{s.Values + o.Values, s.TotalValues + o.TotalValues, s.Bytes + o.Bytes, s.TotalBytes + o.TotalBytes}
}

// toldEvery is how many bytes are done before the tracker tells again.
const toldEvery = 4 << 20

// Tracker follows one direction. A nil Tracker counts nothing.
type Tracker struct {
	begun, moved func()

	mu      sync.Mutex
	settled State // guarded by mu; units that are done
	now     State // guarded by mu; the unit under way
	untold  int64 // guarded by mu; bytes
}

// New returns a Tracker. It calls begun before a unit begins, and moved now and then when something
// was done.
func New(begun, moved func()) *Tracker { return &Tracker{begun: begun, moved: moved} }

// Restart forgets all.
func (t *Tracker) Restart() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.settled, t.now, t.untold = State{}, State{}, 0
}

// Begin begins a unit that has as much. A unit that was not settled is forgotten: it is done again.
func (t *Tracker) Begin(values, bytes int64) {
	if t == nil {
		return
	}
	t.begun()
	t.mu.Lock()
	t.now = State{TotalValues: values, TotalBytes: bytes}
	t.mu.Unlock()
	t.moved()
}

// Expect adds to the unit what was not known when it began.
func (t *Tracker) Expect(values, bytes int64) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.now.TotalValues += values
	t.now.TotalBytes += bytes
}

// Advance says that so much more of the unit is done, which never comes to more than there is.
func (t *Tracker) Advance(values, bytes int64) {
	if t == nil {
		return
	}
	t.mu.Lock()
	t.now.Values = min(t.now.Values+values, t.now.TotalValues)
	t.now.Bytes = min(t.now.Bytes+bytes, t.now.TotalBytes)
	t.untold += bytes
	tell := t.untold >= toldEvery
	if tell {
		t.untold = 0
	}
	t.mu.Unlock()
	if tell {
		t.moved()
	}
}

// Settle says that the whole unit is done.
func (t *Tracker) Settle() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.now.Values, t.now.Bytes = t.now.TotalValues, t.now.TotalBytes
	t.settled, t.now = t.settled.add(t.now), State{}
}

// State returns how far it is since Restart.
func (t *Tracker) State() State {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.settled.add(t.now)
}
