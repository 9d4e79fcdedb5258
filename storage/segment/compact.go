package segment

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/internal/base"
)

// ErrRetired reports a place in a segment that was replaced. The record is in the replacement, or
// nowhere when it was dead.
var ErrRetired = errors.New("segment was replaced")

// Rewrite is a replacement for some segments: a segment that has what is live in them. It ends with
// Install or Discard. A log has one at a time.
type Rewrite struct {
	replacementFile
	l      *Log
	inputs []uint32
	ends   map[uint32]uint64
	in     uint64
}

// Rewrite reads the batches of some segments, in the order of their numbers, and writes what is
// live of them to a replacement. fn adds to out, which is empty, the live records of a batch, or
// others in their place; what it gets is valid during the call. Batches that stay empty are left
// out, but for the last, which also names what the batches have named. Numbers stay. judged is a
// number up to which all batches of the log, those of the segments among them, were reflected when
// fn decides.
//
// The segments must not be appended to (see Finish) and must have batches. Nothing changes before
// Install. Errors match base.ErrInvalid for other segments, and when a Rewrite is under way or one
// was installed and not retired; else they are those of fn, ctx, of reading and the disk.
func (l *Log) Rewrite(ctx context.Context, segments []uint32, judged uint64, fn func(info BatchInfo, recs []Record, out *Batch) error) (*Rewrite, error) {
	r := &Rewrite{replacementFile: replacementFile{o: &l.o}, l: l, inputs: slices.Sorted(slices.Values(segments)), ends: map[uint32]uint64{}}
	r.head.judged = judged
	if err := r.begin(); err != nil {
		return nil, fmt.Errorf("rewrite segments: %w", err)
	}
	err := r.write(ctx, fn)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("rewrite segments to %s: %w", FileName(r.id), err), r.Discard())
	}
	return r, nil
}

// begin takes an id and finds out what is replaced.
func (r *Rewrite) begin() (err error) {
	l := r.l
	if err := l.begin(); err != nil {
		return err
	}
	defer l.inflight.Done()
	var replaces ids
	for _, id := range r.inputs {
		h, err := l.header(id)
		if err != nil {
			return err
		}
		replaces = replaces.with(idRange{id, id}).with(h.replaces...)
	}
	if len(replaces) == 0 || len(replaces) > maxRanges {
		return fmt.Errorf("%d ranges of segments: %w", len(replaces), base.ErrInvalid)
	}
	r.head.replaces = replaces
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.work != nil || len(l.old) > 0 {
		return fmt.Errorf("another rewrite is not finished: %w", base.ErrInvalid)
	}
	for i, id := range r.inputs {
		s := l.segs[id]
		if s == nil || s.open || s.used || s.synced <= headerBytes || i > 0 && r.inputs[i-1] == id {
			return fmt.Errorf("segment %s cannot be replaced: %w", FileName(id), base.ErrInvalid)
		}
		r.in += s.synced
	}
	if r.head.judged > l.numbers.complete {
		return fmt.Errorf("judged at batch %d of %d: %w", r.head.judged, l.numbers.complete, base.ErrInvalid)
	}
	if r.id, err = takeID(&l.nextSeg); err == nil {
		l.work = r
	}
	return err
}

func (r *Rewrite) write(ctx context.Context, fn func(BatchInfo, []Record, *Batch) error) (err error) {
	l := r.l
	if err := r.create(); err != nil {
		return err
	}
	var extents []extent
	for _, id := range r.inputs {
		h, err := l.header(id)
		if err != nil {
			return err
		}
		l.mu.RLock()
		extents = append(extents, extent{id, h.bytes, l.segs[id].synced})
		l.mu.RUnlock()
	}
	m, err := newMerger(l.files, l.o.Page, extents)
	if err != nil {
		return err
	}
	out := NewBatch()
	err = m.each(ctx, func(b *batch) error {
		if b.info.Number > r.head.judged {
			return fmt.Errorf("batch %d, judged at %d: %w", b.info.Number, r.head.judged, base.ErrInvalid)
		}
		for _, e := range b.ends {
			r.ends[e.Segment] = max(r.ends[e.Segment], e.Offset)
		}
		out.Reset()
		if err := fn(b.info, b.recs, out); err != nil {
			return err
		}
		last := len(m.heap) == 0
		if out.Len() == 0 && !last {
			return nil
		}
		var ends []End
		if last {
			ends = r.lastEnds()
		}
		return r.append(b.info.Number, out, ends)
	})
	if err != nil {
		return err
	}
	return r.flush()
}

// lastEnds are those that the last batch names: what all that it stands for have named, as far as
// it is still there, and what is appended to.
func (r *Rewrite) lastEnds() []End {
	l := r.l
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, s := range l.live {
		r.ends[s.id] = max(r.ends[s.id], s.synced)
	}
	var p Position
	for id, off := range r.ends {
		if l.segs[id] != nil && !slices.Contains(r.inputs, id) {
			p.Ends = append(p.Ends, End{id, off})
		}
	}
	slices.SortFunc(p.Ends, func(a, b End) int { return cmp.Compare(a.Segment, b.Segment) })
	return p.Ends[max(0, len(p.Ends)-maxBatchEnds):]
}

// Bytes returns the length in bytes of the segments that are replaced, and that of the replacement.
func (r *Rewrite) Bytes() (before, after uint64) { return r.in, r.off }

// KeepsDead notes that records were taken over that count only together with others which took away
// what they store: then the replacement does not say what it was judged by.
func (r *Rewrite) KeepsDead() { r.head.judged = 0 }

// Discard removes the replacement.
func (r *Rewrite) Discard() error {
	l := r.l
	l.mu.Lock()
	mine := l.work == r
	if mine {
		l.work = nil
	}
	l.mu.Unlock()
	if !mine {
		return nil
	}
	if err := r.discard(); err != nil {
		return fmt.Errorf("discard a replacement: %w", err)
	}
	return nil
}

// Install makes the replacement durable. From then on the log consists of it, and not of what it
// replaces. That can still be read, until Retire says that the index does not point there any more:
// a Position that names it is still one of this log, and MapPosition makes it name the replacement.
// After an error the log is what it was, unless it matches base.ErrReadOnly: then it is unknown
// which of the two will be there when the log is opened anew.
func (r *Rewrite) Install() error {
	l := r.l
	if err := l.begin(); err != nil {
		return errors.Join(fmt.Errorf("install a replacement: %w", err), r.Discard())
	}
	defer l.inflight.Done()
	if err := r.sync(); err != nil {
		return errors.Join(fmt.Errorf("install a replacement: %w", err), r.Discard())
	}
	if err := r.close(); err != nil {
		return l.fail("close a replacement", err)
	}
	if err := r.name(); err != nil {
		return l.fail("name a replacement", err)
	}
	l.syncs.Add(1)
	l.written.Add(r.off)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.work = nil
	l.headsKnown, l.compacted = true, true
	for _, id := range r.inputs {
		s := l.segs[id]
		s.named = s.synced
		l.listLocked(s)
		delete(l.segs, id)
		l.old[id] = s
	}
	l.addLocked(&segment{id: r.id, size: r.off, synced: r.off, named: r.off})
	return nil
}

// replace makes p name a replacement, which ends with the batch last and at end, instead of what
// that replaces. It reports false when p does not reflect all of that.
func replace(p *Position, replaced []uint32, last BatchInfo, end uint64) bool {
	n := len(p.Ends)
	p.Ends = slices.DeleteFunc(p.Ends, func(e End) bool { return slices.Contains(replaced, e.Segment) })
	if len(p.Ends) == n {
		return true
	}
	p.setEnd(End{last.Segment, end})
	if !slices.Contains(replaced, p.Segment) {
		return p.Number >= last.Number
	}
	ok := p.Number == last.Number
	p.Segment, p.Start, p.CRC = last.Segment, last.Start, last.CRC
	return ok
}

// Moved returns the replacements whose replaced segments were not retired, ascending: those that
// were installed, or that Open found together with a position of the index from before. Index and
// log agree again after the index points to them, its position is what MapPosition makes of it, and
// Retire was called.
func (l *Log) Moved() ([]uint32, error) {
	l.mu.RLock()
	var old, segs []uint32
	for id := range l.old {
		old = append(old, id)
	}
	for id := range l.segs {
		segs = append(segs, id)
	}
	l.mu.RUnlock()
	if len(old) == 0 {
		return nil, nil
	}
	slices.Sort(segs)
	var out []uint32
	for _, id := range segs {
		h, err := l.header(id)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(old, ids(h.replaces).has) {
			out = append(out, id)
		}
	}
	return out, nil
}

// Compacted reports whether a segment is a replacement. It reads headers once. Errors are those of
// that.
func (l *Log) Compacted() (bool, error) {
	l.mu.RLock()
	known, compacted := l.headsKnown, l.compacted
	var segs []uint32
	for id := range l.segs {
		segs = append(segs, id)
	}
	l.mu.RUnlock()
	if known {
		return compacted, nil
	}
	for _, id := range segs {
		h, err := l.header(id)
		if err != nil {
			return false, err
		}
		compacted = compacted || h.replacement()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.compacted = l.compacted || compacted
	l.headsKnown = true
	return l.compacted, nil
}

// Replaces reports whether one segment replaces another. Errors are those of reading the header of
// the first.
func (l *Log) Replaces(replacement, replaced uint32) (bool, error) {
	h, err := l.header(replacement)
	return err == nil && ids(h.replaces).has(replaced), err
}

// MapPosition returns a position that names replacements instead of what they replace. With both
// set it names both: an index that says so may point into either (see Options.Moving). p must
// reflect all of what is replaced; else the error is ErrIndexMismatch.
func (l *Log) MapPosition(p Position, both bool) (Position, error) {
	moved, err := l.Moved()
	if err != nil {
		return p, err
	}
	p = p.Clone()
	for _, id := range moved {
		h, err := l.header(id)
		if err != nil {
			return p, err
		}
		if both {
			p.setEnd(End{id, h.size})
			continue
		}
		last, err := l.lastBatch(id, h)
		if err != nil {
			return p, err
		}
		var replaced []uint32
		for _, e := range p.Ends {
			if ids(h.replaces).has(e.Segment) {
				replaced = append(replaced, e.Segment)
			}
		}
		if !replace(&p, replaced, last, h.size) {
			return p, fmt.Errorf("position of batch %d before the last of a replacement, %d: %w", p.Number, last.Number, ErrIndexMismatch)
		}
	}
	return p, nil
}

// lastBatch finds the last batch of a replacement by the frames.
func (l *Log) lastBatch(id uint32, h header) (info BatchInfo, err error) {
	var b []byte
	for at := h.bytes; at < h.size; at = info.End {
		if b, err = readSegment(l.files, b[:0], id, at, frameBytes); err != nil {
			return info, err
		}
		f, ok := parseFrame(b, seed(l.o.Page, id, at))
		if !ok || f.size() > h.size-at {
			return info, corrupt(id, at, "no frame of a batch")
		}
		info = BatchInfo{Number: f.number, Segment: id, Start: at, End: at + f.size()}
	}
	if b, err = readSegment(l.files, b[:0], id, info.End-crcBytes, crcBytes); err != nil {
		return info, err
	}
	info.CRC = binary.BigEndian.Uint32(b)
	return info, nil
}

// Retire gives up the segments that were replaced. Their files are removed when nobody reads them
// any more, or by the next Open.
func (l *Log) Retire() {
	l.mu.Lock()
	var gone []uint32
	for id := range l.old {
		gone = append(gone, id)
		l.retired = l.retired.with(idRange{id, id})
	}
	clear(l.old)
	l.mu.Unlock()
	for _, id := range gone {
		_ = l.files.retire(id, func() error { l.remove(id); return nil }) // what could not be closed was only read
	}
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

// Description is what the header of a segment and the frame of its first batch say.
type Description struct {
	// Judged is what Rewrite was told when it made the segment, 0 after KeepsDead and for other
	// segments.
	Judged uint64
	// First is the number of the first batch, 0 when there is none.
	First uint64
}

// Describe reads the description of a segment. Errors match base.ErrCorrupt or base.ErrClosed, or
// are those of the file system.
func (l *Log) Describe(id uint32) (Description, error) {
	var d Description
	l.mu.RLock()
	s := l.segs[id]
	end := uint64(0)
	if s != nil {
		end = s.synced
	}
	l.mu.RUnlock()
	h, err := l.header(id)
	if err != nil {
		return d, err
	}
	if h.judged != judgedByRepair {
		d.Judged = h.judged
	}
	if end <= h.bytes {
		return d, nil
	}
	b, err := readSegment(l.files, nil, id, h.bytes, frameBytes)
	if err != nil {
		return d, err
	}
	f, ok := parseFrame(b, seed(l.o.Page, id, h.bytes))
	if !ok {
		return d, corrupt(id, h.bytes, "no frame of a batch")
	}
	d.First = f.number
	return d, nil
}

// Scan reads the batches of one segment, in order; what fn gets is valid during the call. Errors:
// *base.CorruptError at the first damage, what fn returns, ctx, base.ErrClosed, those of the file
// system.
func (l *Log) Scan(ctx context.Context, id uint32, fn func(BatchInfo, []Record) error) error {
	h, err := l.header(id)
	if err != nil {
		return fmt.Errorf("scan segment %s: %w", FileName(id), err)
	}
	l.mu.RLock()
	s := l.segs[id]
	end := uint64(0)
	if s != nil {
		end = s.synced
	}
	l.mu.RUnlock()
	m, err := newMerger(l.files, l.o.Page, []extent{{id, h.bytes, end}})
	if err == nil {
		err = m.each(ctx, func(b *batch) error { return fn(b.info, b.recs) })
	}
	if err != nil {
		return fmt.Errorf("scan segment %s: %w", FileName(id), err)
	}
	return nil
}

// header reads the header of a segment.
func (l *Log) header(id uint32) (header, error) {
	h, err := l.files.get(id)
	if err != nil {
		return header{}, err
	}
	head, whole, err := readHeader(h.f, l.o.Page, id)
	if err == nil && !whole {
		err = corrupt(id, 0, "no header of a segment")
	}
	return head, errors.Join(err, l.files.put(h))
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
