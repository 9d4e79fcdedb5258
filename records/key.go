package records

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"reflect"
	"time"
)

// The type bytes of key parts. They order parts of different types.
const (
	partNil    = 0x05
	partBytes  = 0x10
	partString = 0x11
	partInt    = 0x20
	partFloat  = 0x21
	partFalse  = 0x30
	partTrue   = 0x31
	partTime   = 0x40
)

// Key returns an index key: the parts, encoded so that keys sort by their first parts, then by
// their second parts, and so on. The encoding of a part is no prefix of another's, so that
// Query.Prefix selects by leading parts.
//
// Parts may be nil, []byte, string, bool, integers of any size up to int64 and uint64 (sorted by
// value, whatever their type), float32, float64 (NaN sorts below all numbers) and time.Time (to the
// nanosecond, years 1678 to 2261). Other types are programming errors and panic.
func Key(parts ...any) []byte {
	b := make([]byte, 0, 32) // most keys fit
	for _, p := range parts {
		b = appendPart(b, p)
	}
	return b
}

func appendPart(b []byte, part any) []byte {
	switch v := part.(type) {
	case nil:
		return append(b, partNil)
	case []byte:
		return appendText(append(b, partBytes), v)
	case string:
		return appendText(append(b, partString), []byte(v))
	case bool:
		if v {
			return append(b, partTrue)
		}
		return append(b, partFalse)
	case int:
		return appendInt(b, int64(v))
	case int8:
		return appendInt(b, int64(v))
	case int16:
		return appendInt(b, int64(v))
	case int32:
		return appendInt(b, int64(v))
	case int64:
		return appendInt(b, v)
	case uint:
		return appendUint(b, uint64(v))
	case uint8:
		return appendUint(b, uint64(v))
	case uint16:
		return appendUint(b, uint64(v))
	case uint32:
		return appendUint(b, uint64(v))
	case uint64:
		return appendUint(b, v)
	case float32:
		return appendFloat(b, float64(v))
	case float64:
		return appendFloat(b, v)
	case time.Time:
		return binary.BigEndian.AppendUint64(append(b, partTime), uint64(v.UnixNano())^1<<63)
	}
	panic("records: a part of a key has the type " + reflect.TypeOf(part).String()) // Sprintf would move all parts to the heap
}

// appendText appends text with each 0x00 escaped as 0x00 0xff, and the end mark 0x00 0x01.
func appendText(b, text []byte) []byte {
	for {
		i := bytes.IndexByte(text, 0)
		if i < 0 {
			return append(append(b, text...), 0, 1)
		}
		b = append(append(b, text[:i+1]...), 0xff)
		text = text[i+1:]
	}
}

// appendInt appends an integer as 9 bytes: a sign byte, and the low 64 bits.
func appendInt(b []byte, v int64) []byte {
	if v < 0 {
		return binary.BigEndian.AppendUint64(append(b, partInt, 0), uint64(v))
	}
	return appendUint(b, uint64(v))
}

func appendUint(b []byte, v uint64) []byte {
	return binary.BigEndian.AppendUint64(append(b, partInt, 1), v)
}

// appendFloat appends a number so that its bytes sort by value: the sign bit is flipped, and all
// bits of negative numbers.
func appendFloat(b []byte, v float64) []byte {
	bits := uint64(0)
	switch {
	case math.IsNaN(v):
	case v == 0:
		bits = 1 << 63 // equal for 0 and -0
	case v < 0:
		bits = ^math.Float64bits(v)
	default:
		bits = math.Float64bits(v) | 1<<63
	}
	return binary.BigEndian.AppendUint64(append(b, partFloat), bits)
}

var errKey = errors.New("it is no key of an index")

// cutText reads the output of appendText.
func cutText(b []byte) (text, rest []byte, err error) {
	n, err := textEnd(b)
	if err != nil {
		return nil, nil, err
	}
	return bytes.ReplaceAll(b[:n-2], []byte{0, 0xff}, []byte{0}), b[n:], nil
}

// textEnd returns the length of the output of appendText at the beginning of b.
func textEnd(b []byte) (int, error) {
	for n := 0; ; n += 2 {
		i := bytes.IndexByte(b[n:], 0)
		if n += i; i < 0 || n+1 >= len(b) || b[n+1] != 1 && b[n+1] != 0xff {
			return 0, errKey
		}
		if b[n+1] == 1 {
			return n + 2, nil
		}
	}
}

// partEnd returns the length of the first part of b.
func partEnd(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, errKey
	}
	n := 1
	switch b[0] {
	case partNil, partFalse, partTrue:
	case partBytes, partString:
		end, err := textEnd(b[1:])
		if err != nil {
			return 0, err
		}
		n += end
	case partInt:
		n = 10
	case partFloat, partTime:
		n = 9
	default:
		return 0, errKey
	}
	if n > len(b) {
		return 0, errKey
	}
	return n, nil
}

// mayStore reports whether an index can have a row for the key k.
func mayStore(k []byte) bool { return len(k) <= MaxIndexKeyBytes && checkKey(k) == nil }

// checkKey reports whether b could be the output of Key.
func checkKey(b []byte) error {
	if len(b) == 0 {
		return errKey
	}
	for len(b) > 0 {
		n, err := partEnd(b)
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}
