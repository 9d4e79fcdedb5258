package storage

import (
	"slices"

	"github.com/ledgerd/ledger/storage/segment"
)

// takeBack cuts off the log what journals have written that failed, so that a write which failed
// for want of room does not keep the disk full. It takes only what nobody can know of: no other
// journal is open and no group is under way, the index has no rows of it, and no batch that stays
// names it. It never waits: what it leaves is garbage for the collector. The journals must have
// ended their appends. The caller holds the append turn.
func (s *Store) takeBack(js ...*Journal) {
	if !s.foldTurn.try() {
		return
	}
	defer s.foldTurn.release()
	defer s.letAppends()
	for _, j := range slices.Backward(js) {
		_ = s.log.Cut(s.forget(j)) // the log knows when it failed, and refuses what is appended
	}
}

// forget takes back what a journal has appended to segments of its own, as far as it may, and
// returns what is to be cut: then bulk segments are held. The caller holds the turns of folds and
// appends.
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
		s.wants.made.Add(1) // what was seen to be held may be so no more
	}
	return cut
}

// endIn returns where the batches of a segment end that the index may have rows of, 0 when there
// are none. The caller holds the fold turn.
func (s *Store) endIn(id uint32) (end uint64) {
	for _, e := range slices.Concat(s.state.position.Ends, s.tried.Ends) {
		if e.Segment == id {
			end = max(end, e.Offset)
		}
	}
	return end
}
