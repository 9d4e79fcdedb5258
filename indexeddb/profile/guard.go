package profile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/klauspost/compress/snappy"
	"github.com/syndtr/goleveldb/leveldb/storage"

	"github.com/ledgerd/ledger/internal/base"
)

// damaged returns the error for a damaged file.
func damaged(where, got string, args ...any) error {
	return &base.CorruptError{Where: where, Got: fmt.Sprintf(got, args...)}
}

// maxBlock bounds a block of a table, also after decompression. Only a long value makes a block
// longer than a few KiB.
const maxBlock = 16 << 20

// guard opens a file of a LevelDB directory for goleveldb, which would allocate any length that a
// file claims. It checks tables first (unless checked is set), and cuts journals and manifests
// after their last whole record.
func guard(f *os.File, fd storage.FileDesc, checked bool) (storage.Reader, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if fd.Type == storage.TypeTable {
		t := &table{f, info.Size(), fd.String()}
		if checked {
			return t, nil
		}
		return t, t.check()
	}
	end, err := recordsEnd(f, info.Size(), fd.String())
	if err != nil {
		return nil, err
	}
	return struct {
		*io.SectionReader
		io.Closer
	}{io.NewSectionReader(f, 0, end), f}, nil
}

// table is a file of sorted rows. goleveldb reads only its footer and blocks, each with a trailer.
type table struct {
	*os.File
	size int64
	name string
}

// A footer is at the end of a table. A trailer is at the end of a block: its compression and a
// checksum.
const (
	footerBytes  = 48
	trailerBytes = 5
	noCompress   = 0
	snappyBlock  = 1
)

// ReadAt implements io.ReaderAt. It refuses blocks with an implausible decompressed length.
func (t *table) ReadAt(p []byte, off int64) (int, error) {
	n, err := t.File.ReadAt(p, off)
	if err != nil || off == t.size-footerBytes || len(p) <= trailerBytes || p[len(p)-trailerBytes] != snappyBlock {
		return n, err
	}
	_, err = decodedLen(p[:len(p)-trailerBytes])
	if err != nil {
		return 0, damaged(t.name, "block at %d: %v", off, err)
	}
	return n, nil
}

// decodedLen returns the length of a block after decompression.
func decodedLen(b []byte) (int, error) {
	n, err := snappy.DecodedLen(b)
	if err != nil || n > maxBlock || n > 32*len(b)+64 {
		return 0, errors.New("its compressed form is malformed or too long")
	}
	return n, nil
}

// handle is the place of a block in a table.
type handle struct{ offset, length uint64 }

func (t *table) handle(b []byte) (h handle, rest []byte, err error) {
	var n, m int
	h.offset, n = binary.Uvarint(b)
	if n > 0 {
		h.length, m = binary.Uvarint(b[n:])
	}
	if m <= 0 || h.length > maxBlock || h.offset > uint64(t.size) || h.offset+h.length+trailerBytes > uint64(t.size) {
		return handle{}, nil, damaged(t.name, "a block that is not within the file, or longer than %d bytes", maxBlock)
	}
	return h, b[n+m:], nil
}

// check reads the index of a table and checks the place of each block.
func (t *table) check() error {
	if t.size < footerBytes {
		return damaged(t.name, "it is cut")
	}
	footer := make([]byte, footerBytes)
	if _, err := t.File.ReadAt(footer, t.size-footerBytes); err != nil {
		return err
	}
	if !bytes.Equal(footer[footerBytes-8:], []byte("\x57\xfb\x80\x8b\x24\x75\x47\xdb")) {
		return damaged(t.name, "it does not end as a table")
	}
	meta, rest, err := t.handle(footer)
	if err != nil {
		return err
	}
	index, _, err := t.handle(rest)
	if err != nil {
		return err
	}
	for _, h := range []handle{meta, index} { // meta names filters
		if err := t.checkIndex(h); err != nil {
			return err
		}
	}
	return nil
}

// checkIndex checks the entries of a block whose values are handles.
func (t *table) checkIndex(h handle) error {
	b := make([]byte, h.length+trailerBytes)
	if _, err := t.ReadAt(b, int64(h.offset)); err != nil {
		return err
	}
	kind := b[h.length]
	if masked(b[:h.length+1]) != binary.LittleEndian.Uint32(b[h.length+1:]) {
		return damaged(t.name, "block at %d: its checksum is wrong", h.offset)
	}
	b = b[:h.length]
	if kind == snappyBlock {
		raw, err := snappy.Decode(nil, b)
		if err != nil {
			return damaged(t.name, "block at %d: %v", h.offset, err)
		}
		b = raw
	} else if kind != noCompress {
		return fmt.Errorf("%s: block at %d is compressed by method %d: %w", t.name, h.offset, kind, base.ErrUnsupported)
	}
	if len(b) < 4 {
		return damaged(t.name, "block at %d is cut", h.offset)
	}
	restarts := uint64(binary.LittleEndian.Uint32(b[len(b)-4:]))
	if restarts > uint64(len(b)-4)/4 {
		return damaged(t.name, "block at %d has too many restarts", h.offset)
	}
	b = b[:uint64(len(b)-4)-4*restarts]
	for len(b) > 0 {
		var lengths [3]uint64 // shared and own part of the key, value
		for i := range lengths {
			n, size := binary.Uvarint(b)
			if size <= 0 {
				return damaged(t.name, "block at %d has an entry that is cut", h.offset)
			}
			lengths[i], b = n, b[size:]
		}
		if lengths[1] > uint64(len(b)) || lengths[2] > uint64(len(b))-lengths[1] {
			return damaged(t.name, "block at %d has an entry that is cut", h.offset)
		}
		value := b[lengths[1] : lengths[1]+lengths[2]]
		b = b[lengths[1]+lengths[2]:]
		if _, _, err := t.handle(value); err != nil {
			return err
		}
	}
	return nil
}
