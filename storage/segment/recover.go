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
	remade, ids := false, op.ids()
	unsynced := slices.ContainsFunc(ids, func(id uint32) bool { return op.unsynced(op.scans[id]) })
	for _, id := range ids {
		sc := op.scans[id]
		// A batch that was cut off without a sync could return after a power cut, with a number
		// that another batch has by then. So all segments that may be appended to are synced.
		syncs := unsynced && sc.end < uint64(op.o.SegmentBytes)
		if !syncs && sc.size == sc.end && op.named[id] > 0 && !op.unsynced(sc) {
			continue
		}
		remade = remade || op.named[id] == 0
		if err := op.mend(sc); err != nil {
			return fmt.Errorf("mend segment %s: %w", FileName(id), err)
		}
	}
	if remade {
		if err := op.o.FS.SyncDir(op.o.Dir); err != nil {
			return fmt.Errorf("sync directory of segments: %w", err)
		}
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

// unsynced reports whether the last batch of a segment may never have been synced.
func (op *opener) unsynced(sc *scanned) bool {
	return op.named[sc.id] < sc.end && sc.last.Number != 0
}

// mend sets the torn tail of a segment aside and cuts it off, and syncs the rest. It writes the
// header of a segment that has no batch and was never named again: neither its header nor its name
// need be durable. It also writes a batch again, in its place, that may never have been synced,
// since a failed sync may leave bytes that look written and are not on the disk. Whatever sectors a
// power cut takes of such a write, the bytes are the same.
func (op *opener) mend(sc *scanned) (err error) {
	f, err := op.o.FS.Open(filepath.Join(op.o.Dir, FileName(sc.id)))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if sc.size > sc.end {
		if err := op.setAside(f, sc); err != nil {
			return fmt.Errorf("set its torn tail aside: %w", err)
		}
		if err := f.Truncate(int64(sc.end)); err != nil {
			return err
		}
	}
	switch {
	case op.named[sc.id] == 0:
		_, err = f.WriteAt(encodeHeader(op.o.Page, sc.id), 0)
		sc.end, op.named[sc.id] = headerBytes, headerBytes
	case op.unsynced(sc):
		op.rec.Rewritten++
		err = copyRange(f, sc.last.Start, sc.last.End, func(b []byte, off uint64) error {
			_, err := f.WriteAt(b, int64(off))
			return err
		})
	}
	sc.size = sc.end
	if err != nil {
		return err
	}
	return f.Sync()
}

// setAside saves a torn tail, unless all of it is zero.
func (op *opener) setAside(f vfs.File, sc *scanned) error {
	zero := true
	err := copyRange(f, sc.end, sc.size, func(b []byte, _ uint64) error {
		zero = zero && !slices.ContainsFunc(b, func(c byte) bool { return c != 0 })
		return nil
	})
	if err != nil || zero {
		return err
	}
	i := slices.IndexFunc(op.rec.Torn, func(t Torn) bool { return t.Segment == sc.id })
	op.rec.Torn[i].SavedAs, err = saveBytes(op.o.FS, op.o.Dir, f, &op.rec.Torn[i])
	return err
}

// cutFile cuts a file, durably.
func cutFile(fsys vfs.FS, name string, size uint64) error {
	f, err := fsys.Open(name)
	if err != nil {
		return err
	}
	err = f.Truncate(int64(size))
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// saveBytes copies a torn tail, or damaged bytes, to a file of its own below dir, durably.
func saveBytes(fsys vfs.FS, logDir string, f vfs.File, t *Torn) (name string, err error) {
	dir := filepath.Join(logDir, tornDir)
	if err := fsys.MkdirAll(dir); err != nil {
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
