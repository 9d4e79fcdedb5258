package storage

import "slices"

// takeBack cuts off the log what a journal has written that cannot go on, so that a write which failed for want of room does
// not keep the disk full. It takes only what nobody can know of: there is no other journal and no group under way, the
// index has no rows of it, and no batch of another segment names it. It never waits: what it leaves is garbage for the
// collector. The journal must have ended its append.
func (s *Store) takeBack(j *Journal) {
	if j.out == nil || len(j.spans) == 0 {
		return
	}
	span := j.spans[len(j.spans)-1]
	for _, turn := range []token{s.foldTurn, s.appendTurn} {
		if !turn.try() {
			return
		}
		defer turn.release()
	}
	if span.segment != j.out.Segment() || !s.bulk.TryLock() {
		return
	}
	defer s.bulk.Unlock()
	if s.forget(j, max(span.start, s.endIn(span.segment))) {
		_ = j.out.Cut() // the log knows that it failed, and refuses what is appended
	}
}

// endIn returns where the batches of a segment end that the index may have rows of, 0 when there are none. The caller holds
// the fold turn.
func (s *Store) endIn(id uint32) (end uint64) {
	for _, e := range slices.Concat(s.state.position.Ends, s.tried.Ends) {
		if e.Segment == id {
			end = max(end, e.Offset)
		}
	}
	return end
}

// forget takes back what a journal has appended to its present segment from start on, if it may. The caller holds the turns
// of folds and appends, and bulk.
func (s *Store) forget(j *Journal, start uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, open := s.journals[j]
	if s.closed || s.poisoned != nil || !open || len(s.journals) > 1 || s.group != nil || s.appending != nil {
		return false
	}
	from, ok := j.out.Forget(start)
	if ok {
		s.over.takeBack(j.out.Segment(), from)
		s.wants.made.Add(1) // what was seen to be held may be so no more
	}
	return ok
}
