package segment

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/internal/base"
)

// ErrRetired reports a place in a segment that was retired. The record was copied to another one,
// or was dead.
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

// retirement is what a batch says of segments that count no more.
type retirement struct {
	retired ids    // all that were retired ever, those of the batch among them
	reflect uint64 // an index that reflects less may point into them; 0: the batch retires nothing
}

// Retire gives segments up: from then on they are no part of the log, and their files are removed
// when nobody reads them any more. A durable batch says so, which Retire returns. Before that the
// caller has copied what is live in them, and has an index that durably reflects all batches up to
// reflect, the copies among them: an index that reflects less is made anew (ErrIndexMismatch).
//
// It appends to the main stream. The segments must not be appended to (see Finish); else the error
// matches base.ErrInvalid. Other errors are those of Stream.Append; unless they match
// base.ErrReadOnly, nothing was retired.
func (l *Log) Retire(segments []uint32, reflect uint64) (BatchInfo, error) {
	l.mu.RLock()
	retired := l.retired
	for _, id := range segments {
		if s := l.segs[id]; s == nil || s.open || s.used {
			l.mu.RUnlock()
			return BatchInfo{}, fmt.Errorf("retire segment %s: %w", FileName(id), base.ErrInvalid)
		}
		retired = retired.with(idRange{id, id})
	}
	l.mu.RUnlock()
	return l.retire(segments, retirement{retired, reflect})
}

func (l *Log) retire(segments []uint32, r retirement) (BatchInfo, error) {
	if len(r.retired) > maxBatchEnds/2 {
		return BatchInfo{}, fmt.Errorf("retire segments of %d ranges: %w", len(r.retired), base.ErrTooLarge)
	}
	info, err := l.main.append(NewBatch(), r)
	if err != nil {
		return info, fmt.Errorf("retire segments: %w", err)
	}
	l.mu.Lock()
	l.retired = r.retired
	for _, id := range segments {
		if s := l.segs[id]; s != nil {
			s.named = s.synced
			l.listLocked(s)
			delete(l.segs, id)
		}
	}
	l.mu.Unlock()
	for _, id := range segments {
		_ = l.files.retire(id, func() error { l.remove(id); return nil }) // what could not be closed was only read
	}
	return info, nil
}

// remove removes the file of a retired segment, or leaves that to the last copy.
func (l *Log) remove(id uint32) {
	l.mu.Lock()
	keep := l.copies > 0
	if keep {
		l.doomed = append(l.doomed, id)
	}
	l.mu.Unlock()
	if !keep {
		_ = l.o.FS.Remove(l.path(id)) // the next Open removes what stays
	}
}

func (l *Log) endCopy() {
	l.mu.Lock()
	var doomed []uint32
	if l.copies--; l.copies == 0 {
		doomed, l.doomed = l.doomed, nil
	}
	l.mu.Unlock()
	for _, id := range doomed {
		_ = l.files.retire(id, func() error { l.remove(id); return nil })
	}
}

// Compacted reports whether segments were retired: then what is dead in others may rely on what is
// not there.
func (l *Log) Compacted() bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return len(l.retired) > 0
}

// FinishIdle makes the segments that no stream uses and that have batches ones that are not
// appended to any more.
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

// Finish gives the segment of the stream back, if it has batches: it is not appended to any more.
// The stream goes on in another. It must not be in use.
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
