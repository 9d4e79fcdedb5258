package segment

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"

	"github.com/ledgerd/ledger/internal/base"
)

// Batch collects records that become durable together. It keeps one buffer with space for the frame
// before the records, so that they are copied once and written with one call. A Batch has one user
// at a time.
type Batch struct {
	buf    []byte // frame, records; during an append also ends and checksum
	places []Place
}

// NewBatch returns an empty batch.
func NewBatch() *Batch { return &Batch{} }

// Add appends a record whose payload is the concatenation of parts, and returns its index. The
// parts are copied. A batch that grows beyond MaxBatchBytes or MaxBatchRecords is refused by
// Append.
func (b *Batch) Add(kind byte, parts ...[]byte) int {
	if len(b.buf) == 0 {
		b.buf = append(b.buf, make([]byte, frameBytes)...)
	}
	length := 0
	for _, p := range parts {
		length += len(p)
	}
	if room := 1 + binary.MaxVarintLen64 + length; cap(b.buf)-len(b.buf) < room {
		b.buf = slices.Grow(b.buf, max(room, len(b.buf))) // double the buffer: append grows by a quarter
	}
	b.buf = append(b.buf, kind)
	b.buf = binary.AppendUvarint(b.buf, uint64(length))
	b.places = append(b.places, Place{Offset: uint64(len(b.buf)), Length: uint32(length)})
	for _, p := range parts {
		b.buf = append(b.buf, p...)
	}
	return len(b.places) - 1
}

// Grow makes room for n more bytes of records, so that Add need not copy the existing ones.
func (b *Batch) Grow(n int) {
	if len(b.buf) == 0 {
		n += frameBytes
	}
	b.buf = slices.Grow(b.buf, n)
}

// Len returns the count of records.
func (b *Batch) Len() int { return len(b.places) }

// Bytes returns the length of the records so far, their kinds and lengths included, which
// MaxBatchBytes bounds.
func (b *Batch) Bytes() int { return max(len(b.buf)-frameBytes, 0) }

// Reset empties the batch and keeps its buffer. The Places of its records are no longer valid.
func (b *Batch) Reset() {
	b.buf = b.buf[:0]
	b.places = b.places[:0]
}

// check returns an error that matches base.ErrTooLarge when the batch is beyond the bounds.
func (b *Batch) check() error {
	if b.Bytes() > MaxBatchBytes || b.Len() > MaxBatchRecords {
		return fmt.Errorf("append batch of %d records and %d bytes, limits %d and %d: %w",
			b.Len(), b.Bytes(), MaxBatchRecords, MaxBatchBytes, base.ErrTooLarge)
	}
	return nil
}

// encode completes the batch for its place and returns all its bytes, which are valid until the
// next call. The batch itself is unchanged, so that it can be appended again after a failure.
func (b *Batch) encode(page [16]byte, info *BatchInfo, ends []End) []byte {
	ends = allEnds(ends, info.retirement)
	if len(b.buf) == 0 {
		b.buf = append(b.buf, make([]byte, frameBytes)...)
	}
	s := seed(page, info.Segment, info.Start)
	f := frame{number: info.Number, recordsBytes: uint32(b.Bytes()), records: uint32(b.Len()), ends: uint32(len(ends))}
	f.put(b.buf, s)
	out := appendEnds(b.buf, ends) // b.buf itself stays: a journal reads its records meanwhile
	info.CRC = crc32.Update(s, castagnoli, out)
	out = binary.BigEndian.AppendUint32(out, info.CRC)
	info.End = info.Start + uint64(len(out))
	return out
}

// placesAt returns the places of the records of a batch that lies at info. b.places are relative to
// the batch.
func (b *Batch) placesAt(info BatchInfo) []Place {
	out := make([]Place, len(b.places))
	for i, p := range b.places {
		out[i] = Place{Segment: info.Segment, Offset: info.Start + p.Offset, Length: p.Length}
	}
	return out
}

// Payload returns the payload of a record. It is valid until the next Add or Reset and must not be
// changed. It may be called while the batch is being appended.
func (b *Batch) Payload(i int) []byte {
	p := b.places[i]
	end := p.Offset + uint64(p.Length)
	return b.buf[p.Offset:end:end]
}
