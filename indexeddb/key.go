package indexeddb

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"iter"
	"math"
	"strconv"
	"strings"

	"github.com/ledgerd/ledger/indexeddb/internal/wtf8"
	"github.com/ledgerd/ledger/internal/base"
)

// MaxDepth is the greatest depth of nested arrays in a key.
const MaxDepth = 2000

// KeyType is the type of a key, with the number that Chromium writes.
type KeyType byte

// The types of keys. The order of keys of different types is number, date, string, binary, array.
const (
	KeyString KeyType = 1
	KeyDate   KeyType = 2
	KeyNumber KeyType = 3
	KeyArray  KeyType = 4
	KeyBinary KeyType = 6
)

// keyMax and keyMin sort after and before all keys, as ends of ranges. They are never stored.
const (
	keyMax KeyType = 0
	keyMin KeyType = 5
)

// ranks holds the sort order of the types; 0 is no type.
var ranks = [7]int8{keyMin: 1, KeyNumber: 2, KeyDate: 3, KeyString: 4, KeyBinary: 5, KeyArray: 6, keyMax: 7}

// String returns the name of the type.
func (t KeyType) String() string {
	switch t {
	case KeyString:
		return "string"
	case KeyDate:
		return "date"
	case KeyNumber:
		return "number"
	case KeyArray:
		return "array"
	case KeyBinary:
		return "binary"
	}
	return fmt.Sprintf("key type %d", byte(t))
}

// Key is a valid IndexedDB key. The zero Key is no key. The operator == compares keys made by this
// package correctly, with one exception: a decoded number may be -0, which only Compare treats as
// equal to 0.
type Key struct{ enc string }

// IsZero reports whether k is no key.
func (k Key) IsZero() bool { return k.enc == "" }

// Type returns the type of k, which must not be zero.
func (k Key) Type() KeyType { return KeyType(k.enc[0]) }

// NumberKey returns the key of a number. -0 becomes 0. Errors: base.ErrInvalid for NaN.
func NumberKey(f float64) (Key, error) { return doubleKey(KeyNumber, f) }

// DateKey returns the key of a date in milliseconds since 1970. Errors: base.ErrInvalid for NaN.
func DateKey(ms float64) (Key, error) { return doubleKey(KeyDate, ms) }

func doubleKey(t KeyType, f float64) (Key, error) {
	if math.IsNaN(f) {
		return Key{}, fmt.Errorf("key of a %s that is NaN: %w", t, base.ErrInvalid)
	}
	enc := [9]byte{byte(t)}
	binary.LittleEndian.PutUint64(enc[1:], math.Float64bits(f+0))
	return Key{string(enc[:])}, nil
}

// StringKey returns the key of a string in WTF-8.
func StringKey(s string) Key {
	var short [96]byte // on the stack; longer keys are allocated
	return Key{string(appendStringWithLength(append(short[:0], byte(KeyString)), s))}
}

// BinaryKey returns the key of bytes.
func BinaryKey(b []byte) Key {
	return Key{string(append(AppendVarInt([]byte{byte(KeyBinary)}, int64(len(b))), b...))}
}

// ArrayKey returns the key of an array. Errors: base.ErrInvalid for a zero Key as element, and for
// arrays nested deeper than MaxDepth.
func ArrayKey(elements ...Key) (Key, error) {
	enc := AppendVarInt([]byte{byte(KeyArray)}, int64(len(elements)))
	for i, e := range elements {
		if e.IsZero() {
			return Key{}, fmt.Errorf("key of an array: element %d is no key: %w", i, base.ErrInvalid)
		}
		enc = append(enc, e.enc...)
	}
	if _, err := scanKey(enc, 0); err != nil {
		return Key{}, fmt.Errorf("key of an array that is more than %d deep: %w", MaxDepth, base.ErrInvalid)
	}
	return Key{string(enc)}, nil
}

// Number returns the value of a number or date.
func (k Key) Number() float64 {
	return math.Float64frombits(binary.LittleEndian.Uint64([]byte(k.enc[1:])))
}

// Text returns the value of a string in WTF-8.
func (k Key) Text() string {
	units, _, _ := stringWithLength([]byte(k.enc[1:]))
	return wtf8.FromUTF16(units, binary.BigEndian)
}

// Binary returns the value of a binary key.
func (k Key) Binary() []byte {
	content, _, _ := binaryWithLength([]byte(k.enc[1:]))
	return content
}

// Elements returns the elements of an array.
func (k Key) Elements() iter.Seq[Key] {
	return func(yield func(Key) bool) {
		n, rest, _ := varInt([]byte(k.enc[1:]))
		at := len(k.enc) - len(rest)
		for range n {
			size, _ := scanKey(rest, 0)
			if !yield(Key{k.enc[at : at+size]}) {
				return
			}
			at, rest = at+size, rest[size:]
		}
	}
}

// Append appends k in the form of Chromium's LevelDB rows.
func (k Key) Append(dst []byte) []byte { return append(dst, k.enc...) }

// Compare returns -1, 0 or 1 when k sorts before, equal to or after other.
func (k Key) Compare(other Key) int {
	c, _, _ := compareKeys([]byte(k.enc), []byte(other.enc), 0)
	return c
}

// String formats k for people: numbers, dates and strings as a script writes them, binary in
// hexadecimal.
func (k Key) String() string {
	if k.IsZero() {
		return "no key"
	}
	switch k.Type() {
	case KeyNumber:
		return strconv.FormatFloat(k.Number(), 'g', -1, 64)
	case KeyDate:
		return "date(" + strconv.FormatFloat(k.Number(), 'f', -1, 64) + ")"
	case KeyString:
		return strconv.Quote(k.Text())
	case KeyBinary:
		return "0x" + hex.EncodeToString(k.Binary())
	}
	var b strings.Builder
	b.WriteByte('[')
	for e := range k.Elements() {
		if b.Len() > 1 {
			b.WriteString(", ")
		}
		b.WriteString(e.String())
	}
	b.WriteByte(']')
	return b.String()
}

// DecodeKey decodes the key at the beginning of b. Errors: base.ErrCorrupt, also for types that are
// never stored, NaN, and arrays nested deeper than MaxDepth.
func DecodeKey(b []byte) (k Key, rest []byte, err error) {
	n, err := scanKey(b, 0)
	if err != nil {
		return Key{}, nil, err
	}
	return Key{string(b[:n])}, b[n:], nil
}

// wholeKey decodes a key that takes all of b.
func wholeKey(b []byte) (Key, error) {
	k, rest, err := DecodeKey(b)
	if err == nil && len(rest) > 0 {
		err = malformed("key", "%d bytes behind it", len(rest))
	}
	return k, err
}

// scanKey returns the length of the key at the beginning of b. depth arrays enclose this key.
func scanKey(b []byte, depth int) (int, error) {
	t, body, n, ok := scalar(b)
	switch {
	case !ok || t == keyMin || t == keyMax:
		return 0, malformed("key", "an unknown type, or it is cut")
	case t != KeyArray:
		if t == KeyNumber || t == KeyDate {
			if math.IsNaN(math.Float64frombits(binary.LittleEndian.Uint64(body))) {
				return 0, malformed("key", "a number that is NaN")
			}
		}
		return n, nil
	case depth >= MaxDepth:
		return 0, malformed("key", "arrays more than %d deep", MaxDepth)
	}
	count, rest, _ := varInt(b[1:])
	at := len(b) - len(rest)
	for range count {
		size, err := scanKey(b[at:], depth+1)
		if err != nil {
			return 0, err
		}
		at += size
	}
	return at, nil
}

// scalar returns the type at the beginning of b, its body, and the length of both. For an array,
// the body is empty and n is the length of the head. ok is false when b is cut or the type unknown.
func scalar(b []byte) (t KeyType, body []byte, n int, ok bool) {
	if len(b) == 0 {
		return 0, nil, 0, false
	}
	rest := b[1:]
	switch t = KeyType(b[0]); t {
	case keyMin, keyMax:
		return t, nil, 1, true
	case KeyNumber, KeyDate:
		if len(rest) < 8 {
			return 0, nil, 0, false
		}
		return t, rest[:8], 9, true
	case KeyString:
		body, rest, ok = stringWithLength(rest)
	case KeyBinary:
		body, rest, ok = binaryWithLength(rest)
	case KeyArray:
		var count int64
		count, rest, ok = varInt(rest)
		ok = ok && count <= int64(len(rest))
	}
	return t, body, len(b) - len(rest), ok
}

// compareKeys compares the keys at the beginning of a and b, and returns the bytes after them when
// the keys are equal. Malformed keys sort bytewise after all keys, so that the order is total on
// all bytes.
func compareKeys(a, b []byte, depth int) (c int, restA, restB []byte) {
	ta, bodyA, na, okA := scalar(a)
	tb, bodyB, nb, okB := scalar(b)
	if depth >= MaxDepth {
		okA, okB = okA && ta != KeyArray, okB && tb != KeyArray
	}
	if !okA || !okB {
		return compareMalformed(a, b, okA, okB), nil, nil
	}
	if ta != tb {
		return sign(int64(ranks[ta] - ranks[tb])), nil, nil
	}
	switch ta {
	case KeyArray:
		return compareArrays(a, b, depth)
	case KeyNumber, KeyDate:
		c = compareDoubles(bodyA, bodyB)
	default:
		c = bytes.Compare(bodyA, bodyB)
	}
	return c, a[na:], b[nb:]
}

func compareArrays(a, b []byte, depth int) (c int, restA, restB []byte) {
	na, a, _ := varInt(a[1:])
	nb, b, _ := varInt(b[1:])
	for range min(na, nb) {
		if c, a, b = compareKeys(a, b, depth+1); c != 0 || a == nil {
			return c, nil, nil
		}
	}
	return sign(na - nb), a, b
}

// compareMalformed sorts valid keys before malformed ones, and malformed ones bytewise.
func compareMalformed(a, b []byte, okA, okB bool) int {
	switch {
	case okA:
		return -1
	case okB:
		return 1
	}
	return bytes.Compare(a, b)
}

func compareDoubles(a, b []byte) int {
	if bytes.Equal(a, b) {
		return 0
	}
	x, y := sortableBits(a), sortableBits(b)
	switch {
	case x < y:
		return -1
	case x > y:
		return 1
	}
	return 0
}

func sign(n int64) int {
	switch {
	case n < 0:
		return -1
	case n > 0:
		return 1
	}
	return 0
}
