package segment

import "fmt"

// Forget takes back the durable batches that the stream has appended from starts on, except those
// whose ends a remaining batch names. starts lists the segments of these batches in the order of
// the stream's appends, each with the offset of its first one; the caller leaves out what a
// Position reflects. Forget works from the last batch to the first and stops at one that must
// remain. No place in a batch that it has taken back can be read any more. The main stream takes
// nothing back.
//
// It returns the beginnings of the batches, the last one first, for Cut, which must follow: nothing
// when all remain, or while the log is being copied. The stream may have been released. No stream
// may append until Cut has returned.
func (s *Stream) Forget(starts []End) (cut []End) {
	l := s.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || l.poison != nil || l.copies > 0 {
		return nil
	}
	for i := len(starts) - 1; i >= 0; i-- {
		g := l.segs[starts[i].Segment]
		if g == nil || g.writer != s {
			break
		}
		from := max(starts[i].Offset, g.cited, headerBytes)
		if from >= g.synced {
			break
		}
		for n := len(s.made); n > 0 && s.made[n-1].Segment == g.id && s.made[n-1].Offset >= from; n-- {
			cut, s.made = append(cut, s.made[n-1]), s.made[:n-1]
		}
		g.synced, g.size, g.named, g.cut = from, from, min(g.named, from), true
		g.open = g.open || !l.fullLocked(g)
		l.listLocked(g)
		if from > starts[i].Offset {
			break // the remaining batch names the ends of earlier segments
		}
	}
	return cut
}

// Cut cuts the batches that Forget has taken back off their files. It makes each cut durable before
// the next: after any power cut, a batch exists only with the batches that it names or follows.
// When a cut fails, the log refuses appends until it is opened again, and the remaining batches may
// exist then. Errors match base.ErrReadOnly and wrap the cause.
func (l *Log) Cut(ends []End) error {
	for _, e := range ends {
		if err := cutFile(l.o.FS, l.path(e.Segment), e.Offset); err != nil {
			return l.fail(fmt.Sprintf("cut batches off segment %s", FileName(e.Segment)), err)
		}
		l.syncs.Add(1)
	}
	return nil
}
