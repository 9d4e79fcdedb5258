package segment

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/ledgerd/ledger/internal/base"
)

// formatVersion is the version of the header.
const formatVersion = 4

// encodeHeader returns the header of a segment.
func encodeHeader(page [16]byte, segment uint32) []byte {
	b := make([]byte, 0, headerBytes)
	b = append(b, segmentMagic...)
	b = binary.BigEndian.AppendUint32(b, formatVersion)
	b = append(b, page[:]...)
	b = binary.BigEndian.AppendUint32(b, segment)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// readHeader reports whether a segment begins with a complete header. Errors are those of reading,
// and of a complete but different header.
func readHeader(r io.ReaderAt, page [16]byte, segment uint32) (whole bool, err error) {
	b := make([]byte, headerBytes)
	n, err := r.ReadAt(b, 0)
	if n < headerBytes && err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("read segment %s: %w", FileName(segment), err)
	}
	return checkHeader(b[:n], page, segment)
}

// checkHeader reports false when b is no complete header, and returns an error for a complete
// header of another page, segment or version.
func checkHeader(b []byte, page [16]byte, segment uint32) (whole bool, err error) {
	if len(b) < headerBytes || string(b[:4]) != segmentMagic ||
		crc32.Checksum(b[:headerBytes-crcBytes], castagnoli) != binary.BigEndian.Uint32(b[headerBytes-crcBytes:]) {
		return false, nil
	}
	if version := binary.BigEndian.Uint32(b[4:]); version == 0 {
		return true, corrupt(segment, 4, "format version 0")
	} else if version != formatVersion {
		return true, &base.FormatError{What: "segment", Found: uint64(version), Supported: formatVersion}
	}
	if [16]byte(b[8:24]) != page {
		return true, corrupt(segment, 8, fmt.Sprintf("the header of a segment of page %x", b[8:24]))
	}
	if id := binary.BigEndian.Uint32(b[24:]); id != segment {
		return true, corrupt(segment, 24, "the header of segment "+FileName(id))
	}
	return true, nil
}
