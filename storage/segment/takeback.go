package segment

import "fmt"

// Forget takes back the durable batches that the stream has appended from starts on, but for those
// whose ends a batch names that stays. starts has the segments of these batches in the order in
// which the stream has appended to them, each with the offset of its first one: the caller leaves
// out what a Position reflects. It goes from the last batch to the first and ends where one has to
// stay. From then on no place in what it has taken can be read. The main stream takes nothing back.
//
// It returns where the batches began, the last one first, for Cut, which must follow: nothing when
// all stay, or while the log is being copied. The stream may have been released. No stream may
// append until Cut has returned.
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
			break // what stays names the ends of the segments before
		}
	}
	return cut
}

// Cut cuts the batches that Forget has taken back off their files. It makes each cut durable before
// the next, so that a batch is never there without what it names or what lies before it, whatever a
// power cut leaves of a cut. When that fails nothing is appended until the log is opened anew, and
// the batches that are left may be there then. Errors match base.ErrReadOnly and wrap the cause.
func (l *Log) Cut(ends []End) error {
	for _, e := range ends {
		if err := cutFile(l.o.FS, l.path(e.Segment), e.Offset); err != nil {
			return l.fail(fmt.Sprintf("cut batches off segment %s", FileName(e.Segment)), err)
		}
		l.syncs.Add(1)
	}
	return nil
}
