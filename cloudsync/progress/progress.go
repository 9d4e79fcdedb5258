package progress

import "sync"

// State is how much of the known work is done.
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

// toldEvery is how many bytes are done between two notifications.
const toldEvery = 4 << 20

// Tracker follows one direction. A nil Tracker counts nothing.
type Tracker struct {
	begun, moved func()

	mu      sync.Mutex
	settled State // guarded by mu; units that are done
	now     State // guarded by mu; the unit in progress
	untold  int64 // guarded by mu; bytes
}

// New returns a Tracker. It calls begun before a unit begins, and moved from time to time when
// there was progress.
func New(begun, moved func()) *Tracker { return &Tracker{begun: begun, moved: moved} }

// Restart resets the counts.
func (t *Tracker) Restart() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.settled, t.now, t.untold = State{}, State{}, 0
}

// Begin begins a unit of the given size. It drops a unit that was not settled: that is done again.
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

// Expect adds to the size of the unit.
func (t *Tracker) Expect(values, bytes int64) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.now.TotalValues += values
	t.now.TotalBytes += bytes
}

// Advance adds to what is done of the unit, up to its size.
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

// Settle records that the whole unit is done.
func (t *Tracker) Settle() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.now.Values, t.now.Bytes = t.now.TotalValues, t.now.TotalBytes
	t.settled, t.now = t.settled.add(t.now), State{}
}

// State returns the progress since Restart.
func (t *Tracker) State() State {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.settled.add(t.now)
}
