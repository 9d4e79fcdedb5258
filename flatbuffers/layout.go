package flatbuffers

import (
	"encoding/binary"
	"fmt"

	"github.com/ledgerd/ledger/internal/base"
)

// The common part of all three layouts (little-endian, as FlatBuffers are):
//
//	offset  bytes  content
//	0       4      offset of the table
//	4       4      file identifier: three letters, and the version as a digit
//	8       v      vtable: its length, the length of the table, where each field lies in the table
//	8+v     0..2   zeros up to a multiple of 4
//	        t      table: the distance to the vtable, then the fields
//	               the vectors: element count (4), elements, zeros up to a multiple of 4
//
// A vector's place in the table is relative to the field that holds it.
const (
	vtablePos  = 8
	version    = 1
	digitOne   = '0' + version
	identStart = 4
	identEnd   = 8
)

var le = binary.LittleEndian

// roundUp returns n rounded up to a multiple of 4.
func roundUp(n int) int { return (n + 3) &^ 3 }

// putHeader writes the start of a buffer: root offset, identifier, vtable, and the table's distance
// to its vtable. fields are the places of the fields in the table, in the order of the schema.
func putHeader(b []byte, ident string, tableLen int, fields []uint16) {
	vlen := 4 + 2*len(fields)
	table := roundUp(vtablePos + vlen)
	le.PutUint32(b, uint32(table))
	copy(b[identStart:identEnd], ident)
	le.PutUint16(b[vtablePos:], uint16(vlen))
	le.PutUint16(b[vtablePos+2:], uint16(tableLen))
	for i, f := range fields {
		le.PutUint16(b[vtablePos+4+2*i:], f)
	}
	le.PutUint32(b[table:], uint32(table-vtablePos))
}

// putOffset writes in the field at pos the distance to the vector at target.
func putOffset(b []byte, pos, target int) { le.PutUint32(b[pos:], uint32(target-pos)) }

// corrupt returns the error for a buffer that the encoder would not write.
func corrupt(where, format string, args ...any) error {
	return &base.CorruptError{Where: where, Got: fmt.Sprintf(format, args...)}
}

// checkIdent verifies that b is long enough for the fixed part of its layout, and has the
// identifier.
func checkIdent(where string, b []byte, ident string, fixed int) error {
	if len(b) < identEnd {
		return corrupt(where, "only %d bytes", len(b))
	}
	if got := b[identStart:identEnd]; string(got) != ident {
		if v := got[3]; string(got[:3]) == ident[:3] && v > digitOne && v <= '9' {
			return &base.FormatError{What: where, Found: uint64(v - '0'), Supported: version}
		}
		return &base.CorruptError{Where: where, Want: fmt.Sprintf("identifier %q", ident), Got: fmt.Sprintf("%q", got)}
	}
	if len(b) < fixed {
		return corrupt(where, "only %d bytes, fewer than its fixed part", len(b))
	}
	return nil
}

// vector reads the element count at pos and returns it with the position after the vector and its
// padding. It fails when the vector of elements of size bytes does not lie within b, or its padding
// is not zero.
func vector(where string, b []byte, pos, size int) (count, end int, err error) {
	if pos < 0 || len(b)-pos < 4 {
		return 0, 0, corrupt(where, "ends at %d, before a vector's length at %d", len(b), pos)
	}
	n := le.Uint32(b[pos:])
	if uint64(n)*uint64(size) > uint64(len(b)-pos-4) {
		return 0, 0, corrupt(where, "vector at %d with %d elements goes beyond its %d bytes", pos, n, len(b))
	}
	stop := pos + 4 + int(n)*size
	end = roundUp(stop)
	if end > len(b) {
		return 0, 0, corrupt(where, "ends at %d, within padding", len(b))
	}
	for _, z := range b[stop:end] {
		if z != 0 {
			return 0, 0, corrupt(where, "padding at %d is not zero", stop)
		}
	}
	return int(n), end, nil
}

// vectorLen is vector with a given element count.
func vectorLen(where string, b []byte, pos, size, want int) (end int, err error) {
	n, end, err := vector(where, b, pos, size)
	if err == nil && n != want {
		err = corrupt(where, "vector at %d has %d elements, want %d", pos, n, want)
	}
	return end, err
}
