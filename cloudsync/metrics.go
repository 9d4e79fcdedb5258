package cloudsync

import (
	"time"

	"github.com/ledgerd/ledger/cloudsync/bucket"
)

// Metrics are figures since the Syncer was made.
type Metrics struct {
	bucket.Counts
	// Retries counts requests that were retried.
	Retries int64
	// Entries counts entries appended; Applied counts entries of other devices applied.
	Entries, Applied int64
	// Checkpoints counts checkpoints written.
	Checkpoints int64
	// OldestUnsynced is the timestamp of the oldest commit of the open pages that is not in the
	// bucket; zero: none.
	OldestUnsynced time.Time
	// LastSuccess is the earliest of the pages' last successes; zero: a page never had one, or
	// there is no page.
	LastSuccess time.Time
}

// Metrics returns the figures.
func (s *Syncer) Metrics() Metrics {
	m := Metrics{Counts: s.meter.Counts(), Retries: s.retries.Load(), Entries: s.entries.Load(), Applied: s.applied.Load(), Checkpoints: s.checkpoints.Load()}
	for i, st := range s.States() {
		if t := st.OldestUnsynced; !t.IsZero() && (m.OldestUnsynced.IsZero() || t.Before(m.OldestUnsynced)) {
			m.OldestUnsynced = t
		}
		if i == 0 || st.LastSuccess.Before(m.LastSuccess) {
			m.LastSuccess = st.LastSuccess
		}
	}
	return m
}
