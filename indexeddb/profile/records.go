package profile

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
)

// Journals and manifests consist of chunks, in blocks of 32 KiB. A chunk has a header with
// checksum, length and type. A record is one chunk or several.
const (
	blockBytes = 32 << 10
	headBytes  = 7
	chunkFull  = 1
	chunkFirst = 2
	chunkLast  = 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// masked returns a checksum as LevelDB stores it.
func masked(b []byte) uint32 { return mask(crc32.Checksum(b, castagnoli)) }

func mask(crc uint32) uint32 { return (crc>>15 | crc<<17) + 0xa282ead8 }

// recordsEnd returns the end of the last whole record. A partial record after it was being written
// when the process ended. A chunk with a damaged length is no partial record: its checksum is right
// for another length.
func recordsEnd(f io.ReaderAt, size int64, name string) (end int64, err error) {
	block := make([]byte, blockBytes)
	for start := int64(0); start < size; start += blockBytes {
		n, err := f.ReadAt(block[:min(blockBytes, size-start)], start)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		b, at := block[:n], 0
		for at+headBytes <= len(b) {
			length, kind := int(binary.LittleEndian.Uint16(b[at+4:])), b[at+6]
			if next := at + headBytes + length; next <= len(b) {
				empty := kind == 0 && length == 0 && binary.LittleEndian.Uint32(b[at:]) == 0 // reserved space
				if !empty && masked(b[at+6:next]) != binary.LittleEndian.Uint32(b[at:]) {
					return 0, damaged(name, "the record at %d has a wrong checksum", start+int64(at))
				}
				at = next
				if kind == chunkFull || kind == chunkLast {
					end = start + int64(at)
				}
				continue
			}
			if len(b) == blockBytes || endsElsewhere(b[at:]) {
				return 0, damaged(name, "the record at %d has a wrong length", start+int64(at))
			}
			return end, nil
		}
	}
	return end, nil
}

// endsElsewhere reports whether the checksum at the beginning of b matches some length of the
// chunk.
func endsElsewhere(b []byte) bool {
	want := binary.LittleEndian.Uint32(b)
	crc := crc32.Checksum(b[headBytes-1:headBytes], castagnoli)
	for i := headBytes; ; i++ {
		if mask(crc) == want {
			return true
		}
		if i == len(b) {
			return false
		}
		crc = crc32.Update(crc, castagnoli, b[i:i+1])
	}
}

// forRecords calls fn for each record up to end, the result of recordsEnd. The bytes are valid
// until fn returns.
func forRecords(f io.ReaderAt, end int64, name string, fn func([]byte) error) error {
	block := make([]byte, blockBytes)
	var record []byte
	for start := int64(0); start < end; start += blockBytes {
		b := block[:min(blockBytes, end-start)]
		if _, err := f.ReadAt(b, start); err != nil {
			return err
		}
		for at := 0; at+headBytes <= len(b); {
			kind, body := b[at+6], at+headBytes
			next := body + int(binary.LittleEndian.Uint16(b[at+4:]))
			if next > len(b) {
				return damaged(name, "the record at %d is cut", start+int64(at))
			}
			if kind == chunkFull || kind == chunkFirst {
				record = record[:0]
			}
			if record = append(record, b[body:next]...); kind == chunkFull || kind == chunkLast {
				if err := fn(record); err != nil {
					return err
				}
			}
			at = next
		}
	}
	return nil
}
