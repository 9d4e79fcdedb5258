package segment

import (
	"errors"
	"path/filepath"

	"github.com/ledgerd/ledger/internal/vfs"
)

// newSuffix stands behind the name of the file of a replacement that is being written.
const newSuffix = ".new"

// writeBytes is how much of a replacement is written at once.
const writeBytes = 1 << 20

// replacementFile is the file of a replacement that is being written. It has its name only when it
// is whole and durable.
type replacementFile struct {
	o    *Options
	id   uint32
	head header
	f    vfs.File // nil when it is not open
	buf  []byte   // not written yet
	off  uint64   // where it goes
}

func (w *replacementFile) path() string { return filepath.Join(w.o.Dir, FileName(w.id)) }

// create begins the file. The segments that it replaces are known.
func (w *replacementFile) create() (err error) {
	w.head.bytes = replacementHeaderBytes(len(w.head.replaces))
	w.off = w.head.bytes
	w.f, err = w.o.FS.Create(w.path() + newSuffix)
	return err
}

// append adds a batch.
func (w *replacementFile) append(number uint64, b *Batch, ends []End) error {
	if err := b.check(); err != nil {
		return err
	}
	info := BatchInfo{Number: number, Segment: w.id, Start: w.off + uint64(len(w.buf))}
	w.buf = append(w.buf, b.encode(w.o.Page, &info, ends)...)
	if len(w.buf) < writeBytes {
		return nil
	}
	return w.flush()
}

func (w *replacementFile) flush() error {
	if _, err := w.f.WriteAt(w.buf, int64(w.off)); err != nil {
		return err
	}
	w.off += uint64(len(w.buf))
	w.buf = w.buf[:0]
	return nil
}

// sync makes all of it durable, with its header, but for its name.
func (w *replacementFile) sync() error {
	w.head.size = w.off
	if _, err := w.f.WriteAt(w.head.encode(w.o.Page, w.id), 0); err != nil {
		return err
	}
	return w.f.Sync()
}

func (w *replacementFile) close() error {
	f := w.f
	w.f = nil
	return f.Close()
}

// name gives the file its name, durably. It is closed.
func (w *replacementFile) name() error {
	if err := w.o.FS.Rename(w.path()+newSuffix, w.path()); err != nil {
		return err
	}
	return w.o.FS.SyncDir(w.o.Dir)
}

// discard removes the file. When that fails, the next open removes it.
func (w *replacementFile) discard() error {
	if w.f == nil {
		return nil
	}
	return errors.Join(w.close(), w.o.FS.Remove(w.path()+newSuffix))
}
