package indexeddb

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"slices"
)

// Types in the sortable form. They are greater than the mark that ends a string, binary or array.
const (
	sortableEnd    = 0x00
	sortableUnit   = 0x01
	sortableNumber = 0x10
	sortableDate   = 0x20
	sortableString = 0x30
	sortableBinary = 0x40
	sortableArray  = 0x50
)

// AppendSortable appends k in a form whose bytewise order is the order of keys, and of which none
// begins another. -0 becomes 0.
//
//	number  10 | 8 bytes, IEEE 754 big-endian; the sign bit is inverted, of negative ones all bits
//	date    20 | the same
//	string  30 | for each code unit 01 and two bytes | 00
//	binary  40 | for each byte 01 and the byte | 00
//	array   50 | elements | 00
func (k Key) AppendSortable(dst []byte) []byte {
	dst, _ = appendSortable(dst, []byte(k.enc))
	return dst
}

// appendSortable appends the key at the beginning of enc, which is valid, and returns what is
// behind it.
func appendSortable(dst, enc []byte) ([]byte, []byte) {
	t, body, n, _ := scalar(enc)
	rest := enc[n:]
	switch t {
	case KeyNumber:
		return binary.BigEndian.AppendUint64(append(dst, sortableNumber), sortableBits(body)), rest
	case KeyDate:
		return binary.BigEndian.AppendUint64(append(dst, sortableDate), sortableBits(body)), rest
	case KeyString:
		at := len(dst) + 1
		dst = append(slices.Grow(dst, len(body)/2*3+2), sortableString)[:at+len(body)/2*3]
		for ; len(body) >= 2; body, at = body[2:], at+3 {
			unit := dst[at : at+3]
			unit[0], unit[1], unit[2] = sortableUnit, body[0], body[1]
		}
	case KeyBinary:
		dst = append(dst, sortableBinary)
		for _, c := range body {
			dst = append(dst, sortableUnit, c)
		}
	case KeyArray:
		dst = append(dst, sortableArray)
		count, _, _ := varInt(enc[1:])
		for range count {
			dst, rest = appendSortable(dst, rest)
		}
	}
	return append(dst, sortableEnd), rest
}

// sortableBits returns the bits of a little-endian double such that greater numbers have greater
// bits.
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

// DecodeSortable decodes the key at the beginning of b. Errors: base.ErrCorrupt for what
// AppendSortable does not write.
func DecodeSortable(b []byte) (k Key, rest []byte, err error) {
	var enc []byte
	if len(b) > 0 && b[0] == sortableArray {
		enc, rest, err = decodeSortable(nil, b, 0)
	} else {
		var short [96]byte // on the stack; longer keys take one of the heap
		enc, rest, err = decodeSortableScalar(short[:0], b)
	}
	if err != nil {
		return Key{}, nil, err
	}
	return Key{string(enc)}, rest, nil
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
		return decodeSortableBytes(append(dst, byte(KeyString)), rest, 2)
	case sortableBinary:
		return decodeSortableBytes(append(dst, byte(KeyBinary)), rest, 1)
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

// decodeSortableBytes decodes units of size bytes up to the mark of the end.
func decodeSortableBytes(dst, b []byte, size int) (enc, rest []byte, err error) {
	n := 0
	for n < len(b) && b[n] == sortableUnit {
		n += 1 + size
	}
	if n >= len(b) || b[n] != sortableEnd {
		return nil, nil, malformed("sortable key", "a string or binary without end")
	}
	dst = AppendVarInt(dst, int64(n/(1+size)))
	for i := 0; i < n; i += 1 + size {
		dst = append(dst, b[i+1:i+1+size]...)
	}
	return dst, b[n+1:], nil
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
	head := AppendVarInt(nil, count) // is only known now
	dst = append(dst, head...)
	copy(dst[start+len(head):], dst[start:len(dst)-len(head)])
	copy(dst[start:], head)
	return dst, b[1:], nil
}

// maxPart is the greatest length of a sortable key that stands in a row of a page as it is. Two
// longer ones fit, shortened, into limits.MaxKeyBytes together with what stands before them.
const maxPart = 1984

// appendPart appends a sortable key, shortened when it is long (X4).
func appendPart(dst, sortable []byte) []byte {
	if len(sortable) <= maxPart {
		return append(dst, sortable...)
	}
	sum := sha256.Sum256(sortable)
	return append(append(dst, sortable[:maxPart]...), sum[:]...)
}

// cutPart returns what appendPart appended at the beginning of b, and whether it was shortened.
func cutPart(b []byte) (part, rest []byte, short bool, err error) {
	n, ok := sortableLen(b)
	switch {
	case ok:
		return b[:n], b[n:], false, nil
	case len(b) >= maxPart+sha256.Size:
		return b[:maxPart+sha256.Size], b[maxPart+sha256.Size:], true, nil
	}
	return nil, nil, false, malformed("row of a page", "a key in it is cut")
}

// sortableLen returns the length of the sortable key at the beginning of b, if it is one of at most
// maxPart bytes.
func sortableLen(b []byte) (n int, ok bool) {
	b = b[:min(len(b), maxPart)]
	for depth := 0; n < len(b); {
		t := b[n]
		n++
		switch t {
		case sortableNumber, sortableDate:
			n += 8
		case sortableString, sortableBinary:
			size := 3
			if t == sortableBinary {
				size = 2
			}
			for n < len(b) && b[n] == sortableUnit {
				n += size
			}
			n++
		case sortableArray:
			depth++
		case sortableEnd:
			depth--
		default:
			return 0, false
		}
		if depth <= 0 {
			return n, depth == 0 && n <= len(b)
		}
	}
	return 0, false
}
