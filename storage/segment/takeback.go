package segment

import "fmt"

// Forget takes back the durable batches that the stream has appended to its present segment from start on, but for those
// that others may know of: a position reflects them, or a batch of another segment names their ends. It returns where the
// first of them began. From then on no place in them can be read, and no position reflects them. Cut must follow. ok is
// false when there are none, or the log is being copied. No stream may append meanwhile.
func (s *Stream) Forget(start uint64) (from uint64, ok bool) {
	l := s.l
	l.mu.Lock()
	defer l.mu.Unlock()
	g := s.seg
	if g == nil || l.closed || l.poison != nil || l.copies > 0 {
		return 0, false
	}
	from = max(start, g.cited, l.numbers.base.end(g.id), headerBytes)
	if from >= g.synced {
		return 0, false
	}
	l.numbers.forget(g.id, from)
	g.synced, g.size, g.named, g.cut = from, from, min(g.named, from), true
	l.listLocked(g)
	return from, true
}

// Cut cuts off the file what Forget has taken back, and syncs it. When that fails nothing is appended until the log is
// opened anew, and the batches may be there then. Errors match base.ErrReadOnly and wrap the cause.
func (s *Stream) Cut() error {
	err := s.file.Truncate(int64(s.seg.synced))
	if err == nil {
		err = s.file.Sync()
	}
	if err != nil {
		return s.l.fail(fmt.Sprintf("cut batches off segment %s", FileName(s.seg.id)), err)
	}
	s.l.syncs.Add(1)
	return nil
}

// Segment returns the id of the segment to which the stream appends, 0 when it has none.
func (s *Stream) Segment() uint32 {
	if s.seg == nil {
		return 0
	}
	return s.seg.id
}
