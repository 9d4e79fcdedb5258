package storage

import (
	"cmp"
	"encoding/hex"
	"errors"
	"io/fs"
	"slices"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage/index"
	"github.com/ledgerd/ledger/storage/segment"
)

// oldIndex is page.db from before the log was damaged: it records the content of batches that are
// now unreadable. Nil stands for an unusable one.
type oldIndex struct {
	db     index.DB
	st     state
	memory bool
}

// openOldIndex opens page.db for reading, if it is intact enough.
func openOldIndex(o Options) *oldIndex {
	o.ReadOnly = true
	db, err := (&Store{o: o}).openIndexFile(index.Options{ReadOnly: true})
	if err != nil {
		return nil // missing, or damaged itself
	}
	x := &oldIndex{db: db, memory: o.MemoryIndex != nil}
	st, err := readState(db)
	if err != nil || st == nil || st.page != o.Identity || st.position.Number == 0 {
		_ = x.close() // nothing was written
		return nil
	}
	x.st = *st
	return x
}

func (x *oldIndex) close() error {
	if x == nil || x.db == nil || x.memory {
		return nil
	}
	db := x.db
	x.db = nil
	if err := db.Close(); err != nil && !errors.Is(err, base.ErrClosed) && !errors.Is(err, fs.ErrClosed) {
		return err
	}
	return nil
}

func (x *oldIndex) position() *segment.Position {
	if x == nil {
		return nil
	}
	return &x.st.position
}

// reflects reports whether the index has all that lay in a part of a segment.
func (x *oldIndex) reflects(d segment.Damage) bool {
	if x == nil {
		return false
	}
	for _, e := range x.st.position.Ends {
		if e.Segment == d.Segment {
			return d.End <= e.Offset
		}
	}
	return false
}

// had reports whether the page held a piece.
func (x *oldIndex) had(d *object.Digest) (held bool) {
	if x == nil {
		return false
	}
	err := x.db.View(func(tx index.Tx) error {
		row, _, err := readObjectRow(tx, d)
		held = row.held
		return err
	})
	return err == nil && held
}

// within returns the records of pieces and nodes that lay in a part of a segment.
func (x *oldIndex) within(info segment.BatchInfo) (recs []segment.Record) {
	if x == nil {
		return nil
	}
	// Damaged pages of the index are skipped: the rows are only hints where to look.
	_ = x.db.View(func(tx index.Tx) error {
		for _, v := range rowsOf(tx, bucketObjects) {
			row, ok := parseObjectRow(v)
			if ok && (row.held || row.dead) && row.place.Segment == info.Segment && row.place.Offset >= info.Start && row.place.Offset < info.End {
				recs = append(recs, segment.Record{Kind: row.kind, Place: row.place})
			}
		}
		return nil
	})
	slices.SortFunc(recs, func(a, b segment.Record) int { return cmp.Compare(a.Place.Offset, b.Place.Offset) })
	return recs
}

// rows calls put with the metadata of the index, or returns why the index is unusable.
func (x *oldIndex) rows(put func(family string, k, v []byte) error) error {
	return x.db.View(func(tx index.Tx) error {
		if _, err := headsIn(tx, &x.st); err != nil {
			return err
		}
		return eachCheckpointRow(tx, func(n int, k, v []byte) error {
			family := checkpointFamilies[n]
			if (family == bucketUnsynced || family == bucketTreeless) && !hasKey(tx.Bucket(bucketCommits), k) {
				return badRow(family, hex.EncodeToString(k), "a commit that is not there")
			}
			return put(family, k, v)
		})
	})
}
