package segment

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/ledgerd/ledger/internal/base"
)

// header reads the header of a segment file. One that is not there, or not whole, is plain.
func (op *opener) header(id uint32) (h header, err error) {
	if h, ok := op.heads[id]; ok {
		return h, nil
	}
	f, err := op.o.FS.OpenRead(filepath.Join(op.o.Dir, FileName(id)))
	if err != nil {
		return h, fmt.Errorf("open segment: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if h, _, err = readHeader(f, op.o.Page, id); err == nil {
		op.heads[id] = h
	}
	return h, err
}

// readHeads reads the headers of all segments, once, and notes which are replaced.
func (op *opener) readHeads() error {
	if op.allRead {
		return nil
	}
	bad := map[uint32]error{}
	for _, id := range op.ids() {
		h, err := op.header(id)
		if errors.Is(err, base.ErrCorrupt) {
			bad[id] = err
			continue
		}
		if err != nil {
			return err
		}
		op.replaced = op.replaced.with(h.replaces...)
	}
	for _, id := range op.ids() {
		if err := bad[id]; err != nil && !op.replaced.has(id) { // what was repaired may still be there
			return err
		}
	}
	op.allRead = true
	return nil
}

// isReplaced reports whether another segment stands for the one with this id.
func (op *opener) isReplaced(id uint32) (bool, error) {
	err := op.readHeads()
	return op.replaced.has(id), err
}

// repaired reports whether what stands for a segment was made by repair, so that it does not have
// all that an index may point to.
func (op *opener) repaired(id uint32) bool {
	for _, h := range op.heads {
		if h.judged == judgedByRepair && ids(h.replaces).has(id) {
			return true
		}
	}
	return false
}

// dropReplaced leaves the segments out that are replaced. Those that the position names are kept
// for reading: the index points into them until it has been told. A reader cannot tell it, so that
// it does without.
func (op *opener) dropReplaced() error {
	unknown := op.o.Moving
	for id := range op.sizes {
		unknown = unknown || op.from.end(id) == 0
	}
	if !unknown {
		return nil
	}
	if err := op.readHeads(); err != nil {
		return err
	}
	for _, id := range op.ids() {
		if !op.replaced.has(id) {
			continue
		}
		size, end := op.sizes[id], op.from.end(id)
		switch {
		case end != 0 && op.repaired(id):
			return fmt.Errorf("segment %s, which the index reflects, was damaged and replaced: %w", FileName(id), ErrIndexMismatch)
		case end == 0:
			op.left = append(op.left, id)
		case op.o.ReadOnly || end != size:
			return fmt.Errorf("segment %s, which the index reflects, was replaced: %w", FileName(id), ErrIndexMismatch)
		default:
			op.old[id] = size
		}
		delete(op.sizes, id)
		delete(op.named, id)
	}
	return nil
}

// replacesOld reports whether the position reflects the batches of a segment by those that it
// replaces.
func (op *opener) replacesOld(id uint32) bool {
	h := ids(op.heads[id].replaces)
	for old := range op.old {
		if h.has(old) {
			return true
		}
	}
	return false
}

// scanMoved scans a replacement whose batches the position reflects. The position must be no older
// than its last batch.
func (op *opener) scanMoved(ctx context.Context, sc *scanned) error {
	s := &scanner{page: op.o.Page, named: func(e End) { op.named[e.Segment] = max(op.named[e.Segment], e.Offset) }}
	if err := op.scan(ctx, s, sc); err != nil {
		return err
	}
	if sc.last.Number > op.from.Number {
		return fmt.Errorf("segment %s replaces others up to batch %d, index reflects %d: %w", FileName(sc.id), sc.last.Number, op.from.Number, ErrIndexMismatch)
	}
	sc.from = sc.end
	return nil
}
