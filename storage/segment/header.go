package segment

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"

	"github.com/ledgerd/ledger/internal/base"
)

// The versions of the header. A segment that is appended to has the first, one that compaction has
// made the second.
const (
	plainVersion       = 1
	replacementVersion = 2
	formatVersion      = replacementVersion // the greatest that is read
)

const (
	replacementBytes = headerBytes + 8 + 8 + 4 // of the header of a replacement before its ranges
	rangeBytes       = 8
	maxRanges        = 1 << 16
)

// idRange is the ids of segments from First to Last.
type idRange struct{ first, last uint32 }

// header is what stands before the batches of a segment. Of a plain one only bytes is set.
type header struct {
	bytes uint64 // its length
	// size is the length of the file: nothing is appended to a replacement.
	size uint64
	// judged is the number up to which all batches of the log were reflected in what decided which
	// records are live, 0: not known; judgedByRepair says that what is replaced was damaged.
	judged uint64
	// replaces are the ids of the segments instead of which it stands, ascending, with gaps between
	// the ranges. They are smaller than its own.
	replaces []idRange
}

func (h *header) replacement() bool { return len(h.replaces) > 0 }

func encodeFixed(page [16]byte, segment, version uint32) []byte {
	b := make([]byte, 0, headerBytes)
	b = append(b, segmentMagic...)
	b = binary.BigEndian.AppendUint32(b, version)
	b = append(b, page[:]...)
	b = binary.BigEndian.AppendUint32(b, segment)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// encodeHeader returns the header of a plain segment.
func encodeHeader(page [16]byte, segment uint32) []byte {
	return encodeFixed(page, segment, plainVersion)
}

// encode returns the header of a replacement.
//
//	 0  32  as every header, with version 2
//	32   8  length of the file
//	40   8  judged
//	48   4  count of ranges, r, at least 1
//	52  8r  ranges, ascending: first id, last id
//	     4  CRC-32C of all before
func (h *header) encode(page [16]byte, segment uint32) []byte {
	b := encodeFixed(page, segment, replacementVersion)
	b = binary.BigEndian.AppendUint64(b, h.size)
	b = binary.BigEndian.AppendUint64(b, h.judged)
	b = binary.BigEndian.AppendUint32(b, uint32(len(h.replaces)))
	for _, r := range h.replaces {
		b = binary.BigEndian.AppendUint32(b, r.first)
		b = binary.BigEndian.AppendUint32(b, r.last)
	}
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// replacementHeaderBytes is the length of the header of a replacement with so many ranges.
func replacementHeaderBytes(ranges int) uint64 {
	return uint64(replacementBytes + rangeBytes*ranges + crcBytes)
}

// readHeader reads the header of a segment. It reports false when there is none that is whole; that
// of a replacement, which had its name only when it was durable, is damaged then. Errors are those
// of reading, and *base.CorruptError or *base.FormatError for a header of something else.
func readHeader(r io.ReaderAt, page [16]byte, segment uint32) (h header, whole bool, err error) {
	fail := func(err error) (header, bool, error) {
		return header{}, false, fmt.Errorf("read segment %s: %w", FileName(segment), err)
	}
	b := make([]byte, replacementBytes)
	n, err := r.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return fail(err)
	}
	version, whole, err := checkFixed(b[:n], page, segment)
	if err != nil || !whole {
		return header{}, whole, err
	}
	if version == plainVersion {
		return header{bytes: headerBytes}, true, nil
	}
	bad := corrupt(segment, headerBytes, "a damaged header of a replacement")
	count := uint64(0)
	if n == replacementBytes {
		count = uint64(binary.BigEndian.Uint32(b[headerBytes+16:]))
	}
	if count == 0 || count > maxRanges {
		return header{}, false, bad
	}
	b = slices.Grow(b, int(replacementHeaderBytes(int(count))))[:replacementHeaderBytes(int(count))]
	if n, err := r.ReadAt(b[replacementBytes:], replacementBytes); n < len(b)-replacementBytes {
		if err != nil && !errors.Is(err, io.EOF) {
			return fail(err)
		}
		return header{}, false, bad
	}
	if h, whole = parseReplacement(b, segment); !whole {
		return header{}, false, bad
	}
	return h, true, nil
}

// checkFixed reads what is the same in all headers. It reports false when b does not begin with a
// whole header, and returns an error when it is one, but of another page, segment or a newer
// version.
func checkFixed(b []byte, page [16]byte, segment uint32) (version uint32, whole bool, err error) {
	if len(b) < headerBytes || string(b[:4]) != segmentMagic ||
		crc32.Checksum(b[:headerBytes-crcBytes], castagnoli) != binary.BigEndian.Uint32(b[headerBytes-crcBytes:]) {
		return 0, false, nil
	}
	if version = binary.BigEndian.Uint32(b[4:]); version > formatVersion {
		return 0, true, &base.FormatError{What: "segment", Found: uint64(version), Supported: formatVersion}
	} else if version == 0 {
		return 0, true, corrupt(segment, 4, "format version 0")
	}
	if [16]byte(b[8:24]) != page {
		return 0, true, corrupt(segment, 8, fmt.Sprintf("the header of a segment of page %x", b[8:24]))
	}
	if id := binary.BigEndian.Uint32(b[24:]); id != segment {
		return 0, true, corrupt(segment, 24, "the header of segment "+FileName(id))
	}
	return version, true, nil
}

// parseReplacement reads the header of a replacement, which fills b and whose first bytes have been
// checked.
func parseReplacement(b []byte, segment uint32) (h header, ok bool) {
	body := b[:len(b)-crcBytes]
	if crc32.Checksum(body, castagnoli) != binary.BigEndian.Uint32(b[len(body):]) {
		return h, false
	}
	h.bytes = uint64(len(b))
	h.size = binary.BigEndian.Uint64(b[headerBytes:])
	h.judged = binary.BigEndian.Uint64(b[headerBytes+8:])
	last := uint64(0)
	for p := body[replacementBytes:]; len(p) > 0; p = p[rangeBytes:] {
		r := idRange{binary.BigEndian.Uint32(p), binary.BigEndian.Uint32(p[4:])}
		if r.first == 0 || r.last < r.first || r.last >= segment || len(h.replaces) > 0 && uint64(r.first) <= last+1 {
			return h, false
		}
		last = uint64(r.last)
		h.replaces = append(h.replaces, r)
	}
	return h, h.size >= h.bytes+minBatchBytes && h.size <= maxOffset
}

// ids is a set of ids of segments, as ascending ranges with gaps between them.
type ids []idRange

func (s ids) has(id uint32) bool {
	i, found := slices.BinarySearchFunc(s, id, func(r idRange, id uint32) int { return cmp.Compare(r.first, id) })
	return found || i > 0 && s[i-1].last >= id
}

// with returns s and more.
func (s ids) with(more ...idRange) ids {
	all := slices.Concat(s, more)
	slices.SortFunc(all, func(a, b idRange) int { return cmp.Compare(a.first, b.first) })
	var out ids
	for _, r := range all {
		if n := len(out); n > 0 && uint64(r.first) <= uint64(out[n-1].last)+1 {
			out[n-1].last = max(out[n-1].last, r.last)
			continue
		}
		out = append(out, r)
	}
	return out
}
