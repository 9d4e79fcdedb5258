package format

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/limits"
)

// MaxRangeEntries is the greatest number of entries in a range.
const MaxRangeEntries = 32 << 10

// RangeSizes returns how many entries ranges have, ascending.
func RangeSizes() []uint64 { return []uint64{32, 1024, MaxRangeEntries} }

// RangeOf returns the range of size entries that holds entry number, which is at least 1:
// [k*size+1, (k+1)*size].
func RangeOf(number, size uint64) (from, to uint64) {
	from = (number-1)/size*size + 1
	return from, from + size - 1
}

// RangeEntry is one entry in a range, as it is stored alone.
type RangeEntry struct {
	Stored []byte
	// Created is when the entry was created, by the bucket's clock; zero when that is not known.
	Created time.Time
}

// RangePlace says where an entry stands in a range.
type RangePlace struct {
	Offset  int64
	Bytes   int
	Created time.Time
}

// The layout of a range. It is not sealed: it has nothing that the bucket's owner does not see of
// single entries.
//
//	offset   bytes  content
//	0        4      "LRNG"
//	4        1      format version: 1
//	5        3      zeros
//	8        8      number of the first entry
//	16       4      number n of entries, 1 to MaxRangeEntries
//	20       12n    for each: length (4), when it was created in nanoseconds since 1970 (8; 0: not
//	                known)
//	20+12n   4      CRC-32C of everything before
//	24+12n          the entries, byte for byte as they are stored alone, one after the other to
//	                the end
const (
	rangeMagic     = "LRNG"
	rangeHead      = 20
	rangeEach      = 12
	rangeSum       = 4
	rangeWhere     = "range of log entries"
	leastRangeFile = rangeHead + rangeSum
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// RangeTableBytes returns the length of what stands before the entries in a range of n entries.
func RangeTableBytes(n int) int { return rangeHead + rangeEach*n + rangeSum }

// EncodeRange returns the range of the entries from on, byte for byte behind a table of their
// lengths and creation times. Errors: base.ErrTooLarge beyond MaxRangeBytes; base.ErrInvalid.
func EncodeRange(from uint64, entries []RangeEntry) ([]byte, error) {
	if from == 0 || from > MaxNumber || len(entries) == 0 || len(entries) > MaxRangeEntries {
		return nil, invalid(rangeWhere, fmt.Errorf("%d entries from %d on", len(entries), from))
	}
	size := RangeTableBytes(len(entries))
	for i := range entries {
		if n := len(entries[i].Stored); n == 0 || n > MaxEntryBytes {
			return nil, invalid(rangeWhere, fmt.Errorf("entry of %d bytes", n))
		}
		size += len(entries[i].Stored)
		if size > MaxRangeBytes {
			return nil, fmt.Errorf("encode range of log entries of more than %d bytes: %w", MaxRangeBytes, base.ErrTooLarge)
		}
	}
	b := make([]byte, 0, size)
	b = append(b, rangeMagic...)
	b = append(b, formatVersion, 0, 0, 0)
	b = binary.BigEndian.AppendUint64(b, from)
	b = binary.BigEndian.AppendUint32(b, uint32(len(entries)))
	for i := range entries {
		created, err := nanoseconds(entries[i].Created)
		if err != nil {
			return nil, invalid(rangeWhere, err)
		}
		b = binary.BigEndian.AppendUint32(b, uint32(len(entries[i].Stored)))
		b = binary.BigEndian.AppendUint64(b, created)
	}
	b = binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
	for i := range entries {
		b = append(b, entries[i].Stored...)
	}
	return b, nil
}

// nanoseconds returns t in nanoseconds since 1970; 0 for the zero time.
func nanoseconds(t time.Time) (uint64, error) {
	if t.IsZero() {
		return 0, nil
	}
	if t.Unix() < 0 || t.Unix() > limits.MaxTimestamp/int64(time.Second)-1 || t.UnixNano() == 0 {
		return 0, fmt.Errorf("creation time %s", t)
	}
	return uint64(t.UnixNano()), nil
}

// ParseRange reads a range of to-from+1 entries, which borrow b. It proves nothing of the entries.
// Errors: *base.CorruptError, *base.FormatError.
func ParseRange(from, to uint64, b []byte) ([]RangeEntry, error) {
	places, err := ParseRangeTable(from, to, b)
	if err != nil {
		return nil, err
	}
	last := places[len(places)-1]
	if end := last.Offset + int64(last.Bytes); end != int64(len(b)) {
		return nil, corrupt(rangeWhere, fmt.Errorf("%d bytes, and its entries end at %d", len(b), end))
	}
	entries := make([]RangeEntry, len(places))
	for i, p := range places {
		end := p.Offset + int64(p.Bytes)
		entries[i] = RangeEntry{Stored: b[p.Offset:end:end], Created: p.Created}
	}
	return entries, nil
}

// ParseRangeTable returns where the entries stand in a range of to-from+1 entries that begins with
// b: at least RangeTableBytes of it, so that who looks for one entry need not have the others.
// Errors: as ParseRange.
func ParseRangeTable(from, to uint64, b []byte) ([]RangePlace, error) {
	if from == 0 || to < from || to > MaxNumber || to-from >= MaxRangeEntries {
		return nil, corrupt(rangeWhere, fmt.Errorf("it has entries %d to %d", from, to))
	}
	n := int(to - from + 1)
	table := RangeTableBytes(n)
	if len(b) < leastRangeFile || string(b[:len(rangeMagic)]) != rangeMagic {
		return nil, corrupt(rangeWhere, fmt.Errorf("%d bytes that do not begin with %s", len(b), rangeMagic))
	}
	if err := checkVersion(rangeWhere, b[4]); err != nil {
		return nil, err
	}
	if len(b) < table {
		return nil, corrupt(rangeWhere, fmt.Errorf("%d bytes, and its table has %d", len(b), table))
	}
	if sum := crc32.Checksum(b[:table-rangeSum], castagnoli); sum != binary.BigEndian.Uint32(b[table-rangeSum:]) {
		return nil, corrupt(rangeWhere, fmt.Errorf("checksum of its table is not %08x", sum))
	}
	first, count := binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint32(b[16:])
	if b[5] != 0 || b[6] != 0 || b[7] != 0 || first != from || int64(count) != int64(n) {
		return nil, corrupt(rangeWhere, fmt.Errorf("it says %d entries from %d on, want %d from %d on", count, first, n, from))
	}
	places := make([]RangePlace, n)
	at := int64(table)
	for i := range places {
		e := b[rangeHead+rangeEach*i:]
		length, created := binary.BigEndian.Uint32(e), binary.BigEndian.Uint64(e[4:])
		if length == 0 || length > MaxEntryBytes || at+int64(length) > MaxRangeBytes {
			return nil, corrupt(rangeWhere, fmt.Errorf("entry %d has %d bytes", from+uint64(i), length))
		}
		if created > limits.MaxTimestamp {
			return nil, corrupt(rangeWhere, fmt.Errorf("entry %d was created at %d", from+uint64(i), created))
		}
		places[i] = RangePlace{Offset: at, Bytes: int(length)}
		if created > 0 {
			places[i].Created = time.Unix(0, int64(created)).UTC()
		}
		at += int64(length)
	}
	return places, nil
}
