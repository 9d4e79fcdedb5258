package segment

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/vfs"
)

// Stream appends batches one after another to a segment that no other stream uses, and continues in
// another when that has reached Options.SegmentBytes. It has one user at a time; streams are
// independent of each other.
type Stream struct {
	l    *Log
	busy atomic.Bool
	gone bool
	seg  *segment
	file vfs.File
	ends []End
	made []End // where its batches begin, for Forget; guarded by Log.mu, and empty for the main stream
}

// Appended locates a batch. Places are those of its records, by index; the caller owns them.
type Appended struct {
	BatchInfo
	Places []Place
}

// Append writes b as one batch and syncs it; it is durable when the error is nil. It blocks for one
// write and one sync, and sometimes for a new file. b is unchanged and may then be reset or
// appended again.
//
// After a failed write the file is cut back, and the log stays usable. After a failed sync, or a
// failed cut, it is unknown whether the batch exists, and the log refuses appends until it is
// opened again: this call and all later ones return an error that matches base.ErrReadOnly and
// wraps the cause. Other errors: base.ErrTooLarge, base.ErrNoSpace, base.ErrClosed, base.ErrInvalid
// for a stream that is in use or was released.
func (s *Stream) Append(b *Batch) (Appended, error) {
	info, err := s.append(b, retirement{})
	if err != nil {
		return Appended{}, err
	}
	return Appended{info, b.placesAt(info)}, nil
}

// append writes b as one batch that also records a retirement.
func (s *Stream) append(b *Batch, r retirement) (info BatchInfo, err error) {
	if !s.busy.CompareAndSwap(false, true) {
		return info, fmt.Errorf("append to a stream in use: %w", base.ErrInvalid)
	}
	defer s.busy.Store(false)
	if s.gone {
		return info, fmt.Errorf("append to a released stream: %w", base.ErrInvalid)
	}
	if err := b.check(); err != nil {
		return info, err
	}
	if err := s.l.begin(); err != nil {
		return info, err
	}
	defer s.l.inflight.Done()
	if err := s.prepare(); err != nil {
		return info, err
	}
	if info, err = s.assign(r); err != nil {
		return info, err
	}
	frame := b.encode(s.l.o.Page, &info, s.ends)
	if err := s.write(frame, info); err != nil {
		return info, err
	}
	s.publish(info)
	return info, nil
}

// Release releases the segment of the stream for another stream. The stream must not be in use and
// cannot be used afterwards. The main stream is not released.
func (s *Stream) Release() {
	l := s.l
	if s == l.main || !s.busy.CompareAndSwap(false, true) {
		return
	}
	defer s.busy.Store(false)
	s.gone = true
	s.leave()
}

// begin refuses appends to a log that cannot take them, else counts one more in flight.
func (l *Log) begin() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.closed:
		return fmt.Errorf("append batch: %w", base.ErrClosed)
	case l.o.ReadOnly:
		return fmt.Errorf("append batch: %w", base.ErrReadOnly)
	case l.poison != nil:
		return l.poison
	}
	l.inflight.Add(1)
	return nil
}

// prepare ensures that the stream has its file and a segment with room.
func (s *Stream) prepare() error {
	l := s.l
	if s.seg != nil {
		l.mu.RLock()
		full := l.fullLocked(s.seg)
		l.mu.RUnlock()
		if !full {
			return nil
		}
		s.leave()
	}
	seg, created, err := l.acquire()
	if err != nil {
		return err
	}
	var f vfs.File
	if created {
		f, err = l.create(seg.id)
	} else if f, err = l.o.FS.Open(l.path(seg.id)); err != nil {
		err = fmt.Errorf("open segment for appending: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		seg.used = false
		return err
	}
	if created {
		l.addLocked(seg)
	}
	s.seg, s.file = seg, f
	l.streams[s] = f
	return nil
}

func (l *Log) fullLocked(s *segment) bool { return s.synced >= uint64(l.o.SegmentBytes) }

// leave releases the segment of the stream. It ignores an error of closing, which says nothing
// about what was synced.
func (s *Stream) leave() {
	l := s.l
	if s.seg == nil {
		return
	}
	l.mu.Lock()
	s.seg.used = false
	s.seg.open = !l.fullLocked(s.seg)
	l.listLocked(s.seg)
	_, ours := l.streams[s] // else Close has closed the file
	delete(l.streams, s)
	l.mu.Unlock()
	if ours {
		_ = s.file.Close()
	}
	s.seg, s.file = nil, nil
}

// acquire returns an unused segment, or a new one that is to be created.
func (l *Log) acquire() (seg *segment, created bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, s := range l.live {
		if s.open && !s.used && !l.fullLocked(s) {
			s.used = true
			return s, false, nil
		}
	}
	id, err := takeID(&l.nextSeg)
	if err != nil {
		return nil, false, err
	}
	return &segment{id: id, size: headerBytes, synced: headerBytes, open: true, used: true}, true, nil
}

// create makes the file of a new segment, durable with its name (I4).
func (l *Log) create(id uint32) (vfs.File, error) {
	f, err := l.o.FS.Create(l.path(id))
	if err != nil {
		return nil, fmt.Errorf("create segment: %w", err)
	}
	if _, err = f.WriteAt(encodeHeader(l.o.Page, id), 0); err != nil {
		// The rest of the file was never named: the next Open makes it again.
		return nil, fmt.Errorf("create segment: %w", errors.Join(err, f.Close(), l.o.FS.Remove(l.path(id))))
	}
	err = f.Sync()
	if err == nil {
		err = l.o.FS.SyncDir(l.o.Dir)
	}
	if err != nil {
		return nil, l.fail("sync segment "+FileName(id), errors.Join(err, f.Close()))
	}
	l.syncs.Add(1)
	l.written.Add(headerBytes)
	return f, nil
}

// assign gives the batch its number and place, and sets the ends that it lists (I3). A batch that
// retires segments lists all ends, because the retired batches may have been the only ones that
// named some.
func (s *Stream) assign(r retirement) (BatchInfo, error) {
	l := s.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.poison != nil {
		return BatchInfo{}, l.poison
	}
	s.ends = s.ends[:0]
	if r.reflect != 0 {
		s.ends = append(s.ends, l.endsLocked()...)
	} else {
		for _, seg := range l.live {
			s.ends = append(s.ends, End{seg.id, seg.synced})
		}
	}
	s.ends = s.ends[max(0, len(s.ends)-maxBatchEnds/2+1):]
	return BatchInfo{Number: l.numbers.next(), Segment: s.seg.id, Start: s.seg.synced, retirement: r}, nil
}

// write makes the batch durable.
func (s *Stream) write(frame []byte, info BatchInfo) error {
	l := s.l
	if _, err := s.file.WriteAt(frame, int64(info.Start)); err != nil {
		err = fmt.Errorf("write batch %d to segment %s: %w", info.Number, FileName(info.Segment), err)
		// The cut is synced. Otherwise the batch could be found whole after a power cut although
		// later batches were acknowledged.
		cut := s.file.Truncate(int64(info.Start))
		if cut == nil {
			cut = s.file.Sync()
		}
		if cut != nil {
			return l.fail("cut a failed batch off segment "+FileName(info.Segment), errors.Join(cut, err))
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.numbers.finish(info.Number)
		return err
	}
	if err := s.file.Sync(); err != nil {
		return l.fail(fmt.Sprintf("sync batch %d in segment %s", info.Number, FileName(info.Segment)), err)
	}
	return nil
}

// fail makes the log read-only and returns the error of all later appends.
func (l *Log) fail(what string, cause error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.poison == nil {
		l.poison = fmt.Errorf("%w until it is opened anew: %s: %w", base.ErrReadOnly, what, cause)
	}
	return l.poison
}

// publish makes a durable batch part of the log.
func (s *Stream) publish(info BatchInfo) {
	l := s.l
	l.syncs.Add(1)
	l.batches.Add(1)
	l.written.Add(info.End - info.Start)
	l.mu.Lock()
	defer l.mu.Unlock()
	s.seg.synced, s.seg.size, s.seg.writer = info.End, info.End, s
	for _, e := range s.ends {
		seg := l.segs[e.Segment]
		if seg == nil {
			continue
		}
		if seg.writer != s {
			seg.cited = max(seg.cited, e.Offset)
		}
		if seg.named < e.Offset {
			seg.named = e.Offset
			l.listLocked(seg)
		}
	}
	if s != l.main {
		s.made = append(s.made, End{info.Segment, info.Start})
	}
	l.numbers.finish(info.Number)
}
