package segment

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ledgerd/ledger/internal/base"
)

// ErrRetired reports a place in a retired segment. The record was copied to another segment, or was
// dead.
var ErrRetired = errors.New("segment was retired")

// idRange is the ids of segments from first to last.
type idRange struct{ first, last uint32 }

// ids is a set of ids of segments, as ascending ranges with gaps between them.
type ids []idRange

func (s ids) has(id uint32) bool {
	i, found := slices.BinarySearchFunc(s, id, func(r idRange, id uint32) int { return cmp.Compare(r.first, id) })
	return found || i > 0 && s[i-1].last >= id
}

// with returns s and more.
func (s ids) with(more ...idRange) ids {
	all := slices.Concat(s, more)
	slices.SortFunc(all, func(a, b idRange) int { return cmp.Compare(a.first, b.first) })
	var out ids
	for _, r := range all {
		if n := len(out); n > 0 && uint64(r.first) <= uint64(out[n-1].last)+1 {
			out[n-1].last = max(out[n-1].last, r.last)
			continue
		}
		out = append(out, r)
	}
	return out
}

// cuts maps segments with a retired end to the offsets up to which they are valid.
type cuts map[uint32]uint64

// with returns the union of c and more; the smaller of two offsets counts.
func (c cuts) with(more cuts) cuts {
	if len(more) == 0 {
		return c
	}
	out := maps.Clone(c)
	if out == nil {
		out = cuts{}
	}
	for id, offset := range more {
		if have := out[id]; have == 0 || offset < have {
			out[id] = offset
		}
	}
	return out
}

// retirement is what a batch retires: whole segments, or their ends. Its parts are immutable.
type retirement struct {
	retired ids    // all that were ever retired, those of the batch among them
	cuts    cuts   // of other segments, all that were ever cut
	reflect uint64 // an index that reflects less may point into them; 0: the batch retires nothing
}

func (r *retirement) none() bool { return len(r.retired) == 0 && len(r.cuts) == 0 }

// with returns the union of r and more. The greater of the reflect numbers counts.
func (r retirement) with(more retirement) retirement {
	r.retired, r.cuts, r.reflect = r.retired.with(more.retired...), r.cuts.with(more.cuts), max(r.reflect, more.reflect)
	for id := range r.cuts {
		if r.retired.has(id) {
			r.cuts = maps.Clone(r.cuts)
			maps.DeleteFunc(r.cuts, func(id uint32, _ uint64) bool { return r.retired.has(id) })
			break
		}
	}
	return r
}

// end returns the valid end of a segment whose end without r is end.
func (r *retirement) end(id uint32, end uint64) uint64 {
	if offset := r.cuts[id]; offset != 0 {
		return min(end, offset)
	}
	return end
}

// Retire gives segments up from the given offsets on, at which batches begin; an offset of 0 means
// the whole segment. The retired parts are no longer in the log. Their files are cut or removed.
// Retire returns the durable batch that records this. The caller must
// first have copied the live content, and have an index that durably reflects all batches up to
// reflect, the copies among them: an index that reflects less is rebuilt (ErrIndexMismatch).
//
// It appends to the main stream. The segments must be finished (see Finish); else the error matches
// base.ErrInvalid. Other errors are those of Stream.Append; unless they match base.ErrReadOnly,
// nothing was retired.
func (l *Log) Retire(from []End, reflect uint64) (BatchInfo, error) {
	l.mu.RLock()
	r := l.gone
	r.reflect = reflect
	for _, e := range from {
		s := l.segs[e.Segment]
		if s == nil || s.open || s.used || e.Offset >= s.synced || e.Offset > 0 && e.Offset < headerBytes {
			l.mu.RUnlock()
			return BatchInfo{}, fmt.Errorf("retire segment %s from offset %d: %w", FileName(e.Segment), e.Offset, base.ErrInvalid)
		}
		if e.Offset <= headerBytes {
			r = r.with(retirement{retired: ids{{e.Segment, e.Segment}}})
		} else {
			r = r.with(retirement{cuts: cuts{e.Segment: e.Offset}})
		}
	}
	l.mu.RUnlock()
	return l.retire(from, r)
}

func (l *Log) retire(from []End, r retirement) (BatchInfo, error) {
	if n := len(r.retired) + len(r.cuts); n > maxBatchEnds/2 {
		return BatchInfo{}, fmt.Errorf("retire segments of %d ranges: %w", n, base.ErrTooLarge)
	}
	info, err := l.main.append(NewBatch(), r)
	if err != nil {
		return info, fmt.Errorf("retire segments: %w", err)
	}
	l.mu.Lock()
	l.gone = r
	l.gone.reflect = 0
	for _, e := range from {
		if s := l.segs[e.Segment]; s != nil && r.retired.has(e.Segment) {
			s.named = s.synced
			l.listLocked(s)
			delete(l.segs, e.Segment)
		} else if s != nil {
			s.synced, s.size, s.named, s.cut = e.Offset, e.Offset, e.Offset, true
			l.listLocked(s)
		}
	}
	l.mu.Unlock()
	for _, e := range from {
		l.dispose(e)
	}
	return info, nil
}

// dispose cuts a file, or removes it, or leaves that to the last copy. Errors are ignored: the next
// Open disposes of remaining files. So it does on systems that remove no file that is being read.
func (l *Log) dispose(e End) {
	l.mu.Lock()
	keep := l.copies > 0
	if keep {
		l.doomed = append(l.doomed, e)
	}
	l.mu.Unlock()
	switch {
	case keep:
	case e.Offset > headerBytes:
		_ = cutFile(l.o.FS, l.path(e.Segment), e.Offset)
	default:
		_ = l.files.drop(e.Segment)
		_ = l.o.FS.Remove(l.path(e.Segment))
	}
}

func (l *Log) endCopy() {
	l.mu.Lock()
	var doomed []End
	if l.copies--; l.copies == 0 {
		doomed, l.doomed = l.doomed, nil
	}
	l.mu.Unlock()
	for _, e := range doomed {
		l.dispose(e)
	}
}

// FinishIdle finishes the segments with batches that no stream uses: they are not appended to any
// more.
func (l *Log) FinishIdle() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.segs {
		if s.open && !s.used && s.synced > headerBytes {
			s.open = false
			l.listLocked(s)
		}
	}
}

// Finish finishes the segment of the stream, if it has batches: it is not appended to any more. The
// stream continues in another. The stream must not be in use.
func (s *Stream) Finish() error {
	if !s.busy.CompareAndSwap(false, true) {
		return fmt.Errorf("finish a stream in use: %w", base.ErrInvalid)
	}
	defer s.busy.Store(false)
	seg := s.seg
	if seg == nil {
		return nil
	}
	l := s.l
	l.mu.RLock()
	empty := seg.synced <= headerBytes
	l.mu.RUnlock()
	if empty {
		return nil
	}
	s.leave()
	l.mu.Lock()
	defer l.mu.Unlock()
	if !seg.used {
		seg.open = false
		l.listLocked(seg)
	}
	return nil
}
