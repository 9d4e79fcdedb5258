package ledger_test

import (
	"sync"

	"github.com/ledgerd/ledger"
)

// recorder is an observer that keeps the events.
type recorder struct {
	mu     sync.Mutex
	events []ledger.Event
}

func (r *recorder) Observe(e ledger.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

func (r *recorder) count(k ledger.EventKind) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, e := range r.events {
		if e.Kind == k {
			n++
		}
	}
	return n
}
