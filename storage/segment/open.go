package segment

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/vfs"
)

// Recovery reports what Open has found after the last named ends.
type Recovery struct {
	// Torn are the torn tails, ascending by segment. A writer cuts them, a reader skips them.
	Torn []Torn
	// Rewritten counts the batches that a writer has written again and synced, because they may
	// never have been synced.
	Rewritten int
}

// Torn is a torn tail: the rest of a batch that was never acknowledged.
type Torn struct {
	Segment uint32
	Offset  uint64
	// Bytes is its length.
	Bytes uint64
	// SavedAs is the path of the file to which the tail was saved. It is empty when the log was
	// opened read-only, and when all bytes are zero.
	SavedAs string
}

// opener is the state of one Open.
type opener struct {
	o     Options
	from  Position
	files *handles
	sizes map[uint32]uint64
	scans map[uint32]*scanned
	named map[uint32]uint64 // largest named end of each segment
	found retirement        // the retirements of all scanned batches
	rec   Recovery

	short []End      // ends in from that files do not reach
	gone  retirement // as in from, and after the scan as in the log
	left  []End      // where files with a retired part are to be cut; 0: they are to be removed

	salvages bool              // damage is recorded, see Salvage
	verify   func(Record) bool // see OpenSalvage
	numbers  []uint64          // of valid batches, in a salvage
}

func newOpener(o Options) *opener {
	return &opener{o: o, files: newHandles(o.FS, o.Dir, o.Page), scans: map[uint32]*scanned{}, named: map[uint32]uint64{}}
}

// Open opens the log in o.Dir. from is the position that an index reflects, nil for none. replay,
// which may be nil, is called once for every valid batch after from, in the order of their numbers.
// Its arguments are valid during the call, and its error ends Open.
//
// Segments that from covers wholly are not even opened: the last batch of from proves that from
// belongs to this log. Everything after from is checked. A writer sets torn tails aside below
// o.Dir, and syncs batches that may never have been synced (I5); a crash meanwhile is harmless. A
// log has either one writer or any number of readers: the caller ensures that.
//
// Errors: ErrIndexMismatch when from is not of this log; *base.CorruptError when bytes before a
// named end are invalid, which also matches ErrIndexMismatch when only from requires them;
// *base.FormatError for a segment of a newer format; those of replay, of ctx and of the file
// system.
func Open(ctx context.Context, o Options, from *Position, replay func(BatchInfo, []Record) error) (*Log, *Recovery, error) {
	op := newOpener(o.withDefaults())
	if from != nil {
		op.from = from.Clone()
	}
	l, err := op.open(ctx, replay)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("open log: %w", err), op.files.close())
	}
	return l, &op.rec, nil
}

func (op *opener) open(ctx context.Context, replay func(BatchInfo, []Record) error) (*Log, error) {
	if err := op.list(); err != nil {
		return nil, err
	}
	op.gone = op.from.gone
	op.dropRetired()
	if err := op.checkFrom(); err != nil {
		return nil, err
	}
	if err := op.scanAll(ctx); err != nil {
		return nil, err
	}
	if err := op.judge(); err != nil {
		return nil, err
	}
	if !op.o.ReadOnly {
		if err := op.recover(); err != nil {
			return nil, err
		}
	}
	l := op.log()
	if err := op.replay(ctx, l, replay); err != nil {
		return nil, err
	}
	return l, nil
}

// list finds the segment files.
func (op *opener) list() (err error) {
	if op.sizes, err = listSegments(op.o); errors.Is(err, fs.ErrNotExist) && !op.o.ReadOnly {
		err = op.o.FS.MkdirAll(op.o.Dir)
	}
	if err != nil || len(op.sizes) > 0 || op.o.ReadOnly {
		return err
	}
	// The directory may exist because a process died between making and syncing it.
	if err := op.o.FS.SyncDir(filepath.Dir(op.o.Dir)); err != nil {
		return fmt.Errorf("make directory of segments durable: %w", err)
	}
	return nil
}

// listSegments returns the lengths of the segment files.
func listSegments(o Options) (map[uint32]uint64, error) {
	sizes := map[uint32]uint64{}
	infos, err := o.FS.ReadDir(o.Dir)
	if err != nil {
		return sizes, fmt.Errorf("list segments: %w", err)
	}
	for _, i := range infos {
		if id, ok := parseFileName(i.Name); ok && !i.Dir {
			sizes[id] = uint64(i.Size)
		}
	}
	return sizes, nil
}

// checkFrom verifies that the position is one of this log: first its last batch, then the lengths
// of the segments.
func (op *opener) checkFrom() error {
	if !op.from.valid() {
		return fmt.Errorf("position with batch %d: %w", op.from.Number, ErrIndexMismatch)
	}
	if err := op.checkLast(); err != nil {
		return err
	}
	for _, e := range op.from.Ends {
		if size, ok := op.sizes[e.Segment]; !ok || size < e.Offset {
			op.short = append(op.short, e)
		} else {
			op.named[e.Segment] = e.Offset
		}
	}
	return nil
}

// dropRetired removes retired segments from the scan.
func (op *opener) dropRetired() {
	for _, id := range op.ids() {
		if op.gone.retired.has(id) {
			op.left = append(op.left, End{Segment: id})
			delete(op.sizes, id)
			delete(op.scans, id)
			delete(op.named, id)
		} else if offset := op.gone.end(id, op.sizes[id]); op.sizes[id] > offset {
			op.left = append(op.left, End{id, offset})
			op.sizes[id] = offset
		}
	}
}

// applyRetirement removes what the log has retired, and refuses an index that may point there.
// Segments that are shorter than the index expects must be among the retired.
func (op *opener) applyRetirement(r retirement) error {
	if r.reflect != 0 {
		op.gone = op.gone.with(r)
		op.dropRetired()
		for id, offset := range op.gone.cuts {
			op.cut(id, offset)
		}
		if op.from.Number > 0 && op.from.Number < r.reflect {
			return fmt.Errorf("segments were retired that an index of batch %d may point to: %w", op.from.Number, ErrIndexMismatch)
		}
	}
	for _, e := range op.short {
		size := op.sizes[e.Segment]
		if op.gone.retired.has(e.Segment) || size >= op.gone.end(e.Segment, e.Offset) {
			continue
		}
		if op.from.Number == 0 {
			return fmt.Errorf("segment %s of %d bytes, index reflects %d: %w", FileName(e.Segment), size, e.Offset, ErrIndexMismatch)
		}
		return &base.CorruptError{
			Where: "segment " + FileName(e.Segment), Err: ErrIndexMismatch,
			Want: fmt.Sprintf("%d bytes, as the index reflects", e.Offset), Got: fmt.Sprintf("%d", size),
		}
	}
	return nil
}

// cut removes the retired part of a segment. The part before it was synced.
func (op *opener) cut(id uint32, offset uint64) {
	op.named[id] = offset
	if sc := op.scans[id]; sc != nil {
		sc.size, sc.from = op.sizes[id], min(sc.from, offset)
		if sc.end >= offset {
			sc.end, sc.last = offset, BatchInfo{}
		}
		sc.invalid = slices.DeleteFunc(sc.invalid, func(g region) bool { return g.start >= offset })
		for i := range sc.invalid {
			sc.invalid[i].end = min(sc.invalid[i].end, offset)
		}
		sc.batches = slices.DeleteFunc(sc.batches, func(e extent) bool { return e.from >= offset })
		for i := range sc.batches {
			sc.batches[i].to = min(sc.batches[i].to, offset)
		}
	}
}

// checkLast compares the last batch of the position with the bytes at its place, by frame and
// checksum alone.
func (op *opener) checkLast() error {
	p := &op.from
	if p.Number == 0 {
		return nil
	}
	end := p.end(p.Segment)
	mismatch := func(got string) error {
		return fmt.Errorf("%s where the index has batch %d, segment %s at offset %d: %w", got, p.Number, FileName(p.Segment), p.Start, ErrIndexMismatch)
	}
	if op.sizes[p.Segment] < end {
		return mismatch(fmt.Sprintf("a file of %d bytes", op.sizes[p.Segment]))
	}
	b, err := readSegment(op.files, nil, p.Segment, p.Start, frameBytes)
	if err == nil {
		b, err = readSegment(op.files, b, p.Segment, end-crcBytes, crcBytes)
	}
	if err != nil {
		if errors.Is(err, base.ErrCorrupt) {
			return fmt.Errorf("%w: %w", ErrIndexMismatch, err)
		}
		return err
	}
	f, ok := parseFrame(b, seed(op.o.Page, p.Segment, p.Start))
	if !ok || f.number != p.Number || p.Start+f.size() != end || binary.BigEndian.Uint32(b[frameBytes:]) != p.CRC {
		return mismatch("something else")
	}
	return nil
}

// scanAll scans everything after from.
func (op *opener) scanAll(ctx context.Context) error {
	for _, id := range op.ids() {
		from := op.from.end(id)
		sc := &scanned{id: id, size: op.sizes[id], from: from, end: from}
		op.name(End{id, from})
		if from == 0 || sc.size > from { // else it is short, or nothing follows
			if err := op.scan(ctx, sc); err != nil {
				return err
			}
		}
		op.scans[id] = sc
	}
	return op.applyRetirement(op.found)
}

// ids returns the ids of the segment files, ascending.
func (op *opener) ids() []uint32 { return slices.Sorted(maps.Keys(op.sizes)) }

// judge compares the valid ends with the named ones.
func (op *opener) judge() error {
	for _, id := range slices.Sorted(maps.Keys(op.named)) {
		named, sc := op.named[id], op.scans[id]
		switch {
		case named == 0 || op.gone.retired.has(id):
		case sc == nil:
			return &base.CorruptError{Where: "segment " + FileName(id), Want: fmt.Sprintf("%d bytes", named), Got: "no file"}
		case named > sc.end:
			return corrupt(id, sc.end, fmt.Sprintf("invalid bytes before %d, which was synced", named))
		case named < sc.end && named > sc.last.Start:
			return corrupt(id, sc.last.Start, fmt.Sprintf("a batch up to %d where one ended at %d", sc.end, named))
		}
	}
	for _, id := range op.ids() {
		if sc := op.scans[id]; sc.size > sc.end {
			op.rec.Torn = append(op.rec.Torn, Torn{Segment: id, Offset: sc.end, Bytes: sc.size - sc.end})
		}
	}
	return nil
}

// log builds the Log from the scans and the recovery.
func (op *opener) log() *Log {
	l := &Log{
		o:       op.o,
		files:   op.files,
		segs:    map[uint32]*segment{},
		gone:    op.gone,
		nextSeg: op.nextID(),
		streams: map[*Stream]vfs.File{},
	}
	l.gone.reflect = 0
	l.main = &Stream{l: l}
	idle := 0
	for _, id := range op.ids() {
		sc := op.scans[id]
		if sc.end == 0 {
			continue // read-only: a file that was never named
		}
		s := &segment{id: id, size: sc.size, synced: sc.end, named: min(op.named[id], sc.end)}
		if s.open = !op.o.ReadOnly && idle < maxIdle && !l.fullLocked(s) && l.gone.cuts[id] == 0; s.open {
			idle++
		}
		l.addLocked(s)
	}
	return l
}

// nextID returns an id that no segment has or had, as far as is known.
func (op *opener) nextID() uint32 {
	next := uint32(1)
	for id := range op.sizes {
		next = max(next, id+1)
	}
	for id := range op.named {
		next = max(next, id+1)
	}
	for _, r := range op.gone.retired {
		next = max(next, r.last+1)
	}
	return next
}

// replay calls fn with the batches after from, and sets the numbers of the log.
func (op *opener) replay(ctx context.Context, l *Log, fn func(BatchInfo, []Record) error) error {
	var extents []extent
	for _, id := range op.ids() {
		sc := op.scans[id]
		extents = append(extents, extent{id, max(sc.from, headerBytes), sc.end})
	}
	n := &l.numbers
	n.last = op.from.Number
	err := eachBatch(ctx, op.files, op.o.Page, extents, func(b *batch) error {
		n.last = b.info.Number
		if fn == nil {
			return nil
		}
		return fn(b.info, b.recs)
	})
	if err != nil {
		return fmt.Errorf("replay log: %w", err)
	}
	n.complete = n.last
	return nil
}

// copyRange calls fn with the bytes from off to end of f, in parts.
func copyRange(f vfs.File, off, end uint64, fn func(b []byte, off uint64) error) error {
	buf := make([]byte, 256<<10)
	for off < end {
		b := buf[:min(uint64(len(buf)), end-off)]
		n, err := f.ReadAt(b, int64(off))
		if n < len(b) {
			return errors.Join(err, io.ErrUnexpectedEOF)
		}
		if err := fn(b, off); err != nil {
			return err
		}
		off += uint64(n)
	}
	return nil
}
