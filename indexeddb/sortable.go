package indexeddb

import (
	"encoding/binary"
	"math"
	"slices"
)

// Type and end marks in the sortable form. Types are greater than the end mark of a string or
// array.
const (
	sortableEnd    = 0x00
	sortableNumber = 0x10
	sortableDate   = 0x20
	sortableString = 0x30
	sortableBinary = 0x40
	sortableArray  = 0x50

	unitPair = 0x80 // first byte, at the least, of a unit in two bytes
	unitLong = 0xff // the unit follows in two bytes
	lastByte = 0x7e // the greatest code unit in one byte
	lastPair = 0x3fff

	group      = 0x09 // groupBytes follow
	groupBytes = 8
)

// AppendSortable appends k in a form whose bytewise order is the order of keys. No form is a prefix
// of another. It is the form in Chromium's SQLite files. -0 becomes 0.
//
//	number  10 | 8 bytes, IEEE 754 big-endian; the sign bit is inverted, of negative ones all bits
//	date    20 | the same
//	string  30 | for each code unit to 7e its number + 1, to 3fff two bytes with 8000 added, else
//	        ff and two bytes | 00
//	binary  40 | for each 8 bytes 09 and these, the last ones filled with 00 | how many of the
//	        last 8 count, 00 for none
//	array   50 | elements | 00
func (k Key) AppendSortable(dst []byte) []byte {
	dst, _ = appendSortable(dst, []byte(k.enc))
	return dst
}

// appendSortable appends the key at the beginning of enc, which must be valid, and returns the
// bytes after it.
func appendSortable(dst, enc []byte) ([]byte, []byte) {
	t, body, n, _ := scalar(enc)
	rest := enc[n:]
	switch t {
	case KeyNumber:
		return binary.BigEndian.AppendUint64(append(dst, sortableNumber), sortableBits(body)), rest
	case KeyDate:
		return binary.BigEndian.AppendUint64(append(dst, sortableDate), sortableBits(body)), rest
	case KeyString:
		dst = appendUnits(append(dst, sortableString), body)
	case KeyBinary:
		return appendGroups(append(dst, sortableBinary), body), rest
	case KeyArray:
		dst = append(dst, sortableArray)
		count, _, _ := varInt(enc[1:])
		for range count {
			dst, rest = appendSortable(dst, rest)
		}
	}
	return append(dst, sortableEnd), rest
}

// appendUnits appends big-endian code units.
func appendUnits(dst, units []byte) []byte {
	at := len(dst)
	dst = slices.Grow(dst, len(units)/2*3)
	dst = dst[:cap(dst)]
	for ; len(units) >= 2; units = units[2:] {
		switch u := binary.BigEndian.Uint16(units); {
		case u <= lastByte:
			dst[at] = byte(u) + 1
			at++
		case u <= lastPair:
			binary.BigEndian.PutUint16(dst[at:], unitPair<<8|u)
			at += 2
		default:
			dst[at] = unitLong
			binary.BigEndian.PutUint16(dst[at+1:], u)
			at += 3
		}
	}
	return dst[:at]
}

func appendGroups(dst, content []byte) []byte {
	last := 0
	for ; len(content) > 0; content = content[last:] {
		last = min(groupBytes, len(content))
		dst = append(append(dst, group), content[:last]...)
		dst = append(dst, make([]byte, groupBytes-last)...)
	}
	return append(dst, byte(last))
}

// sortableBits maps a little-endian double to bits that sort as the numbers do.
func sortableBits(b []byte) uint64 {
	bits := binary.LittleEndian.Uint64(b)
	switch {
	case bits == 1<<63: // -0
		return 1 << 63
	case bits>>63 != 0:
		return ^bits
	}
	return bits | 1<<63
}

// DecodeSortable decodes the key at the beginning of b. Errors: base.ErrCorrupt for bytes that
// AppendSortable does not write.
func DecodeSortable(b []byte) (k Key, rest []byte, err error) {
	var enc []byte
	if len(b) > 0 && b[0] == sortableArray {
		enc, rest, err = decodeSortable(nil, b, 0)
	} else {
		var short [96]byte // on the stack; longer keys are allocated
		enc, rest, err = decodeSortableScalar(short[:0], b)
	}
	if err != nil {
		return Key{}, nil, err
	}
	return Key{string(enc)}, rest, nil
}

// DecodeWholeSortable decodes a key that takes all of b. Errors: as DecodeSortable.
func DecodeWholeSortable(b []byte) (Key, error) {
	k, rest, err := DecodeSortable(b)
	if err == nil && len(rest) > 0 {
		err = malformed("sortable key", "%d bytes behind it", len(rest))
	}
	return k, err
}

func decodeSortable(dst, b []byte, depth int) (enc, rest []byte, err error) {
	if len(b) > 0 && b[0] == sortableArray && depth < MaxDepth {
		return decodeSortableArray(append(dst, byte(KeyArray)), b[1:], depth)
	}
	return decodeSortableScalar(dst, b)
}

func decodeSortableScalar(dst, b []byte) (enc, rest []byte, err error) {
	if len(b) == 0 {
		return nil, nil, malformed("sortable key", "it is cut")
	}
	rest = b[1:]
	switch b[0] {
	case sortableNumber:
		return decodeSortableDouble(append(dst, byte(KeyNumber)), rest)
	case sortableDate:
		return decodeSortableDouble(append(dst, byte(KeyDate)), rest)
	case sortableString:
		return decodeUnits(append(dst, byte(KeyString)), rest)
	case sortableBinary:
		return decodeGroups(append(dst, byte(KeyBinary)), rest)
	}
	return nil, nil, malformed("sortable key", "an unknown type, or arrays more than %d deep", MaxDepth)
}

func decodeSortableDouble(dst, b []byte) (enc, rest []byte, err error) {
	if len(b) < 8 {
		return nil, nil, malformed("sortable key", "it is cut")
	}
	bits := binary.BigEndian.Uint64(b)
	if bits>>63 != 0 {
		bits &^= 1 << 63
	} else {
		bits = ^bits
	}
	if math.IsNaN(math.Float64frombits(bits)) || bits == 1<<63 {
		return nil, nil, malformed("sortable key", "a number that is NaN or -0")
	}
	return binary.LittleEndian.AppendUint64(dst, bits), b[8:], nil
}

// unitsLen returns the number of code units at the beginning of b, and their length in bytes with
// the end mark. ok is false when the end mark is missing.
func unitsLen(b []byte) (units, n int, ok bool) {
	for n < len(b) {
		switch c := b[n]; {
		case c == sortableEnd:
			return units, n + 1, true
		case c < unitPair:
			n++
		case c < unitLong:
			n += 2
		default:
			n += 3
		}
		units++
	}
	return 0, 0, false
}

func decodeUnits(dst, b []byte) (enc, rest []byte, err error) {
	units, n, ok := unitsLen(b)
	if !ok {
		return nil, nil, malformed("sortable key", "a string without end")
	}
	dst, rest = AppendVarInt(dst, int64(units)), b[n:]
	for b = b[:n-1]; len(b) > 0; {
		c, u := b[0], uint16(b[0])-1
		switch {
		case c < unitPair:
			b = b[1:]
		case c < unitLong:
			u = binary.BigEndian.Uint16(b) &^ (unitPair << 8)
			b = b[2:]
		default:
			u = binary.BigEndian.Uint16(b[1:])
			b = b[3:]
		}
		if c >= unitPair && u <= lastByte || (c == unitLong) != (u > lastPair) {
			return nil, nil, malformed("sortable key", "a code unit that is longer than need be")
		}
		dst = binary.BigEndian.AppendUint16(dst, u)
	}
	return dst, rest, nil
}

// groupsLen returns the length of the groups at the beginning of b, with the end mark. ok is false
// when the end mark is missing.
func groupsLen(b []byte) (n int, ok bool) {
	for n < len(b) && b[n] == group {
		n += 1 + groupBytes
	}
	return n + 1, n < len(b)
}

func decodeGroups(dst, b []byte) (enc, rest []byte, err error) {
	n, ok := groupsLen(b)
	if !ok {
		return nil, nil, malformed("sortable key", "a binary without end")
	}
	last, rest, count := int(b[n-1]), b[n:], n/(1+groupBytes)
	if last > groupBytes || (last == 0) != (count == 0) {
		return nil, nil, malformed("sortable key", "a binary with %d bytes in the last of %d groups", last, count)
	}
	size := max(0, count-1)*groupBytes + last
	dst = AppendVarInt(dst, int64(size))
	end := len(dst) + size
	for b = b[:n-1]; len(b) > 0; b = b[1+groupBytes:] {
		dst = append(dst, b[1:1+groupBytes]...)
	}
	for _, filling := range dst[end:] {
		if filling != 0 {
			return nil, nil, malformed("sortable key", "a binary that is filled with other bytes than 0")
		}
	}
	return dst[:end], rest, nil
}

func decodeSortableArray(dst, b []byte, depth int) (enc, rest []byte, err error) {
	start, count := len(dst), int64(0)
	for ; len(b) > 0 && b[0] != sortableEnd; count++ {
		if dst, b, err = decodeSortable(dst, b, depth+1); err != nil {
			return nil, nil, err
		}
	}
	if len(b) == 0 {
		return nil, nil, malformed("sortable key", "an array without end")
	}
	head := AppendVarInt(nil, count) // not known before
	dst = append(dst, head...)
	copy(dst[start+len(head):], dst[start:len(dst)-len(head)])
	copy(dst[start:], head)
	return dst, b[1:], nil
}
