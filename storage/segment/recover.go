package segment

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/ledgerd/ledger/internal/vfs"
)

const (
	// tornDir is the subdirectory for torn tails.
	tornDir = "torn"
	// maxTornBytes bounds what is saved of one torn tail.
	maxTornBytes = 64 << 20
)

// recover repairs what a crash has left (I5). A crash at any step leaves a state that the next
// recovery handles: a tail is cut after it was set aside, and a batch is written again with the
// same bytes.
func (op *opener) recover() error {
	for i := range op.rec.Torn {
		if err := op.cutTail(&op.rec.Torn[i]); err != nil {
			return fmt.Errorf("set aside the torn tail of segment %s: %w", FileName(op.rec.Torn[i].Segment), err)
		}
	}
	if err := op.remake(); err != nil {
		return err
	}
	if err := op.syncUnsynced(); err != nil {
		return err
	}
	for _, e := range op.left {
		name, err := filepath.Join(op.o.Dir, FileName(e.Segment)), error(nil)
		if e.Offset > 0 {
			err = cutFile(op.o.FS, name, e.Offset)
		} else {
			err = op.o.FS.Remove(name)
		}
		if err != nil {
			return fmt.Errorf("remove what is retired of segment %s: %w", FileName(e.Segment), err)
		}
	}
	return nil
}

// cutTail sets a torn tail aside and cuts it off.
func (op *opener) cutTail(t *Torn) (err error) {
	sc := op.scans[t.Segment]
	f, err := op.o.FS.Open(filepath.Join(op.o.Dir, FileName(t.Segment)))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	zero := true
	err = copyRange(f, sc.end, sc.size, func(b []byte, _ uint64) error {
		zero = zero && !slices.ContainsFunc(b, func(c byte) bool { return c != 0 })
		return nil
	})
	if err == nil && !zero {
		t.SavedAs, err = saveBytes(op.o.FS, op.o.Dir, f, t)
	}
	if err == nil {
		err = cut(f, sc.end)
	}
	sc.size = sc.end
	return err
}

func cutFile(fsys vfs.FS, name string, size uint64) error {
	f, err := fsys.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(cut(f, size), f.Close())
}

func cut(f vfs.File, size uint64) error {
	if err := f.Truncate(int64(size)); err != nil {
		return err
	}
	return f.Sync()
}

// saveBytes copies a torn tail, or damaged bytes, to a file of its own below dir, durably.
func saveBytes(fsys vfs.FS, logDir string, f vfs.File, t *Torn) (name string, err error) {
	dir := filepath.Join(logDir, tornDir)
	if err := fsys.Mkdir(dir); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	if err := fsys.SyncDir(logDir); err != nil {
		return "", err
	}
	var out vfs.File
	for i := 0; out == nil; i++ {
		name = filepath.Join(dir, fmt.Sprintf("%08x-%016x-%d", t.Segment, t.Offset, i))
		if out, err = fsys.Create(name); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", err
		}
	}
	err = copyRange(f, t.Offset, t.Offset+min(t.Bytes, maxTornBytes), func(b []byte, off uint64) error {
		_, err := out.WriteAt(b, int64(off-t.Offset))
		return err
	})
	if err == nil {
		err = out.Sync()
	}
	if err = errors.Join(err, out.Close()); err != nil {
		return "", err
	}
	return name, fsys.SyncDir(dir)
}

// remake writes the headers of segments that have no batch and were never named: neither their
// header nor their name need be durable.
func (op *opener) remake() error {
	remade := false
	for _, id := range op.ids() {
		if op.named[id] > 0 {
			continue
		}
		if err := op.writeHeader(id, op.o.FS.Open); err != nil {
			return fmt.Errorf("remake segment %s: %w", FileName(id), err)
		}
		sc := op.scans[id]
		sc.size, sc.end = headerBytes, headerBytes
		op.named[id] = headerBytes
		remade = true
	}
	if remade {
		if err := op.o.FS.SyncDir(op.o.Dir); err != nil {
			return fmt.Errorf("remake segments: %w", err)
		}
	}
	return nil
}

// writeHeader makes a segment that consists of its header, but not its name, durable.
func (op *opener) writeHeader(id uint32, open func(string) (vfs.File, error)) (err error) {
	f, err := open(filepath.Join(op.o.Dir, FileName(id)))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.WriteAt(encodeHeader(op.o.Page, id), 0); err != nil {
		return err
	}
	return f.Sync()
}

// syncUnsynced makes the valid batches after the named ends durable: it writes each again in its
// place and syncs it, since a failed sync may leave bytes that look written and are not on the
// disk. Whatever sectors a power cut takes of such a write, the bytes are the same.
//
// It also syncs the other segments that may be appended to. A batch that was cut off without a sync
// could return after a power cut, with a number that another batch has by then.
func (op *opener) syncUnsynced() error {
	unsynced := func(sc *scanned) bool { return op.named[sc.id] < sc.end && sc.last.Number != 0 }
	ids := op.ids()
	if !slices.ContainsFunc(ids, func(id uint32) bool { return unsynced(op.scans[id]) }) {
		return nil
	}
	for _, id := range ids {
		sc := op.scans[id]
		again := unsynced(sc)
		if !again && sc.end >= uint64(op.o.SegmentBytes) {
			continue
		}
		if err := op.syncSegment(sc, again); err != nil {
			return fmt.Errorf("sync segment %s: %w", FileName(id), err)
		}
	}
	return nil
}

// syncSegment syncs a segment. With again it first writes the last batch again.
func (op *opener) syncSegment(sc *scanned, again bool) (err error) {
	f, err := op.o.FS.Open(filepath.Join(op.o.Dir, FileName(sc.id)))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if again {
		op.rec.Rewritten++
		err = copyRange(f, sc.last.Start, sc.last.End, func(b []byte, off uint64) error {
			_, err := f.WriteAt(b, int64(off))
			return err
		})
		if err != nil {
			return err
		}
	}
	return f.Sync()
}
