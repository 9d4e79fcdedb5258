package ledger

import (
	"github.com/ledgerd/ledger/internal/reclaim"
)

// collecting returns the background garbage collector.
func (r *Repository) collecting() *reclaim.Background {
	o := &r.o.Collection
	return &reclaim.Background{Clock: r.clock, Interval: o.Interval, Time: o.Time, Bytes: o.Bytes, NoCompact: o.NoCompact, Open: func() (open []*reclaim.Collector) {
		for _, s := range r.pages.Stores(false) {
			open = append(open, s.collector)
		}
		return open
	}}
}
