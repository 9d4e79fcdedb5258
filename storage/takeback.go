package storage

import (
	"slices"

	"github.com/ledgerd/ledger/storage/segment"
)

// takeBack cuts writes of failed journals off the log, so that a write that failed for lack of
// space does not keep the disk full. It cuts only what nothing else can rely on: no other journal
// is open, no group is in flight, the index has no rows of it, and no remaining batch names it. It
// never waits: the rest is garbage for the collector. The journals must have ended their appends.
// The caller holds the append turn.
func (s *Store) takeBack(js ...*Journal) {
	if !s.foldTurn.Try() {
		return
	}
	defer s.foldTurn.Give()
	defer s.letAppends()
	for _, j := range slices.Backward(js) {
		_ = s.log.Cut(s.forget(j)) // a failed cut makes the log refuse appends
	}
}

// forget takes back, as far as allowed, what a journal has appended to segments of its own, and
// returns what to cut: bulk segments are then held. The caller holds the fold and append turns.
func (s *Store) forget(j *Journal) []segment.End {
	s.mu.Lock()
	defer s.mu.Unlock()
	others := len(s.journals)
	if _, open := s.journals[j]; open {
		others--
	}
	if s.closed || s.poisoned != nil || others > 0 || s.group != nil || s.appending != nil || len(s.appenders) > 0 || len(j.spans) == 0 {
		return nil
	}
	s.held = true
	var starts []segment.End
	for _, span := range j.spans {
		starts = append(starts, segment.End{Segment: span.segment, Offset: max(span.start, s.endIn(span.segment))})
	}
	cut := j.out.Forget(starts)
	for _, e := range cut {
		s.over.takeBackLocked(e.Segment, e.Offset)
	}
	if len(cut) > 0 {
		s.wants.made.Add(1) // what was found to be held may be gone
	}
	return cut
}

// endIn returns the end of a segment's batches that may have rows in the index, 0 when there are
// none. The caller holds the fold turn.
func (s *Store) endIn(id uint32) (end uint64) {
	for _, e := range slices.Concat(s.state.position.Ends, s.tried.Ends) {
		if e.Segment == id {
			end = max(end, e.Offset)
		}
	}
	return end
}
