package segment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/ledgerd/ledger/internal/vfs"
)

// Damage is a damaged part of a segment, from Start to before End. Number is that of the batch that
// was there, if it is recorded or follows from the other batches, or 0. All of a segment whose file
// is gone is damage.
type Damage struct {
	Segment    uint32
	Start, End uint64
	Number     uint64
	Got        string
}

// Where names the place.
func (d Damage) Where() string {
	return fmt.Sprintf("segment %s at offset %d", FileName(d.Segment), d.Start)
}

// Part is a batch of a log that is being salvaged, or the rest of a damaged one.
type Part struct {
	Info BatchInfo
	// Damaged says that the batch is damaged: Records are those that can be separated, and are only
	// as good as they verify by themselves. A batch of which nothing is left has none.
	Damaged bool
	// Leaves says that the batch lies in a segment that will be retired.
	Leaves  bool
	Records []Record
}

// Salvage reads the rest of a log that may be damaged, and can retire the damaged segments. The log
// must not be open elsewhere. It is not safe for concurrent use.
type Salvage struct {
	op     *opener
	l      *Log
	damage []Damage
	bad    map[uint32]*scanned // damaged segments
	good   []extent
	known  uint64 // number of the given position
}

// OpenSalvage reads all segments in o.Dir and finds their damage. known, which may be nil, is a
// position that an index has or had: what it names existed. verify, which may be nil, reports
// whether a record in an intact batch has the content that it claims; otherwise the batch is
// damaged. Nothing is written, even without o.ReadOnly. A torn tail is no damage.
//
// Errors: *base.FormatError for a segment of a newer format; those of ctx and of the file system.
func OpenSalvage(ctx context.Context, o Options, known *Position, verify func(Record) bool) (*Salvage, error) {
	op := newOpener(o.withDefaults())
	op.salvages, op.verify, op.files.anyHeader = true, verify, true
	s := &Salvage{op: op, bad: map[uint32]*scanned{}}
	s.l = &Log{o: op.o, files: op.files, segs: map[uint32]*segment{}, streams: map[*Stream]vfs.File{}}
	if err := s.open(ctx, known); err != nil {
		return nil, errors.Join(fmt.Errorf("salvage log: %w", err), s.Close())
	}
	return s, nil
}

func (s *Salvage) open(ctx context.Context, known *Position) (err error) {
	op := s.op
	if op.sizes, err = listSegments(op.o); err != nil {
		return err
	}
	if known != nil {
		s.known, op.gone = known.Number, known.gone
		for _, e := range known.Ends {
			op.name(e)
		}
	}
	op.dropRetired()
	if err := op.scanAll(ctx); err != nil {
		return err
	}
	s.l.gone = op.gone
	s.l.gone.reflect = 0
	for id, sc := range op.scans {
		s.l.segs[id] = &segment{id: id, size: sc.size, synced: sc.size}
	}
	s.judge()
	s.assign()
	return nil
}

// Leave marks an undamaged segment for retirement, since some of its content is useless. An unknown
// segment is ignored.
func (s *Salvage) Leave(id uint32) {
	if s.bad[id] != nil || s.l.segs[id] == nil {
		return
	}
	s.good = slices.DeleteFunc(s.good, func(e extent) bool { return e.segment == id })
	s.bad[id] = s.op.scans[id]
}

// Close releases the files.
func (s *Salvage) Close() error { return s.l.Close() }

// Log returns a log of which only Read is usable before Begin: it reads any place in any file.
func (s *Salvage) Log() *Log { return s.l }

// Damage returns the damage, by segment and offset. The caller owns the slice.
func (s *Salvage) Damage() []Damage { return slices.Clone(s.damage) }

// Last returns the greatest number of a batch that exists or existed.
func (s *Salvage) Last() uint64 {
	if all := s.op.numbers; len(all) > 0 {
		return max(s.known, all[len(all)-1])
	}
	return s.known
}

// judge separates damage from torn tails, and damaged segments from others.
func (s *Salvage) judge() {
	for _, id := range s.op.ids() {
		r, named, end := s.op.scans[id], s.op.named[id], uint64(0)
		if n := len(r.batches); n > 0 {
			end = r.batches[n-1].to
		}
		end = max(end, r.end)
		if n := len(r.invalid); n > 0 && r.invalid[n-1].end == r.size && named <= r.invalid[n-1].start {
			r.invalid = r.invalid[:n-1] // torn, or never named: no batch that End writes may name it
			if g := s.l.segs[id]; end >= headerBytes {
				g.synced, g.size = end, end
			} else {
				delete(s.l.segs, id)
			}
		}
		if end := max(r.size, end); named > end {
			if n := len(r.invalid); n > 0 && r.invalid[n-1].end == r.size {
				r.invalid[n-1].end = named
			} else {
				r.invalid = append(r.invalid, region{start: r.size, end: named, prev: r.number, got: fmt.Sprintf("the end of the file, where there were %d bytes", named)})
			}
		}
		if len(r.invalid) == 0 {
			s.good = append(s.good, r.batches...)
		} else {
			s.bad[id] = r
		}
	}
	for id, end := range s.op.named {
		if _, ok := s.op.sizes[id]; !ok && end > 0 && !s.l.gone.retired.has(id) {
			s.bad[id] = &scanned{id: id, invalid: []region{{end: end, got: "no file"}}}
		}
	}
}

// assign gives each damaged batch a unique number between those around it: its own, if that can be
// found.
func (s *Salvage) assign() {
	for _, r := range s.bad {
		for i := range r.invalid {
			if n := r.invalid[i].number; n != 0 {
				s.op.numbers = append(s.op.numbers, n)
			}
		}
	}
	slices.Sort(s.op.numbers)
	for _, id := range s.badIDs() {
		r := s.bad[id]
		for i := range r.invalid {
			g := &r.invalid[i]
			if g.number == 0 && r.size > 0 {
				g.number = s.take(g.prev, g.next)
			}
			s.damage = append(s.damage, Damage{Segment: id, Start: g.start, End: g.end, Number: g.number, Got: g.got})
		}
	}
}

// take takes the smallest unused number above prev, and below next if that is not 0. It returns 0
// when there is none.
func (s *Salvage) take(prev, next uint64) uint64 {
	n := prev + 1
	i, _ := slices.BinarySearch(s.op.numbers, n)
	for ; i < len(s.op.numbers) && s.op.numbers[i] <= n; i++ {
		n = s.op.numbers[i] + 1
	}
	if next != 0 && n >= next {
		return 0
	}
	s.op.numbers = slices.Insert(s.op.numbers, i, n)
	return n
}

func (s *Salvage) badIDs() []uint32 { return slices.Sorted(maps.Keys(s.bad)) }

// Each calls fn with every batch in the order of their numbers, and with the rests of damaged ones
// in their places. The argument is valid during the call. Errors: those of fn, of ctx and of
// reading.
func (s *Salvage) Each(ctx context.Context, fn func(Part) error) error {
	var lost []Part
	extents := slices.Clone(s.good)
	for _, id := range s.badIDs() {
		r := s.bad[id]
		extents = append(extents, r.batches...)
		for i := range r.invalid {
			g := &r.invalid[i]
			if g.number == 0 {
				continue
			}
			lost = append(lost, Part{Damaged: true, Leaves: true, Info: BatchInfo{Number: g.number, Segment: id, Start: g.start, End: max(g.end, g.start+minBatchBytes)}})
		}
	}
	slices.SortFunc(lost, func(a, b Part) int { return cmp.Compare(a.Info.Number, b.Info.Number) })
	emit := func(before uint64) (err error) {
		for len(lost) > 0 && lost[0].Info.Number < before {
			p := lost[0]
			lost = lost[1:]
			if p.Records, err = s.carve(&p); err != nil {
				return err
			}
			if err := fn(p); err != nil {
				return err
			}
		}
		return nil
	}
	err := eachBatch(ctx, s.l.files, s.op.o.Page, extents, func(b *batch) error {
		if err := emit(b.info.Number); err != nil {
			return err
		}
		return fn(Part{Info: b.info, Records: b.recs, Leaves: s.bad[b.info.Segment] != nil})
	})
	if err != nil {
		return err
	}
	return emit(math.MaxUint64)
}

// carve returns the records that can be separated in a damaged batch.
func (s *Salvage) carve(p *Part) (recs []Record, err error) {
	r := s.bad[p.Info.Segment]
	start, end := p.Info.Start+frameBytes, min(p.Info.End, r.size)
	for i := range r.invalid {
		if g := &r.invalid[i]; g.start == p.Info.Start && g.framed {
			end = min(end, start+uint64(g.f.recordsBytes))
		}
	}
	if start >= end {
		return nil, nil
	}
	b, err := readSegment(s.l.files, nil, r.id, start, int(min(end-start, MaxBatchBytes)))
	if err != nil {
		return nil, err
	}
	recs, _ = parseRecords(nil, b, math.MaxInt, r.id, start) // up to the first that cannot be separated
	return recs, nil
}

// Begin saves the damaged bytes, as for torn tails, and makes Log appendable. Appends follow all
// batches that exist or existed, in segments of their own; until End the damaged segments are part
// of the log.
func (s *Salvage) Begin() error {
	for _, d := range s.damage {
		if err := s.setAside(d); err != nil {
			return fmt.Errorf("set damaged bytes of segment %s aside: %w", FileName(d.Segment), err)
		}
	}
	s.l.numbers = numbers{last: s.Last(), complete: s.Last()}
	s.l.nextSeg = s.op.nextID()
	s.l.main = &Stream{l: s.l}
	return nil
}

// End retires the damaged segments, so that the log is intact, and removes their files. An older
// index is then unusable. A crash before the retirement leaves the damage; a crash after it leaves
// files that the next Open removes.
func (s *Salvage) End() error {
	r, bad := s.l.gone, make([]End, 0, len(s.bad))
	for _, id := range s.badIDs() {
		r = r.with(retirement{retired: ids{{id, id}}})
		bad = append(bad, End{Segment: id})
	}
	r.reflect = s.l.Complete()
	if _, err := s.l.retire(bad, r); err != nil {
		return err
	}
	for _, e := range s.op.left {
		if !r.retired.has(e.Segment) || e.Offset == 0 {
			s.l.dispose(e)
		}
	}
	return nil
}

// setAside saves the bytes of a damaged part.
func (s *Salvage) setAside(d Damage) (err error) {
	size := s.bad[d.Segment].size
	if d.Start >= size {
		return nil
	}
	f, err := s.op.o.FS.OpenRead(s.l.path(d.Segment))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = saveBytes(s.op.o.FS, s.op.o.Dir, f, &Torn{Segment: d.Segment, Offset: d.Start, Bytes: min(d.End, size) - d.Start})
	return err
}
