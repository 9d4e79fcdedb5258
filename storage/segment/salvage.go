package segment

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/ledgerd/ledger/internal/base"
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
	l       *Log
	o       Options
	damage  []Damage
	bad     map[uint32]*remains // damaged segments
	good    []extent
	named   map[uint32]uint64
	all     []uint64 // numbers of intact batches, ascending
	known   uint64   // number of the given position
	nextSeg uint32
	left    []End // retired before, with a remaining file
	verify  func(Record) bool
}

// remains is the rest of a segment.
type remains struct {
	id      uint32
	size    uint64
	extents []extent
	regions []region
	end     uint64 // of the last intact batch, or of the header
	last    uint64 // number of the last frame
}

// region is a part of a segment that is no intact batch.
type region struct {
	start, end uint64
	f          frame // of the batch, intact, if framed
	framed     bool
	prev, next uint64 // numbers of the intact batches around it, 0 for none
	number     uint64
	got        string
}

// OpenSalvage reads all segments in o.Dir and finds their damage. known, which may be nil, is a
// position that an index has or had: what it names existed. verify, which may be nil, reports
// whether a record in an intact batch has the content that it claims; otherwise the batch is
// damaged. Nothing is written, even without o.ReadOnly. A torn tail is no damage.
//
// Errors: *base.FormatError for a segment of a newer format; those of ctx and of the file system.
func OpenSalvage(ctx context.Context, o Options, known *Position, verify func(Record) bool) (*Salvage, error) {
	o = o.withDefaults()
	s := &Salvage{o: o, bad: map[uint32]*remains{}, named: map[uint32]uint64{}, nextSeg: 1, verify: verify}
	s.l = &Log{o: o, files: newHandles(o.FS, o.Dir, o.Page), segs: map[uint32]*segment{}, streams: map[*Stream]vfs.File{}}
	s.l.files.anyHeader = true
	if err := s.open(ctx, known); err != nil {
		return nil, errors.Join(fmt.Errorf("salvage log: %w", err), s.Close())
	}
	return s, nil
}

// Leave marks an undamaged segment for retirement, since some of its content is useless. An unknown
// segment is ignored.
func (s *Salvage) Leave(id uint32) {
	if s.bad[id] != nil || s.l.segs[id] == nil {
		return
	}
	r := &remains{id: id, size: s.l.segs[id].size}
	s.good = slices.DeleteFunc(s.good, func(e extent) bool {
		if e.segment == id {
			r.extents = append(r.extents, e)
		}
		return e.segment == id
	})
	s.bad[id] = r
}

// Close releases the files.
func (s *Salvage) Close() error { return s.l.Close() }

// Log returns a log of which only Read is usable before Begin: it reads any place in any file.
func (s *Salvage) Log() *Log { return s.l }

// Damage returns the damage, by segment and offset. The caller owns the slice.
func (s *Salvage) Damage() []Damage { return slices.Clone(s.damage) }

// Last returns the greatest number of a batch that exists or existed.
func (s *Salvage) Last() uint64 {
	n := s.known
	if len(s.all) > 0 {
		n = max(n, s.all[len(s.all)-1])
	}
	for _, d := range s.damage {
		n = max(n, d.Number)
	}
	return n
}

func (s *Salvage) open(ctx context.Context, known *Position) error {
	sizes, err := listSegments(s.o)
	if err != nil {
		return err
	}
	all := make([]*remains, 0, len(sizes))
	if known != nil {
		s.known, s.l.gone = known.Number, known.gone
		for _, e := range known.Ends {
			s.name(e)
		}
	}
	for id, size := range sizes {
		s.nextSeg = max(s.nextSeg, id+1)
		s.l.segs[id] = &segment{id: id, size: size, synced: size}
		r := &remains{id: id, size: size}
		if err := s.scan(ctx, r); err != nil {
			return err
		}
		all = append(all, r)
	}
	s.l.gone.reflect = 0
	for _, r := range s.l.gone.retired {
		s.nextSeg = max(s.nextSeg, r.last+1)
	}
	all = slices.DeleteFunc(all, func(r *remains) bool {
		gone := s.l.gone.retired.has(r.id)
		if gone {
			s.left = append(s.left, End{Segment: r.id})
			delete(s.l.segs, r.id)
		} else if offset := s.l.gone.end(r.id, r.size); offset < r.size {
			s.left = append(s.left, End{r.id, offset})
			s.cut(r, offset)
		}
		return gone
	})
	for id := range s.named {
		if s.l.gone.retired.has(id) {
			delete(s.named, id)
		} else if offset := s.l.gone.cuts[id]; offset != 0 {
			s.named[id] = offset
		}
		s.nextSeg = max(s.nextSeg, id+1)
	}
	slices.SortFunc(all, func(a, b *remains) int { return cmp.Compare(a.id, b.id) })
	s.judge(all, sizes)
	s.assign(all)
	return nil
}

// cut removes the retired part of a segment.
func (s *Salvage) cut(r *remains, offset uint64) {
	r.size, r.end = offset, min(r.end, offset)
	s.l.segs[r.id] = &segment{id: r.id, size: offset, synced: offset}
	r.regions = slices.DeleteFunc(r.regions, func(g region) bool { return g.start >= offset })
	for i := range r.regions {
		r.regions[i].end = min(r.regions[i].end, offset)
	}
	r.extents = slices.DeleteFunc(r.extents, func(e extent) bool { return e.from >= offset })
	for i := range r.extents {
		r.extents[i].to = min(r.extents[i].to, offset)
	}
}

func (s *Salvage) name(e End) { s.named[e.Segment] = max(s.named[e.Segment], e.Offset) }

// scan finds the intact batches of a segment. A header that is damaged or different counts as
// absent.
func (s *Salvage) scan(ctx context.Context, r *remains) (err error) {
	file, err := s.o.FS.OpenRead(s.l.path(r.id))
	if err != nil {
		return fmt.Errorf("open segment: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	x := &scan{window: window{r: file, size: r.size}, page: s.o.Page, id: r.id, next: headerBytes}
	whole, err := readHeader(file, s.o.Page, r.id)
	if err != nil && !errors.Is(err, base.ErrCorrupt) {
		return err
	}
	if r.end = headerBytes; err != nil || !whole {
		r.end, r.regions = 0, []region{{got: "no header of a segment"}}
		if x.next, err = x.findFrame(ctx, 1); err != nil {
			return err
		}
		r.regions[0].end = x.next
	}
	for x.next < r.size {
		if err := ctx.Err(); err != nil {
			return err
		}
		g := region{start: x.next, prev: x.last}
		f, damage, err := x.step()
		if err != nil {
			return err
		}
		if framed := f.number > g.prev; framed {
			g.f, g.framed, g.number = f, true, f.number
			s.name(End{r.id, g.start}) // I2
			if n := len(r.regions); n > 0 && r.regions[n-1].end == g.start {
				r.regions[n-1].next = f.number
			}
			g.end = min(g.start+f.size(), r.size)
		} else if g.end, err = x.findFrame(ctx, g.start+1); err != nil {
			return err
		}
		if damage == nil {
			damage = s.verified(&x.batch)
		}
		if x.next = g.end; damage != nil {
			if g.got = "no frame of a batch"; g.framed {
				g.got = gotOf(damage)
			}
			r.regions = append(r.regions, g)
			continue
		}
		s.keep(r, &x.batch)
	}
	r.last = x.last
	return nil
}

// keep records an intact batch.
func (s *Salvage) keep(r *remains, b *batch) {
	for _, e := range b.ends {
		s.name(e)
	}
	s.all = append(s.all, b.info.Number)
	s.l.gone = s.l.gone.with(b.info.retirement)
	if n := len(r.extents); n > 0 && r.extents[n-1].to == b.info.Start {
		r.extents[n-1].to = b.info.End
	} else {
		r.extents = append(r.extents, extent{r.id, b.info.Start, b.info.End})
	}
	r.end = b.info.End
}

func gotOf(err error) string {
	if c, ok := errors.AsType[*base.CorruptError](err); ok {
		return c.Got
	}
	return err.Error()
}

// verified returns an error for a batch with a record that fails verify.
func (s *Salvage) verified(b *batch) error {
	for _, rec := range b.recs {
		if s.verify != nil && !s.verify(rec) {
			return corrupt(rec.Place.Segment, rec.Place.Offset, fmt.Sprintf("batch %d with a record that is not what it says, at offset %d", b.info.Number, rec.Place.Offset))
		}
	}
	return nil
}

// judge separates damage from torn tails, and damaged segments from others.
func (s *Salvage) judge(all []*remains, sizes map[uint32]uint64) {
	for _, r := range all {
		named := s.named[r.id]
		if n := len(r.regions); n > 0 && r.regions[n-1].end == r.size && named <= r.regions[n-1].start {
			r.regions = r.regions[:n-1] // torn, or never named: no batch that End writes may name it
			if g := s.l.segs[r.id]; r.end >= headerBytes {
				g.synced, g.size = r.end, r.end
			} else {
				delete(s.l.segs, r.id)
			}
		}
		if end := max(r.size, r.end); named > end {
			if n := len(r.regions); n > 0 && r.regions[n-1].end == r.size {
				r.regions[n-1].end = named
			} else {
				r.regions = append(r.regions, region{start: r.size, end: named, prev: r.last, got: fmt.Sprintf("the end of the file, where there were %d bytes", named)})
			}
		}
		if len(r.regions) == 0 {
			if len(r.extents) > 0 {
				s.good = append(s.good, r.extents...)
			}
			continue
		}
		s.bad[r.id] = r
	}
	for id, end := range s.named {
		if _, ok := sizes[id]; !ok && end > 0 {
			s.bad[id] = &remains{id: id, regions: []region{{end: end, got: "no file"}}}
		}
	}
	slices.Sort(s.all)
}

// assign gives each damaged batch a unique number between those around it: its own, if that can be
// found.
func (s *Salvage) assign(all []*remains) {
	used := map[uint64]bool{}
	for _, id := range s.badIDs() {
		r := s.bad[id]
		for i := range r.regions {
			if n := r.regions[i].number; n != 0 {
				used[n] = true
			}
		}
	}
	for _, id := range s.badIDs() {
		r := s.bad[id]
		for i := range r.regions {
			g := &r.regions[i]
			if g.number == 0 && r.size > 0 {
				g.number = s.free(g.prev, g.next, used)
				used[g.number] = true
			}
			s.damage = append(s.damage, Damage{Segment: id, Start: g.start, End: g.end, Number: g.number, Got: g.got})
		}
	}
}

// free returns the smallest unused number above prev, and below next if that is not 0; 0 when there
// is none.
func (s *Salvage) free(prev, next uint64, used map[uint64]bool) uint64 {
	i, _ := slices.BinarySearch(s.all, prev+1)
	for n := prev + 1; next == 0 || n < next; n++ {
		for i < len(s.all) && s.all[i] < n {
			i++
		}
		if (i == len(s.all) || s.all[i] != n) && !used[n] {
			return n
		}
	}
	return 0
}

func (s *Salvage) badIDs() []uint32 {
	out := make([]uint32, 0, len(s.bad))
	for id := range s.bad {
		out = append(out, id)
	}
	slices.Sort(out)
	return out
}

// Each calls fn with every batch in the order of their numbers, and with the rests of damaged ones
// in their places. The argument is valid during the call. Errors: those of fn, of ctx and of
// reading.
func (s *Salvage) Each(ctx context.Context, fn func(Part) error) error {
	var lost []Part
	extents := slices.Clone(s.good)
	for _, id := range s.badIDs() {
		r := s.bad[id]
		extents = append(extents, r.extents...)
		for i := range r.regions {
			g := &r.regions[i]
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
	err := eachBatch(ctx, s.l.files, s.o.Page, extents, func(b *batch) error {
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
	for i := range r.regions {
		if g := &r.regions[i]; g.start == p.Info.Start && g.framed {
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
	for pos := 0; pos+1 < len(b); {
		length, n := binary.Uvarint(b[pos+1:])
		begin := pos + 1 + n
		if n <= 0 || n > 1 && b[begin-1] == 0 || length > uint64(len(b)-begin) {
			break
		}
		stop := begin + int(length)
		recs = append(recs, Record{Kind: b[pos], Payload: b[begin:stop:stop], Place: Place{Segment: r.id, Offset: start + uint64(begin), Length: uint32(length)}})
		pos = stop
	}
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
	s.l.nextSeg = s.nextSeg
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
	for _, e := range s.left {
		if !r.retired.has(e.Segment) || e.Offset == 0 {
			s.l.remove(e)
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
	f, err := s.o.FS.OpenRead(s.l.path(d.Segment))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_, err = saveBytes(s.o.FS, s.o.Dir, f, &Torn{Segment: d.Segment, Offset: d.Start, Bytes: min(d.End, size) - d.Start})
	return err
}
