package dir

import (
	"errors"
	"io"
	"reflect"
	"sync"
	"syscall"

	"github.com/ledgerd/ledger/cloudsync/bucket"
)

const (
	// partBytes is how much of a large object is written at once, and the length from which an
	// object is large.
	partBytes = 1 << 20
	// blockBytes is what places, lengths and addresses are multiples of where a write passes the
	// page cache: enough for every disk with blocks of at most as much.
	blockBytes = 4096
	// lentBytes is how much is written at once of what lies in memory.
	lentBytes = 4 << 20
)

// parts has buffers of partBytes that begin at a multiple of blockBytes.
var parts = sync.Pool{New: func() any {
	b := make([]byte, partBytes+blockBytes)
	first := -reflect.ValueOf(b).Pointer() & (blockBytes - 1)
	b = b[first : first+partBytes : first+partBytes]
	return &b
}}

// writeLarge writes a large object past the page cache, where the system and the file system can:
// who has just uploaded it does not read it again, and a copy there would take as much processor
// time as sealing it, and the place of what is read. What content does not lend is read into part,
// again and again.
func writeLarge(f file, content io.Reader, part []byte) error {
	w := &largeFile{f: f, direct: setDirect(f, true) == nil}
	for {
		b, done, ok := bucket.Lend(content, lentBytes)
		if !ok {
			break
		}
		err := w.writeLent(b, part)
		done()
		if err != nil {
			return err
		}
		if len(b) == 0 { // what comes is not what was promised, or nothing
			break
		}
	}
	for {
		n, err := io.ReadFull(content, part)
		ended := err == io.EOF || err == io.ErrUnexpectedEOF // not one that content has wrapped
		if err != nil && !ended {
			return err
		}
		if err := w.write(part[:n]); err != nil || ended {
			return err
		}
	}
}

// largeFile is the file of a large object.
type largeFile struct {
	f      file
	direct bool
}

// writeLent writes what is lent, from where it stands if the system takes it from there.
func (w *largeFile) writeLent(b, part []byte) error {
	if !w.direct || reflect.ValueOf(b).Pointer()%blockBytes == 0 {
		return w.write(b)
	}
	for len(b) > 0 {
		n := copy(part, b)
		if err := w.write(part[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// write writes the next bytes. When they are no whole blocks, they are the last ones.
func (w *largeFile) write(b []byte) error {
	if whole := len(b) &^ (blockBytes - 1); w.direct && whole > 0 {
		written, err := w.f.Write(b[:whole])
		if err != nil && !errors.Is(err, syscall.EINVAL) {
			return err
		}
		b = b[written:]
	}
	if len(b) == 0 {
		return nil
	}
	if w.direct { // the end of the object, or the file system takes no such writes
		if err := setDirect(w.f, false); err != nil {
			return err
		}
		w.direct = false
	}
	_, err := w.f.Write(b)
	return err
}
