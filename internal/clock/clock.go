// Package clock is the only place that reads the wall clock, so that a test controls the time. The
// wait for the lock of a repository is an exception: another process ends it.
package clock

import "time"

// Clock tells the time and makes timers. Implementations are safe for concurrent use.
type Clock interface {
	// Now returns the present time.
	Now() time.Time
	// After returns a channel that receives once d has passed, and a function that releases the
	// timer.
	After(d time.Duration) (<-chan time.Time, func())
}

// System is the clock of the machine.
var System Clock = system{}

type system struct{}

func (system) Now() time.Time { return time.Now() }

func (system) After(d time.Duration) (<-chan time.Time, func()) {
	t := time.NewTimer(d)
	return t.C, func() { t.Stop() }
}
