package segment

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"strconv"

	"github.com/ledgerd/ledger/internal/base"
)

// Bounds of the format. A reader refuses larger values before it allocates.
const (
	// MaxBatchBytes is the greatest length of the records of one batch, their kinds and lengths
	// included.
	MaxBatchBytes = 64 << 20
	// MaxBatchRecords is the greatest count of records in one batch.
	MaxBatchRecords = 1 << 20
	// maxBatchEnds is the greatest count of ends in one batch.
	maxBatchEnds = 1 << 16
	// maxBatchNumber is the greatest number of a batch; it leaves numbers for later batches.
	maxBatchNumber = 1 << 62
)

const (
	headerBytes   = 32 // of a segment; the same in every version
	frameBytes    = 28 // of a batch before its records
	endBytes      = 12
	crcBytes      = 4
	minBatchBytes = frameBytes + crcBytes

	segmentMagic = "LSEG"
	batchMagic   = "LBT\x01"
	fileSuffix   = ".seg"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// End is the offset in bytes up to which a segment is synced.
type End struct {
	Segment uint32
	Offset  uint64
}

// Place locates the payload of a record: its segment, its offset in the file and its length, in
// bytes.
type Place struct {
	Segment uint32
	Length  uint32
	Offset  uint64
}

// Record is one record of a batch. The caller defines the meaning of Kind.
type Record struct {
	Kind    byte
	Payload []byte
	Place   Place
}

// BatchInfo locates a batch: in Segment, from offset Start to before offset End. CRC is its last
// four bytes.
type BatchInfo struct {
	Number     uint64
	Segment    uint32
	Start, End uint64
	CRC        uint32
	retirement
}

// FileName returns the name of the file of a segment.
func FileName(segment uint32) string { return fmt.Sprintf("%08x%s", segment, fileSuffix) }

// noSegment is an id that no segment has, beside 0.
const noSegment = math.MaxUint32

// takeID returns the id of the next segment. When no id is left, for example because of a stray
// file name, the error matches base.ErrTooLarge: a segment without an id of its own could not be
// found again.
func takeID(next *uint32) (uint32, error) {
	id := *next
	if id == 0 || id == noSegment {
		return 0, fmt.Errorf("segment behind %s: no id is left: %w", FileName(id-1), base.ErrTooLarge)
	}
	*next++
	return id, nil
}

// parseFileName is the inverse of FileName.
func parseFileName(name string) (uint32, bool) {
	if len(name) != 8+len(fileSuffix) || name[8:] != fileSuffix {
		return 0, false
	}
	id, err := strconv.ParseUint(name[:8], 16, 32)
	return uint32(id), err == nil && id > 0 && id < noSegment && FileName(uint32(id)) == name
}

// corrupt returns the error for invalid bytes at an offset of a segment.
func corrupt(segment uint32, offset uint64, got string) error {
	return &base.CorruptError{Where: fmt.Sprintf("segment %s at offset %d", FileName(segment), offset), Got: got}
}

// seed is the checksum of the place of a batch, with which the batch's two checksums start.
func seed(page [16]byte, segment uint32, start uint64) uint32 {
	var b [28]byte
	copy(b[:], page[:])
	binary.BigEndian.PutUint32(b[16:], segment)
	binary.BigEndian.PutUint64(b[20:], start)
	return crc32.Checksum(b[:], castagnoli)
}

// frame is the fixed part of a batch before its records.
type frame struct {
	number       uint64
	recordsBytes uint32
	records      uint32
	ends         uint32
}

// size returns the length of the whole batch in bytes.
func (f frame) size() uint64 {
	return frameBytes + uint64(f.recordsBytes) + endBytes*uint64(f.ends) + crcBytes
}

// put writes f to the first frameBytes of b.
func (f frame) put(b []byte, seed uint32) {
	copy(b, batchMagic)
	binary.BigEndian.PutUint64(b[4:], f.number)
	binary.BigEndian.PutUint32(b[12:], f.recordsBytes)
	binary.BigEndian.PutUint32(b[16:], f.records)
	binary.BigEndian.PutUint32(b[20:], f.ends)
	binary.BigEndian.PutUint32(b[24:], crc32.Update(seed, castagnoli, b[:24]))
}

// parseFrame reads a frame from the first frameBytes of b. It reports false when there is no frame
// for this seed.
func parseFrame(b []byte, seed uint32) (frame, bool) {
	if len(b) < frameBytes || string(b[:4]) != batchMagic ||
		crc32.Update(seed, castagnoli, b[:24]) != binary.BigEndian.Uint32(b[24:]) {
		return frame{}, false
	}
	f := frame{
		number:       binary.BigEndian.Uint64(b[4:]),
		recordsBytes: binary.BigEndian.Uint32(b[12:]),
		records:      binary.BigEndian.Uint32(b[16:]),
		ends:         binary.BigEndian.Uint32(b[20:]),
	}
	ok := f.number > 0 && f.number <= maxBatchNumber && f.recordsBytes <= MaxBatchBytes && f.records <= MaxBatchRecords &&
		f.records <= f.recordsBytes/2 && f.ends <= maxBatchEnds
	return f, ok
}

// retiredBit in the offset of an end marks a range of retired segments: the end's segment is the
// first, and the other bits are the last.
const retiredBit = 1 << 63

// cutBit in the offset of an end marks a segment that is valid only up to the other bits.
const cutBit = 1 << 62

// allEnds returns ends and the entries of a retirement, in their common order.
func allEnds(ends []End, r retirement) []End {
	if r.none() {
		return ends
	}
	all := slices.DeleteFunc(slices.Clone(ends), func(e End) bool { return r.retired.has(e.Segment) || r.cuts[e.Segment] != 0 })
	for _, g := range r.retired {
		all = append(all, End{g.first, retiredBit | uint64(g.last)})
	}
	for id, offset := range r.cuts {
		all = append(all, End{id, cutBit | offset})
	}
	slices.SortFunc(all, func(a, b End) int { return cmp.Compare(a.Segment, b.Segment) })
	if r.reflect != 0 {
		all = append(all, End{noSegment, r.reflect})
	}
	return all
}

func appendEnds(b []byte, ends []End) []byte {
	for _, e := range ends {
		b = binary.BigEndian.AppendUint32(b, e.Segment)
		b = binary.BigEndian.AppendUint64(b, e.Offset)
	}
	return b
}

// parseEnds reads ends that fill b, appends them to ends, and returns the retirement among them. It
// reports false when they do not ascend strictly, or one is invalid.
func parseEnds(ends []End, b []byte) (_ []End, r retirement, ok bool) {
	if len(b)%endBytes != 0 {
		return ends, r, false
	}
	last := uint32(0)
	for ; len(b) > 0; b = b[endBytes:] {
		e := End{binary.BigEndian.Uint32(b), binary.BigEndian.Uint64(b[4:])}
		to := e.Offset &^ retiredBit
		switch {
		case e.Segment <= last || r.reflect != 0:
			return ends, r, false
		case e.Segment == noSegment:
			if r.reflect = e.Offset; r.none() || e.Offset == 0 || e.Offset > maxBatchNumber {
				return ends, r, false
			}
		case e.Offset != to:
			n := len(r.retired)
			if to < uint64(e.Segment) || to >= noSegment || n > 0 && e.Segment == r.retired[n-1].last+1 {
				return ends, r, false
			}
			r.retired = append(r.retired, idRange{e.Segment, uint32(to)})
			last = uint32(to)
			continue
		case to&^cutBit < headerBytes || to == cutBit|headerBytes:
			return ends, r, false
		case to != to&^cutBit:
			r.cuts = r.cuts.with(cuts{e.Segment: to &^ cutBit})
		default:
			ends = append(ends, e)
		}
		last = e.Segment
	}
	return ends, r, true
}

// maxOffset bounds offsets so that sums with lengths fit in an int64. It is cutBit, too.
const maxOffset = 1 << 62

// parseRecords reads count records that fill b, which begins at offset of the segment, and appends
// them to recs.
func parseRecords(recs []Record, b []byte, count int, segment uint32, offset uint64) ([]Record, error) {
	for pos := 0; pos < len(b); {
		length, n := binary.Uvarint(b[pos+1:])
		begin := pos + 1 + n
		switch {
		case n <= 0 || n > 1 && b[begin-1] == 0:
			return recs, corrupt(segment, offset+uint64(pos), "a record without a valid length")
		case length > uint64(len(b)-begin):
			return recs, corrupt(segment, offset+uint64(pos), "a record longer than its batch")
		case count == 0:
			return recs, corrupt(segment, offset+uint64(pos), "more records than the batch counts")
		}
		end := begin + int(length)
		recs = append(recs, Record{
			Kind:    b[pos],
			Payload: b[begin:end:end],
			Place:   Place{Segment: segment, Offset: offset + uint64(begin), Length: uint32(length)},
		})
		count--
		pos = end
	}
	if count > 0 {
		return recs, corrupt(segment, offset+uint64(len(b)), fmt.Sprintf("%d records fewer than the batch counts", count))
	}
	return recs, nil
}

// batch is a decoded batch; its slices are reused by the next decode.
type batch struct {
	info  BatchInfo
	recs  []Record
	ends  []End
	whole bool // its checksum is right
}

// decode reads the batch that fills b and begins at start of the segment. Payloads point into b.
func (d *batch) decode(b []byte, page [16]byte, segment uint32, start uint64) error {
	d.whole = false
	s := seed(page, segment, start)
	f, ok := parseFrame(b, s)
	if !ok || f.size() != uint64(len(b)) {
		return corrupt(segment, start, "no frame of a batch")
	}
	body := b[:len(b)-crcBytes]
	d.info = BatchInfo{
		Number: f.number, Segment: segment, Start: start, End: start + f.size(),
		CRC: binary.BigEndian.Uint32(b[len(body):]),
	}
	if crc32.Update(s, castagnoli, body) != d.info.CRC {
		return corrupt(segment, start, fmt.Sprintf("a wrong checksum in batch %d", f.number))
	}
	d.whole = true
	endsAt := frameBytes + int(f.recordsBytes)
	if d.ends, d.info.retirement, ok = parseEnds(d.ends[:0], body[endsAt:]); !ok {
		return corrupt(segment, start+uint64(endsAt), fmt.Sprintf("a wrong list of ends in batch %d", f.number))
	}
	var err error
	d.recs, err = parseRecords(d.recs[:0], body[frameBytes:endsAt], int(f.records), segment, start+frameBytes)
	return err
}
