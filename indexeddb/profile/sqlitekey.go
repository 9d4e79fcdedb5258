package profile

import (
	"encoding/binary"
	"math"

	"github.com/ledgerd/ledger/indexeddb"
)

// Types and marks of keys in SQLite files. Their bytewise order is that of keys, and so is that of
// indexeddb.Key.AppendSortable, but strings and binaries are shorter here:
//
//	string  30 | for each code unit to 7e its number + 1, to 3fff two bytes with 8000 added, else
//	        ff and two bytes | 00
//	binary  40 | for each 8 bytes 09 and these, the last ones filled with 00 | how many of the
//	        last 8 count, 00 for none
const (
	sqlEnd    = 0x00
	sqlNumber = 0x10
	sqlDate   = 0x20
	sqlString = 0x30
	sqlBinary = 0x40
	sqlArray  = 0x50

	sqlLong  = 0xff // a code unit in two bytes follows
	sqlGroup = 0x09 // 8 bytes follow

	lastShort = 0x7e
	lastPair  = 0x3fff
	pair      = 0x8000
)

// decodeSQLKey decodes a key that takes all of b. Errors: base.ErrCorrupt.
func decodeSQLKey(b []byte) (indexeddb.Key, error) {
	enc, rest, ok := appendSQLKey(nil, b, 0)
	if !ok || len(rest) > 0 {
		return indexeddb.Key{}, damaged("key "+shortHex(b), "it is malformed")
	}
	k, _, err := indexeddb.DecodeKey(enc)
	return k, err
}

// appendSQLKey appends the key at the beginning of b as Chromium's LevelDB has it.
func appendSQLKey(dst, b []byte, depth int) (enc, rest []byte, ok bool) {
	if len(b) == 0 || depth > indexeddb.MaxDepth {
		return nil, nil, false
	}
	t, b := b[0], b[1:]
	switch t {
	case sqlNumber, sqlDate:
		if len(b) < 8 {
			return nil, nil, false
		}
		bits := binary.BigEndian.Uint64(b)
		if bits>>63 != 0 {
			bits &^= 1 << 63
		} else {
			bits = ^bits
		}
		kind := map[byte]indexeddb.KeyType{sqlNumber: indexeddb.KeyNumber, sqlDate: indexeddb.KeyDate}[t]
		return binary.LittleEndian.AppendUint64(append(dst, byte(kind)), bits), b[8:], true
	case sqlString:
		units, rest, ok := sqlUnits(b)
		return append(indexeddb.AppendVarInt(append(dst, byte(indexeddb.KeyString)), int64(len(units)/2)), units...), rest, ok
	case sqlBinary:
		content, rest, ok := sqlBytes(b)
		return append(indexeddb.AppendVarInt(append(dst, byte(indexeddb.KeyBinary)), int64(len(content))), content...), rest, ok
	case sqlArray:
		var elements []byte
		n := int64(0)
		for ; len(b) > 0 && b[0] != sqlEnd; n++ {
			if elements, b, ok = appendSQLKey(elements, b, depth+1); !ok {
				return nil, nil, false
			}
		}
		if len(b) == 0 {
			return nil, nil, false
		}
		return append(indexeddb.AppendVarInt(append(dst, byte(indexeddb.KeyArray)), n), elements...), b[1:], true
	}
	return nil, nil, false
}

// sqlUnits returns the code units of a string, big-endian.
func sqlUnits(b []byte) (units, rest []byte, ok bool) {
	for len(b) > 0 {
		switch c := b[0]; {
		case c == sqlEnd:
			return units, b[1:], true
		case c == sqlLong && len(b) >= 3:
			units, b = append(units, b[1], b[2]), b[3:]
		case c >= pair>>8 && c != sqlLong && len(b) >= 2:
			units, b = append(units, c&^(pair>>8), b[1]), b[2:]
		case c < pair>>8:
			units, b = append(units, 0, c-1), b[1:]
		default:
			return nil, nil, false
		}
	}
	return nil, nil, false
}

func sqlBytes(b []byte) (content, rest []byte, ok bool) {
	for len(b) >= 9 && b[0] == sqlGroup {
		content, b = append(content, b[1:9]...), b[9:]
	}
	if len(b) == 0 || b[0] > 8 || (b[0] == 0) != (len(content) == 0) {
		return nil, nil, false
	}
	if len(content) > 0 {
		content = content[:len(content)-8+int(b[0])]
	}
	return content, b[1:], true
}

// encodeSQLKey appends a key as SQLite files have it.
func encodeSQLKey(dst []byte, k indexeddb.Key) []byte {
	switch k.Type() {
	case indexeddb.KeyNumber:
		return binary.BigEndian.AppendUint64(append(dst, sqlNumber), orderedBits(k.Number()))
	case indexeddb.KeyDate:
		return binary.BigEndian.AppendUint64(append(dst, sqlDate), orderedBits(k.Number()))
	case indexeddb.KeyString:
		units := indexeddb.AppendString(nil, k.Text())
		dst = append(dst, sqlString)
		for i := 0; i < len(units); i += 2 {
			switch u := binary.BigEndian.Uint16(units[i:]); {
			case u <= lastShort:
				dst = append(dst, byte(u)+1)
			case u <= lastPair:
				dst = binary.BigEndian.AppendUint16(dst, pair|u)
			default:
				dst = append(dst, sqlLong, units[i], units[i+1])
			}
		}
		return append(dst, sqlEnd)
	case indexeddb.KeyBinary:
		content, last := k.Binary(), 0
		for dst = append(dst, sqlBinary); len(content) > 0; content = content[last:] {
			last = min(8, len(content))
			dst = append(append(append(dst, sqlGroup), content[:last]...), make([]byte, 8-last)...)
		}
		return append(dst, byte(last))
	}
	dst = append(dst, sqlArray)
	for e := range k.Elements() {
		dst = encodeSQLKey(dst, e)
	}
	return append(dst, sqlEnd)
}

// orderedBits returns the bits of a number such that greater numbers have greater bits.
func orderedBits(f float64) uint64 {
	bits := math.Float64bits(f + 0)
	if bits>>63 != 0 {
		return ^bits
	}
	return bits | 1<<63
}
