package dir

import (
	"errors"
	"io"
	"reflect"
	"sync"
	"syscall"
)

const (
	// partBytes is the size of the writes of a large object, and the length from which an object is
	// large.
	partBytes = 1 << 20
	// blockBytes is the unit of offsets, lengths and addresses of writes past the page cache:
	// enough for every disk with blocks of at most this size.
	blockBytes = 4096
)

// parts has buffers of partBytes at addresses that are multiples of blockBytes.
var parts = sync.Pool{New: func() any {
	b := make([]byte, partBytes+blockBytes)
	first := -reflect.ValueOf(b).Pointer() & (blockBytes - 1)
	b = b[first : first+partBytes : first+partBytes]
	return &b
}}

// writeLarge writes a large object past the page cache, where the system and the file system can. A
// device does not read its own uploads. A copy in the cache would cost as much processor time as
// sealing, and evict data that is read. part, one of parts, is the buffer.
func writeLarge(f file, content io.Reader, part []byte) error {
	direct := setDirect(f, true) == nil
	for {
		n, err := io.ReadFull(content, part)
		ended := err == io.EOF || err == io.ErrUnexpectedEOF // not a wrapped error of content
		if err != nil && !ended {
			return err
		}
		b := part[:n]
		if whole := n &^ (blockBytes - 1); direct && whole > 0 {
			written, err := f.Write(b[:whole])
			if err != nil && !errors.Is(err, syscall.EINVAL) {
				return err
			}
			b = b[written:]
		}
		if direct && len(b) > 0 { // the end of the object, or the file system has no such writes
			if err := setDirect(f, false); err != nil {
				return err
			}
			direct = false
		}
		if _, err := f.Write(b); err != nil || ended {
			return err
		}
	}
}
