package segment

import (
	"encoding/binary"
	"hash/crc32"
)

// NewerHeader returns the header of a segment of the next format version.
func NewerHeader(page [16]byte, segment uint32) []byte {
	b := encodeHeader(page, segment)
	binary.BigEndian.PutUint32(b[4:], formatVersion+1)
	binary.BigEndian.PutUint32(b[28:], crc32.Checksum(b[:28], castagnoli))
	return b
}
