package segment

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/ledgerd/ledger/internal/base"
)

// ErrIndexMismatch reports a Position that is not of this log. The index that holds it must be
// rebuilt.
var ErrIndexMismatch = errors.New("index does not belong to this log")

// Position is the part of a log that an index reflects: every batch with a number up to Number. The
// zero Position is the beginning of any log.
type Position struct {
	// Number, CRC, Segment and Start identify the last batch, as in BatchInfo; all are 0 when there
	// is none. It ends at the end of its segment in Ends.
	Number  uint64
	CRC     uint32
	Segment uint32
	Start   uint64
	// Ends are the ends of all segments, ascending: batches before them have numbers up to Number,
	// later ones have greater numbers.
	Ends []End
	// gone is what those batches have retired. Retired segments have no ends, and cut segments end
	// at the cut.
	gone retirement
}

const (
	positionVersion = 1
	positionBytes   = 1 + 8 + 4 + 4 + 8 + 4 // before the ends
)

// Add makes p reflect the batch b, whose number must be the next greater one in the log. So a
// replay can keep a position at every batch.
func (p *Position) Add(b BatchInfo) {
	p.Number, p.CRC, p.Segment, p.Start = b.Number, b.CRC, b.Segment, b.Start
	p.setEnd(End{b.Segment, b.End})
	if b.reflect != 0 {
		p.gone = retirement{retired: b.retired, cuts: b.cuts}
		p.Ends = slices.DeleteFunc(p.Ends, func(e End) bool { return b.retired.has(e.Segment) })
		for i := range p.Ends {
			p.Ends[i].Offset = b.end(p.Ends[i].Segment, p.Ends[i].Offset)
		}
	}
}

func (p *Position) setEnd(e End) {
	i, ok := p.search(e.Segment)
	if ok {
		p.Ends[i] = e
		return
	}
	p.Ends = slices.Insert(p.Ends, i, e)
}

func (p *Position) search(segment uint32) (int, bool) {
	return slices.BinarySearchFunc(p.Ends, segment, func(e End, s uint32) int { return cmp.Compare(e.Segment, s) })
}

// end returns the end of a segment, 0 when p has none.
func (p *Position) end(segment uint32) uint64 {
	if i, ok := p.search(segment); ok {
		return p.Ends[i].Offset
	}
	return 0
}

// Clone returns a copy that shares nothing with p.
func (p Position) Clone() Position {
	p.Ends = slices.Clone(p.Ends)
	return p
}

// Encode returns the canonical bytes of p.
//
//	 0    1  version, 1
//	 1    8  number
//	 9    4  CRC of the last batch
//	13    4  its segment
//	17    8  its offset there
//	25    4  count of ends, e
//	29  12e  ends, and what was retired, as in a batch
//	      4  CRC-32C of all before
func (p Position) Encode() []byte {
	ends := allEnds(p.Ends, p.gone)
	b := make([]byte, 0, positionBytes+endBytes*len(ends)+crcBytes)
	b = append(b, positionVersion)
	b = binary.BigEndian.AppendUint64(b, p.Number)
	b = binary.BigEndian.AppendUint32(b, p.CRC)
	b = binary.BigEndian.AppendUint32(b, p.Segment)
	b = binary.BigEndian.AppendUint64(b, p.Start)
	b = binary.BigEndian.AppendUint32(b, uint32(len(ends)))
	b = appendEnds(b, ends)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// DecodePosition reads what Encode wrote. It does not retain b. Errors: *base.CorruptError, and
// *base.FormatError for an unknown newer version.
func DecodePosition(b []byte) (Position, error) {
	bad := func(got string) (Position, error) {
		return Position{}, &base.CorruptError{Where: "log position", Got: got}
	}
	if len(b) < positionBytes+crcBytes {
		return bad(fmt.Sprintf("%d bytes", len(b)))
	}
	body := b[:len(b)-crcBytes]
	if crc32.Checksum(body, castagnoli) != binary.BigEndian.Uint32(b[len(body):]) {
		return bad("a wrong checksum")
	}
	if v := body[0]; v > positionVersion {
		return Position{}, &base.FormatError{What: "log position", Found: uint64(v), Supported: positionVersion}
	} else if v == 0 {
		return bad("version 0")
	}
	p := Position{
		Number:  binary.BigEndian.Uint64(body[1:]),
		CRC:     binary.BigEndian.Uint32(body[9:]),
		Segment: binary.BigEndian.Uint32(body[13:]),
		Start:   binary.BigEndian.Uint64(body[17:]),
	}
	count := uint64(binary.BigEndian.Uint32(body[25:]))
	if count*endBytes != uint64(len(body)-positionBytes) {
		return bad("a wrong count of ends")
	}
	if count > 0 {
		p.Ends = make([]End, 0, count)
	}
	var ok bool
	var r retirement
	if p.Ends, r, ok = parseEnds(p.Ends, body[positionBytes:]); !ok || r.reflect != 0 {
		return bad("a wrong list of ends")
	}
	p.gone = r
	for id, offset := range r.cuts {
		p.setEnd(End{id, offset})
	}
	if !p.valid() {
		return bad("a last batch that cannot be")
	}
	return p, nil
}

// valid reports whether the last batch agrees with the ends.
func (p *Position) valid() bool {
	if p.Number == 0 {
		return p.CRC == 0 && p.Segment == 0 && p.Start == 0
	}
	end := p.end(p.Segment)
	return p.Number <= maxBatchNumber && p.Start >= headerBytes && p.Start <= maxOffset && end >= p.Start+minBatchBytes
}
