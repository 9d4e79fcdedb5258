package segment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/vfs"
)

// DefaultSegmentBytes is the length at which a segment is finished by default.
const DefaultSegmentBytes = 64 << 20

// maxIdle bounds the existing segments to which an opened log may append; further ones are finished
// as they are.
const maxIdle = 16

// Options say where a log is and how to open it.
type Options struct {
	// FS is the file system; nil is vfs.OS.
	FS vfs.FS
	// Dir is the directory of the segment files. A writer creates it if it does not exist.
	Dir string
	// Page is the id of the page, which the segments and checksums carry.
	Page [16]byte
	// ReadOnly opens without writing anything: torn tails are skipped, and every valid batch is
	// trusted.
	ReadOnly bool
	// SegmentBytes is the length at which a stream continues in a new segment; 0 is
	// DefaultSegmentBytes. A segment is longer by at most one batch.
	SegmentBytes int64
}

func (o Options) withDefaults() Options {
	if o.FS == nil {
		o.FS = vfs.OS
	}
	if o.SegmentBytes <= 0 {
		o.SegmentBytes = DefaultSegmentBytes
	}
	return o
}

// Log is an open log. It is safe for concurrent use.
type Log struct {
	o     Options
	files *handles
	main  *Stream

	syncs, batches, written atomic.Uint64
	inflight                sync.WaitGroup // appends; Add under mu

	mu      sync.RWMutex
	segs    map[uint32]*segment  // all segments but retired ones; guarded by mu, with what they point to
	gone    retirement           // everything ever retired; guarded by mu
	doomed  []End                // retired parts whose files stay for a copy; guarded by mu
	copies  int                  // calls of CopyTo; guarded by mu
	live    []*segment           // segments that a batch lists, ascending; guarded by mu
	nextSeg uint32               // guarded by mu
	numbers numbers              // guarded by mu
	streams map[*Stream]vfs.File // streams that hold a file; guarded by mu
	poison  error                // why appends are refused; guarded by mu
	closed  bool                 // guarded by mu
}

// segment is the state of one segment.
type segment struct {
	id     uint32
	size   uint64  // of the file
	synced uint64  // end of what is durable
	named  uint64  // largest end that a durable batch or a Position has named
	writer *Stream // the last stream that has appended a batch since the log was opened
	cited  uint64  // largest end that a batch of another stream than writer has named since the log was opened
	cut    bool    // batches were taken back off its end
	open   bool    // it may be appended to
	used   bool    // by a stream
}

// SegmentInfo describes a segment: its id, the length of its file and the end of what is durable,
// in bytes. The file is longer than SyncedEnd while a batch is written, and in a log that was
// opened read-only with a torn tail.
type SegmentInfo struct {
	ID              uint32
	Size, SyncedEnd uint64
	Open            bool // it may be appended to
}

// Stats count the work of a log since it was opened: syncs of segment files, batches made durable,
// and bytes written.
type Stats struct{ Syncs, Batches, BytesWritten uint64 }

// Main returns the stream for small batches. It is always the same.
func (l *Log) Main() *Stream { return l.main }

// NewStream returns a stream that appends to a segment of its own. The caller releases it.
func (l *Log) NewStream() *Stream { return &Stream{l: l} }

// Read appends the payload at p to dst and returns it; dst itself after an error. It checks only
// the bounds of the content: the payload's digest verifies it. Errors: ErrRetired when the segment
// was retired or the batch was taken back, so that the index has another place by now, or none;
// *base.CorruptError for an invalid place or a file that is too short, base.ErrClosed, and those of
// the file system.
func (l *Log) Read(p Place, dst []byte) ([]byte, error) {
	l.mu.RLock()
	seg, closed, synced := l.segs[p.Segment], l.closed, uint64(0)
	if seg != nil {
		synced = seg.synced
	}
	gone := l.goneLocked(p)
	l.mu.RUnlock()
	switch {
	case closed:
		return dst, fmt.Errorf("read segment %s: %w", FileName(p.Segment), base.ErrClosed)
	case gone:
		return dst, fmt.Errorf("read segment %s: %w", FileName(p.Segment), ErrRetired)
	case seg == nil:
		return dst, corrupt(p.Segment, p.Offset, "no such segment")
	}
	if p.Offset < headerBytes+frameBytes || p.Offset > synced || uint64(p.Length) > min(synced-p.Offset, MaxBatchBytes) {
		return dst, corrupt(p.Segment, p.Offset, fmt.Sprintf("a place of %d bytes outside of the batches up to %d", p.Length, synced))
	}
	out, err := readSegment(l.files, dst, p.Segment, p.Offset, int(p.Length))
	if err != nil {
		l.mu.RLock()
		defer l.mu.RUnlock()
		if l.goneLocked(p) { // since the look-up
			err = fmt.Errorf("read segment %s: %w", FileName(p.Segment), ErrRetired)
		}
		return dst, err
	}
	return out, nil
}

// goneLocked reports whether a place is no longer valid: its segment was retired, or its batch was
// taken back.
func (l *Log) goneLocked(p Place) bool {
	seg := l.segs[p.Segment]
	return l.gone.retired.has(p.Segment) || seg != nil && seg.cut && p.Offset+uint64(p.Length) > seg.synced
}

// Complete returns the greatest N such that each batch with a number up to N is durable, or has
// failed for good. It stops forever before a batch whose sync has failed.
func (l *Log) Complete() uint64 {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.numbers.complete
}

// Segments describes all segments, ascending by id.
func (l *Log) Segments() []SegmentInfo {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.segmentsLocked()
}

func (l *Log) segmentsLocked() []SegmentInfo {
	infos := make([]SegmentInfo, 0, len(l.segs))
	for _, id := range slices.Sorted(maps.Keys(l.segs)) {
		s := l.segs[id]
		infos = append(infos, SegmentInfo{ID: s.id, Size: max(s.size, s.synced), SyncedEnd: s.synced, Open: s.open || s.used})
	}
	return infos
}

// endsLocked returns the synced ends of all segments, ascending by segment.
func (l *Log) endsLocked() []End {
	infos := l.segmentsLocked()
	ends := make([]End, len(infos))
	for i, s := range infos {
		ends[i] = End{s.ID, s.SyncedEnd}
	}
	return ends
}

// Stats returns the counts since Open.
func (l *Log) Stats() Stats {
	return Stats{Syncs: l.syncs.Load(), Batches: l.batches.Load(), BytesWritten: l.written.Load()}
}

// Verify reads every batch of every segment up to the present synced ends and calls fn with each,
// in the order of their numbers; fn may be nil. Its arguments are valid during the call. It needs
// memory for one batch. Errors: *base.CorruptError at the first damage, those of fn and ctx,
// base.ErrClosed.
func (l *Log) Verify(ctx context.Context, fn func(BatchInfo, []Record) error) error {
	l.mu.RLock()
	ends, gone := l.endsLocked(), l.gone
	l.mu.RUnlock()
	extents := make([]extent, len(ends))
	last := Position{Ends: ends}
	for i, e := range ends {
		extents[i] = extent{e.Segment, headerBytes, e.Offset}
	}
	err := eachBatch(ctx, l.files, l.o.Page, extents, func(b *batch) error {
		for _, e := range b.ends {
			if have := last.end(e.Segment); have < gone.end(e.Segment, e.Offset) && !gone.retired.has(e.Segment) {
				return corrupt(e.Segment, have, fmt.Sprintf("the end of the segment, which batch %d names at %d", b.info.Number, e.Offset))
			}
		}
		if fn == nil {
			return nil
		}
		return fn(b.info, b.recs)
	})
	if err != nil {
		return fmt.Errorf("verify log: %w", err)
	}
	return nil
}

// Scan reads the batches of one segment in order, from the one at an offset, or from 0. The
// arguments of fn are valid during the call. Errors: *base.CorruptError at the first damage, those
// of fn and ctx, base.ErrClosed, those of the file system.
func (l *Log) Scan(ctx context.Context, id uint32, from uint64, fn func(BatchInfo, []Record) error) error {
	l.mu.RLock()
	s := l.segs[id]
	end := uint64(0)
	if s != nil {
		end = s.synced
	}
	l.mu.RUnlock()
	extents := []extent{{id, max(from, headerBytes), end}}
	if err := eachBatch(ctx, l.files, l.o.Page, extents, func(b *batch) error { return fn(b.info, b.recs) }); err != nil {
		return fmt.Errorf("scan segment %s: %w", FileName(id), err)
	}
	return nil
}

// CopyTo copies the segments up to their synced ends at one moment. It calls create for each with
// the name of its file and its length, and closes the result. Segments retired meanwhile keep their
// files until the copy is complete. Errors: those of create and of its writers, ctx,
// base.ErrClosed.
func (l *Log) CopyTo(ctx context.Context, create func(name string, size int64) (io.WriteCloser, error)) error {
	l.mu.Lock()
	l.copies++
	ends := l.endsLocked()
	l.mu.Unlock()
	defer l.endCopy()
	buf := make([]byte, 0, 1<<20)
	for _, e := range ends {
		if err := l.copySegment(ctx, e, buf, create); err != nil {
			return fmt.Errorf("copy segment %s: %w", FileName(e.Segment), err)
		}
	}
	return nil
}

func (l *Log) copySegment(ctx context.Context, e End, buf []byte, create func(string, int64) (io.WriteCloser, error)) (err error) {
	w, err := create(FileName(e.Segment), int64(e.Offset))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	for off := uint64(0); off < e.Offset; {
		if err := ctx.Err(); err != nil {
			return err
		}
		b, err := readSegment(l.files, buf[:0], e.Segment, off, int(min(uint64(cap(buf)), e.Offset-off)))
		if err != nil {
			return err
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
		off += uint64(len(b))
	}
	return nil
}

// Close waits for appends in flight and releases the files. It is idempotent; all other methods
// then fail with base.ErrClosed, or answer from memory.
func (l *Log) Close() error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.inflight.Wait()
	l.mu.Lock()
	streams := l.streams
	l.streams = map[*Stream]vfs.File{}
	l.mu.Unlock()
	var err error
	for _, f := range streams {
		err = errors.Join(err, f.Close())
	}
	return errors.Join(err, l.files.close())
}

func (l *Log) path(id uint32) string { return filepath.Join(l.o.Dir, FileName(id)) }

// addLocked adds a segment to the table.
func (l *Log) addLocked(s *segment) {
	l.segs[s.id] = s
	l.nextSeg = max(l.nextSeg, s.id+1)
	l.listLocked(s)
}

// listLocked makes batches list s while s may be appended to or its end is not named.
func (l *Log) listLocked(s *segment) {
	i, found := slices.BinarySearchFunc(l.live, s.id, func(s *segment, id uint32) int { return cmp.Compare(s.id, id) })
	switch want := s.open || s.synced > s.named; {
	case want && !found:
		l.live = slices.Insert(l.live, i, s)
	case !want && found:
		l.live = slices.Delete(l.live, i, i+1)
	}
}
