package indexeddb

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"

	"github.com/ledgerd/ledger/indexeddb/internal/wtf8"
	"github.com/ledgerd/ledger/internal/base"
)

// malformed returns the error for bytes that violate their format. The error contains none of these
// bytes.
func malformed(what, got string, args ...any) error {
	return &base.CorruptError{Where: what, Got: fmt.Sprintf(got, args...)}
}

// unsupported returns the error for an unknown version.
func unsupported(what string, found, supported int64) error {
	return &base.FormatError{What: "IndexedDB " + what, Found: uint64(found), Supported: uint64(supported)}
}

// AppendInt appends n, which must not be negative, as an Int: base-256 digits, the lowest first, as
// few as possible but at least one.
func AppendInt(dst []byte, n int64) []byte {
	for dst = append(dst, byte(n)); n > 0xff; dst = append(dst, byte(n)) {
		n >>= 8
	}
	return dst
}

// DecodeInt decodes an Int that takes all of b: 1 to 8 bytes, the lowest digit first. Errors:
// base.ErrCorrupt.
func DecodeInt(b []byte) (int64, error) {
	if len(b) == 0 || len(b) > 8 {
		return 0, malformed("integer", "%d bytes", len(b))
	}
	var n uint64
	for i, c := range b {
		n |= uint64(c) << (8 * i)
	}
	if n > math.MaxInt64 {
		return 0, malformed("integer", "it is negative")
	}
	return int64(n), nil
}

// AppendVarInt appends n, which must not be negative, in 7 bits a byte, the lowest first.
func AppendVarInt(dst []byte, n int64) []byte { return binary.AppendUvarint(dst, uint64(n)) }

// DecodeVarInt decodes the VarInt at the beginning of b, which must have its shortest form. Errors:
// base.ErrCorrupt.
func DecodeVarInt(b []byte) (n int64, rest []byte, err error) {
	n, rest, ok := varInt(b)
	if !ok {
		return 0, nil, malformed("variable-length integer", "it is cut, too long or too large")
	}
	return n, rest, nil
}

func varInt(b []byte) (int64, []byte, bool) {
	if len(b) > 0 && b[0] < 0x80 {
		return int64(b[0]), b[1:], true
	}
	u, n := binary.Uvarint(b)
	if n <= 0 || u > math.MaxInt64 || n > 1 && b[n-1] == 0 {
		return 0, nil, false
	}
	return int64(u), b[n:], true
}

// wholeVarInt decodes a VarInt that takes all of b.
func wholeVarInt(b []byte) (int64, error) {
	n, rest, err := DecodeVarInt(b)
	if err == nil && len(rest) > 0 {
		err = malformed("variable-length integer", "%d bytes behind it", len(rest))
	}
	return n, err
}

// DecodeString decodes a String that takes all of b into WTF-8. Errors: base.ErrCorrupt.
func DecodeString(b []byte) (string, error) {
	if len(b)%2 != 0 {
		return "", malformed("string", "%d bytes, an odd number", len(b))
	}
	return wtf8.FromUTF16(b, binary.BigEndian), nil
}

// AppendString appends s as a String: UTF-16, big-endian.
func AppendString(dst []byte, s string) []byte { return wtf8.AppendUTF16(dst, s) }

// appendStringWithLength appends the number of code units, then the code units of s.
func appendStringWithLength(dst []byte, s string) []byte {
	return wtf8.AppendUTF16(AppendVarInt(dst, int64(wtf8.Len(s))), s)
}

// stringWithLength returns the code units at the beginning of b.
func stringWithLength(b []byte) (units, rest []byte, ok bool) {
	n, rest, ok := varInt(b)
	if !ok || n > int64(len(rest)/2) {
		return nil, nil, false
	}
	return rest[:2*n], rest[2*n:], true
}

func decodeStringWithLength(b []byte) (string, []byte, error) {
	units, rest, ok := stringWithLength(b)
	if !ok {
		return "", nil, malformed("string", "it is longer than what it stands in")
	}
	return wtf8.FromUTF16(units, binary.BigEndian), rest, nil
}

// binaryWithLength returns the bytes at the beginning of b.
func binaryWithLength(b []byte) (content, rest []byte, ok bool) {
	n, rest, ok := varInt(b)
	if !ok || n > int64(len(rest)) {
		return nil, nil, false
	}
	return rest[:n], rest[n:], true
}

// DecodeBool decodes a Bool, which is one byte: 0 is false, any other true. Errors:
// base.ErrCorrupt.
func DecodeBool(b []byte) (bool, error) {
	if len(b) != 1 {
		return false, malformed("boolean", "%d bytes", len(b))
	}
	return b[0] != 0, nil
}

// AppendBool appends a Bool.
func AppendBool(dst []byte, v bool) []byte {
	if v {
		return append(dst, 1)
	}
	return append(dst, 0)
}

// AppendPageUint appends a number as in page keys: one byte with the length, then the digits.
// Bytewise order is numeric order.
func AppendPageUint(dst []byte, n int64) []byte {
	length := (bits.Len64(uint64(n)) + 7) / 8
	dst = append(dst, byte(length))
	for i := length - 1; i >= 0; i-- {
		dst = append(dst, byte(n>>(8*i)))
	}
	return dst
}

func decodeUint(b []byte) (int64, []byte, error) {
	if len(b) == 0 || b[0] > 8 || len(b) <= int(b[0]) {
		return 0, nil, malformed("ordered integer", "it is cut")
	}
	length := int(b[0])
	var n uint64
	for _, c := range b[1 : 1+length] {
		n = n<<8 | uint64(c)
	}
	if n > math.MaxInt64 || length > 0 && b[1] == 0 {
		return 0, nil, malformed("ordered integer", "it is too large or has a leading zero")
	}
	return int64(n), b[1+length:], nil
}
