package mem

import (
	"sync"
	"time"
)

// Clock is a clock.Clock that moves only by Advance. It is safe for concurrent use. The zero Clock
// is not usable; see NewClock.
type Clock struct {
	mu     sync.Mutex
	now    time.Time      // guarded by mu
	auto   bool           // never changed
	timers map[*timer]any // guarded by mu
}

type timer struct {
	at time.Time
	ch chan time.Time
}

// NewClock returns a clock that shows start until Advance moves it.
func NewClock(start time.Time) *Clock { return &Clock{now: start, timers: map[*timer]any{}} }

// NewAutoClock returns a clock that moves by itself: a wait for d ends at once and moves the clock
// by d.
func NewAutoClock(start time.Time) *Clock {
	c := NewClock(start)
	c.auto = true
	return c
}

// Now implements clock.Clock.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// After implements clock.Clock.
func (c *Clock) After(d time.Duration) (<-chan time.Time, func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &timer{at: c.now.Add(d), ch: make(chan time.Time, 1)}
	if c.timers[t] = nil; c.auto || d <= 0 {
		c.moveLocked(max(d, 0))
	}
	return t.ch, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.timers, t)
	}
}

// Advance moves the clock by d, which may be negative, and fires the timers that are due.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moveLocked(d)
}

func (c *Clock) moveLocked(d time.Duration) {
	c.now = c.now.Add(d)
	for t := range c.timers {
		if !t.at.After(c.now) {
			t.ch <- c.now
			delete(c.timers, t)
		}
	}
}

// Timers returns how many timers wait.
func (c *Clock) Timers() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.timers)
}
