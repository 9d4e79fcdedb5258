package storage

import (
	"os"
	"path/filepath"
	"sync/atomic"
)

// counters count since Open.
type counters struct {
	groups, commits, bulkBatches, folds, wastes atomic.Uint64
}

// Stats are figures of an open page; counts begin with Open.
type Stats struct {
	// Commits and Groups count durable commits and the batches that carried them; BulkBatches the
	// batches of large values.
	Commits, Groups, BulkBatches uint64
	// Folds counts folds of the index.
	Folds uint64
	// Wastes counts sources of possible garbage: journals given up after they had written to the
	// log, and batches of pruned commits. Values that a transaction has put twice do not count.
	Wastes uint64
	// Syncs counts fdatasyncs of segments, and BytesWritten the bytes written to them.
	Syncs, BytesWritten uint64
	// SegmentBytes and IndexBytes are sizes on disk; Segments counts files.
	SegmentBytes, IndexBytes int64
	Segments                 int
	// PendingRows is the number of rows that are not in the index yet.
	PendingRows int
	// CacheMisses counts nodes that were read into the cache.
	CacheMisses uint64
}

// Stats returns figures of the page.
func (s *Store) Stats() Stats {
	st := Stats{
		Commits: s.counters.commits.Load(), Groups: s.counters.groups.Load(), BulkBatches: s.counters.bulkBatches.Load(),
		Folds: s.counters.folds.Load(), Wastes: s.counters.wastes.Load(), CacheMisses: s.cache.misses.Load(),
	}
	ls := s.log.Stats()
	st.Syncs, st.BytesWritten = ls.Syncs, ls.BytesWritten
	for _, g := range s.log.Segments() {
		st.SegmentBytes += int64(g.Size)
		st.Segments++
	}
	st.PendingRows, _ = s.over.pending()
	if s.o.MemoryIndex == nil {
		if fi, err := os.Stat(filepath.Join(s.o.Dir, indexName)); err == nil {
			st.IndexBytes = fi.Size()
		}
	}
	return st
}
