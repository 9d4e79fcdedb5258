package segment

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/ledgerd/ledger/internal/vfs"
)

const (
	// tornDir is the directory below that of the segments where torn tails are set aside.
	tornDir = "torn"
	// maxTornBytes bounds what is kept of one torn tail.
	maxTornBytes = 64 << 20
)

// recover mends what a crash has left (I5). Its steps are such that a crash at any moment leaves
// something that the next recovery understands: a tail is cut after it was set aside, and a batch
// is cut after its copy was synced.
func (op *opener) recover() error {
	for i := range op.rec.Torn {
		if err := op.cutTail(&op.rec.Torn[i]); err != nil {
			return fmt.Errorf("set aside the torn tail of segment %s: %w", FileName(op.rec.Torn[i].Segment), err)
		}
	}
	if err := op.remake(); err != nil {
		return err
	}
	if err := op.moveUnsynced(); err != nil {
		return err
	}
	for _, id := range op.left {
		if err := op.o.FS.Remove(filepath.Join(op.o.Dir, FileName(id))); err != nil {
			return fmt.Errorf("remove replaced segment %s: %w", FileName(id), err)
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

func cut(f vfs.File, size uint64) error {
	if err := f.Truncate(int64(size)); err != nil {
		return err
	}
	return f.Sync()
}

// saveBytes copies a torn tail, or what is damaged, to a file of its own below dir, durably.
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

// remake writes the headers of the segments that have no batch and were never named: neither header
// nor name need be durable.
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
		sc.size, sc.end, sc.head = headerBytes, headerBytes, header{bytes: headerBytes}
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

// unsynced is a valid batch behind the named end of its segment.
type unsynced struct {
	info BatchInfo
	copy bool // no other place holds it
}

// moveUnsynced copies the valid batches behind the named ends, in the order of their numbers, and
// then cuts them off where they were.
func (op *opener) moveUnsynced() error {
	var all []unsynced
	for _, id := range op.ids() {
		if sc := op.scans[id]; op.named[id] < sc.end && sc.last.Number != 0 {
			all = append(all, unsynced{info: sc.last})
		}
	}
	if len(all) == 0 {
		return nil
	}
	slices.SortFunc(all, func(a, b unsynced) int {
		return cmp.Or(cmp.Compare(a.info.Number, b.info.Number), cmp.Compare(a.info.Segment, b.info.Segment))
	})
	if err := op.syncCuts(); err != nil {
		return fmt.Errorf("sync segments: %w", err)
	}
	if err := op.findCopies(all); err != nil {
		return err
	}
	if err := op.copyUnsynced(all); err != nil {
		return fmt.Errorf("copy batches that may not be synced: %w", err)
	}
	for _, u := range all {
		if err := op.cutUnsynced(u.info); err != nil {
			return fmt.Errorf("cut a copied batch off segment %s: %w", FileName(u.info.Segment), err)
		}
	}
	return nil
}

// syncCuts makes the lengths of segments durable that are still appended to. A batch that was cut
// off one, without a sync, would be there again after a power cut, and name ends that are cut now.
func (op *opener) syncCuts() error {
	for _, id := range op.ids() {
		if op.scans[id].end >= uint64(op.o.SegmentBytes) {
			continue
		}
		f, err := op.o.FS.Open(filepath.Join(op.o.Dir, FileName(id)))
		if err == nil {
			err = errors.Join(f.Sync(), f.Close())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// findCopies marks the batches that must be copied: one of each number, unless an earlier recovery
// has already put a copy before a named end. Copies must be equal.
func (op *opener) findCopies(all []unsynced) error {
	for i := range all {
		u := &all[i]
		var other BatchInfo
		var found bool
		if i > 0 && all[i-1].info.Number == u.info.Number {
			other, found = all[i-1].info, true
		} else {
			var err error
			if other, found, err = op.findNamed(u.info.Number); err != nil {
				return err
			}
		}
		if !found {
			u.copy = true
			continue
		}
		if err := op.compare(u.info, other); err != nil {
			return err
		}
	}
	return nil
}

// findNamed looks for a batch before the named ends behind from.
func (op *opener) findNamed(number uint64) (info BatchInfo, found bool, err error) {
	for _, id := range op.ids() {
		sc := op.scans[id]
		if sc.first == 0 || number < sc.first || number > sc.last.Number {
			continue
		}
		for at := max(sc.from, sc.head.bytes, headerBytes); at < op.named[id]; {
			b, err := readSegment(op.files, nil, id, at, frameBytes)
			if err != nil {
				return info, false, err
			}
			f, ok := parseFrame(b, seed(op.o.Page, id, at))
			if !ok {
				return info, false, corrupt(id, at, "no frame of a batch")
			}
			if f.number == number {
				return BatchInfo{Number: number, Segment: id, Start: at, End: at + f.size()}, true, nil
			}
			at += f.size()
		}
	}
	return info, false, nil
}

// compare returns an error when two batches of the same number differ.
func (op *opener) compare(a, b BatchInfo) error {
	x, err := readSegment(op.files, nil, a.Segment, a.Start, int(a.End-a.Start))
	if err != nil {
		return err
	}
	y, err := readSegment(op.files, nil, b.Segment, b.Start, int(b.End-b.Start))
	if err != nil {
		return err
	}
	if !sameContent(x, y) {
		return corrupt(a.Segment, a.Start, fmt.Sprintf("a batch %d that is not the one in segment %s", a.Number, FileName(b.Segment)))
	}
	return nil
}

// copyUnsynced appends the batches that must be copied to one segment, with a sync after each (I2).
func (op *opener) copyUnsynced(all []unsynced) (err error) {
	i := slices.IndexFunc(all, func(u unsynced) bool { return u.copy })
	if i < 0 {
		return nil
	}
	sc, err := op.target(all[i].info.Number)
	if err != nil {
		return err
	}
	f, err := op.o.FS.Open(filepath.Join(op.o.Dir, FileName(sc.id)))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	var buf []byte
	for _, u := range all[i:] {
		if !u.copy {
			continue
		}
		buf, err = readSegment(op.files, buf[:0], u.info.Segment, u.info.Start, int(u.info.End-u.info.Start))
		if err != nil {
			return err
		}
		start := sc.end
		crc := move(buf, op.o.Page, sc.id, start)
		if _, err := f.WriteAt(buf, int64(start)); err != nil {
			return err
		}
		if err := f.Sync(); err != nil {
			return err
		}
		sc.end += uint64(len(buf))
		sc.size = sc.end
		sc.last = BatchInfo{Number: u.info.Number, Segment: sc.id, Start: start, End: sc.end, CRC: crc}
		op.named[sc.id] = start
		op.rec.Copied++
	}
	return nil
}

// target returns a segment to which batches from a number on can be copied: one that had neither a
// torn tail nor an unsynced batch, so that what it holds is synced, or a new one.
func (op *opener) target(number uint64) (*scanned, error) {
	for _, id := range op.ids() {
		sc := op.scans[id]
		torn := slices.ContainsFunc(op.rec.Torn, func(t Torn) bool { return t.Segment == id })
		if torn || op.named[id] != sc.end || sc.last.Number >= number || sc.end >= uint64(op.o.SegmentBytes) {
			continue
		}
		h, err := op.header(id)
		if err != nil {
			return nil, err
		}
		if !h.replacement() {
			return sc, nil
		}
	}
	id := op.nextID()
	if err := op.writeHeader(id, op.o.FS.Create); err != nil {
		return nil, err
	}
	if err := op.o.FS.SyncDir(op.o.Dir); err != nil {
		return nil, err
	}
	sc := &scanned{id: id, size: headerBytes, end: headerBytes}
	op.sizes[id], op.scans[id], op.named[id] = headerBytes, sc, headerBytes
	return sc, nil
}

// cutUnsynced cuts off the last batch of a segment, which is durable elsewhere.
func (op *opener) cutUnsynced(info BatchInfo) (err error) {
	f, err := op.o.FS.Open(filepath.Join(op.o.Dir, FileName(info.Segment)))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if err := cut(f, info.Start); err != nil {
		return err
	}
	sc := op.scans[info.Segment]
	sc.size, sc.end = info.Start, info.Start
	return nil
}
