package profile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/ledgerd/ledger/indexeddb"
	"github.com/ledgerd/ledger/internal/base"
)

// levelSource is a LevelDB directory with its blobs.
type levelSource struct {
	*levelDB
	blobs  string
	meta   *indexeddb.Schema
	counts map[storeID]int64
}

var _ source = (*levelSource)(nil)

func openLevelSource(ctx context.Context, dir, blobs string, report func(error) error) (*levelSource, error) {
	if err := earlierCorruption(dir); err != nil {
		if err := report(err); err != nil {
			return nil, err
		}
	}
	l, err := openLevelDB(dir)
	if err != nil {
		return nil, err
	}
	s := &levelSource{levelDB: l, blobs: blobs, meta: &indexeddb.Schema{}, counts: map[storeID]int64{}}
	if err := s.survey(ctx, report); err != nil {
		return nil, errors.Join(err, l.close())
	}
	return s, nil
}

// earlierCorruption returns an error when the browser has marked the directory as damaged.
func earlierCorruption(dir string) error {
	b, err := readSmall(filepath.Join(dir, "corruption_info.json"), 64<<10)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	return damaged("LevelDB", "the browser has marked the directory as damaged: %.200q", b)
}

func (s *levelSource) schema() (*indexeddb.Schema, map[storeID]int64) { return s.meta, s.counts }

// survey decodes the key of each row, loads the metadata, and counts records. Each row must belong
// to an object named in the metadata.
func (s *levelSource) survey(ctx context.Context, report func(error) error) error {
	all := s.all()
	defer all.close()
	for all.next(report) {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("read the directory: %w", err)
		}
		err := s.meta.Add(all.row, all.value)
		if err == nil {
			err = s.place(all.row)
		}
		if err != nil {
			if err := report(err); err != nil {
				return err
			}
		}
	}
	if all.err != nil {
		return all.err
	}
	return s.meta.Finish(report)
}

// place checks that a data row belongs to an object in the metadata, which precede it, and counts
// records.
func (s *levelSource) place(r indexeddb.Row) error {
	switch r.Kind {
	case indexeddb.KindRecord, indexeddb.KindExists, indexeddb.KindIndexRow:
	default: // for external objects, see recordWalk.skip
		return nil
	}
	var store *indexeddb.Store
	if d := s.meta.Database(r.Database); d != nil {
		store = d.Store(r.Store)
	}
	if store == nil || r.Kind == indexeddb.KindIndexRow && store.Index(r.Index) == nil {
		return damaged(r.Describe(), "its object store or index does not exist")
	}
	if r.Kind == indexeddb.KindRecord {
		s.counts[storeID{r.Database, r.Store}]++
	}
	return nil
}

// metadata implements source. It omits journals and the times of cleanups, which belong to the
// directory.
func (s *levelSource) metadata(ctx context.Context, fn func(indexeddb.Row, []byte) error) error {
	families := []indexeddb.Row{{Kind: indexeddb.KindGlobal}}
	for _, d := range s.meta.Databases {
		families = append(families, indexeddb.Row{Kind: indexeddb.KindDatabase, Database: d.ID})
	}
	for _, f := range families {
		if err := s.metadataOf(ctx, f, fn); err != nil {
			return err
		}
	}
	return nil
}

func (s *levelSource) metadataOf(ctx context.Context, family indexeddb.Row, fn func(indexeddb.Row, []byte) error) error {
	all := s.family(family)
	defer all.close()
	for all.next(fail) {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("read metadata: %w", err)
		}
		r, value := all.row, all.value
		switch {
		case r.Kind == indexeddb.KindScope, r.Kind == indexeddb.KindGlobal && r.Property >= indexeddb.GlobalRecoveryJournal:
			continue
		case r.Kind == indexeddb.KindGlobal && r.Property == indexeddb.GlobalSchemaVersion:
			value = indexeddb.AppendInt(nil, indexeddb.MaxSchemaVersion)
		}
		if err := fn(r, value); err != nil {
			return err
		}
	}
	return all.err
}

// fail is a report function that stops at the first error.
func fail(err error) error { return err }

// records implements source. Records, exists entries and external objects are three families in the
// same order, and records iterates over them in parallel.
func (s *levelSource) records(ctx context.Context, id storeID, report func(error) error, fn func(*record) error) error {
	w := recordWalk{s: s, id: id, last: s.meta.Database(id.database).Store(id.store).LastVersion, report: report}
	w.records, w.exists, w.external = s.family(id.row(indexeddb.KindRecord, indexeddb.Key{})), s.family(id.row(indexeddb.KindExists, indexeddb.Key{})),
		s.family(id.row(indexeddb.KindExternal, indexeddb.Key{}))
	defer w.close()
	w.moreExists, w.moreExternal = w.exists.next(report), w.external.next(report)
	for w.records.next(report) {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("read records: %w", err)
		}
		r, err := w.join()
		if err == nil && r != nil {
			err = fn(r)
		}
		if err != nil {
			return err
		}
	}
	if w.records.err != nil {
		return w.records.err
	}
	return w.skip(func(*rows) bool { return true })
}

// recordWalk iterates over the records of a store.
type recordWalk struct {
	s      *levelSource
	id     storeID
	last   int64 // the last version assigned in the store
	report func(error) error

	records, exists, external *rows
	moreExists, moreExternal  bool
}

func (w *recordWalk) close() {
	for _, s := range []*rows{w.records, w.exists, w.external} {
		s.close()
	}
}

// join makes a record from the current rows. It returns nil when the record is damaged.
func (w *recordWalk) join() (*record, error) {
	row := w.records.row
	before := func(s *rows) bool { return s.row.Primary.Compare(row.Primary) < 0 }
	if err := w.skip(before); err != nil {
		return nil, err
	}
	version, value, err := indexeddb.DecodeRecord(w.records.value)
	if err != nil {
		return nil, w.report(fmt.Errorf("%s: %w", row.Describe(), err))
	}
	r := &record{row: row, version: version, value: value}
	r.open = w.s.opener(r)
	if !w.moreExists || w.exists.row.Primary.Compare(row.Primary) != 0 {
		return nil, w.report(damaged(row.Describe(), "it has no exists entry"))
	}
	exists, err := indexeddb.DecodeInt(w.exists.value)
	if err == nil && (exists != version || version < 1 || version > w.last) {
		err = damaged("version", "%d, that of the exists entry is %d, the last of the store %d", version, exists, w.last)
	}
	w.moreExists = w.exists.next(w.report)
	if err != nil {
		return nil, w.report(fmt.Errorf("%s: %w", row.Describe(), err))
	}
	if w.moreExternal && w.external.row.Primary.Compare(row.Primary) == 0 {
		r.objects, err = w.s.objects(w.id.database, w.external.row, w.external.value)
		w.moreExternal = w.external.next(w.report)
		if err != nil {
			return nil, w.report(err)
		}
	}
	return r, nil
}

// skip skips rows without a record. It reports exists entries, but not external objects: a browser
// writes those of a record at the end of the transaction, even when the same transaction has
// deleted the record. They stay in the directory, and nothing can read them.
func (w *recordWalk) skip(orphan func(*rows) bool) error {
	for w.moreExists && orphan(w.exists) {
		if err := w.report(damaged(w.exists.row.Describe(), "it has no record")); err != nil {
			return err
		}
		w.moreExists = w.exists.next(w.report)
	}
	for w.moreExternal && orphan(w.external) {
		w.moreExternal = w.external.next(w.report)
	}
	return errors.Join(w.exists.err, w.external.err)
}

// objects decodes external objects, and checks that their files exist and have the recorded length.
// Schema 3 does not record the length of files.
func (s *levelSource) objects(database int64, row indexeddb.Row, value []byte) ([]indexeddb.ExternalObject, error) {
	objects, err := indexeddb.DecodeExternalObjects(value, s.meta.Version)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", row.Describe(), err)
	}
	for i, o := range objects {
		if o.Type == indexeddb.ObjectHandle {
			continue
		}
		if next := s.meta.Database(database).NextBlob; o.Number >= next {
			return nil, damaged(row.Describe(), "object %d has the number %d, the next is %d", i, o.Number, next)
		}
		if o.Size == 0 {
			continue // no content is stored
		}
		info, err := os.Stat(blobPath(s.blobs, database, o.Number))
		if errors.Is(err, os.ErrNotExist) {
			return nil, damaged(row.Describe(), "blob %d of object %d is missing", o.Number, i)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", row.Describe(), err)
		}
		if o.Size < 0 {
			objects[i].Size = info.Size()
			objects[i].Modified = indexeddb.ModifiedAt(info.ModTime().UnixMicro())
		} else if info.Size() != o.Size {
			return nil, damaged(row.Describe(), "blob %d of object %d has %d bytes and had %d", o.Number, i, info.Size(), o.Size)
		}
	}
	return objects, nil
}

// opener returns a function that opens the blobs of a record.
func (s *levelSource) opener(r *record) func(int) (io.ReadCloser, error) {
	return func(i int) (io.ReadCloser, error) {
		return os.Open(blobPath(s.blobs, r.row.Database, r.objects[i].Number))
	}
}

// blobPath returns the path of a blob's file.
func blobPath(blobs string, database, number int64) string {
	return filepath.Join(blobs, fmt.Sprintf("%x", database), fmt.Sprintf("%02x", number>>8&0xff), fmt.Sprintf("%x", number))
}

// record implements source.
func (s *levelSource) record(_ context.Context, id storeID, primary indexeddb.Key) (*record, error) {
	r := &record{row: id.row(indexeddb.KindRecord, primary)}
	r.open = s.opener(r)
	b, err := s.get(r.row)
	if err != nil || b == nil {
		return nil, err
	}
	if r.version, r.value, err = indexeddb.DecodeRecord(b); err != nil {
		return nil, fmt.Errorf("%s: %w", r.row.Describe(), err)
	}
	external := id.row(indexeddb.KindExternal, primary)
	if b, err = s.get(external); err != nil || b == nil {
		return r, err
	}
	r.objects, err = s.objects(id.database, external, b)
	return r, err
}

// indexRows implements source. A row is valid when its version is that of the record's exists
// entry.
func (s *levelSource) indexRows(ctx context.Context, x indexeddb.Row, report func(error) error, fn func(indexeddb.Row) error) (stale int64, err error) {
	all := s.family(x)
	defer all.close()
	for all.next(report) {
		if err := ctx.Err(); err != nil {
			return stale, fmt.Errorf("read index rows: %w", err)
		}
		r, counts, err := s.indexRow(all.row, all.value)
		switch {
		case errors.Is(err, base.ErrCorrupt):
			err = report(err)
		case err == nil && counts:
			err = fn(r)
		case err == nil:
			stale++
		}
		if err != nil {
			return stale, err
		}
	}
	return stale, all.err
}

// indexRow returns the row in the current form, and whether it is valid.
func (s *levelSource) indexRow(r indexeddb.Row, value []byte) (indexeddb.Row, bool, error) {
	version, primary, err := indexeddb.DecodeIndexValue(value)
	if err == nil && !r.Primary.IsZero() && r.Primary.Compare(primary) != 0 {
		err = damaged("value", "its primary key is another one")
	}
	if err != nil {
		return r, false, fmt.Errorf("%s: %w", r.Describe(), err)
	}
	r.Primary, r.Sequence = primary, 0
	id := storeID{r.Database, r.Store}
	b, err := s.get(id.row(indexeddb.KindExists, primary))
	if err != nil || b == nil {
		return r, false, err
	}
	exists, err := indexeddb.DecodeInt(b)
	return r, exists == version, err
}

// hasIndexRow implements source. Rows of an old form have neighbouring keys.
func (s *levelSource) hasIndexRow(ctx context.Context, r indexeddb.Row) (bool, error) {
	b, err := s.get(r)
	if err != nil {
		return false, err
	}
	if b != nil {
		_, counts, err := s.indexRow(r, b)
		return counts, err
	}
	// Rows of the old form, with this index key and no primary key, sort first.
	old := r
	old.Primary, old.Sequence = indexeddb.Key{}, indexeddb.NoSequence
	all := s.from(old)
	defer all.close()
	for all.next(fail) && all.row.Primary.IsZero() && all.row.Key.Compare(r.Key) == 0 {
		if err := ctx.Err(); err != nil {
			return false, fmt.Errorf("read index rows: %w", err)
		}
		if found, counts, err := s.indexRow(all.row, all.value); err != nil || counts && found.Primary.Compare(r.Primary) == 0 {
			return counts, err
		}
	}
	return false, all.err
}

// holder implements source.
func (s *levelSource) holder(ctx context.Context, r indexeddb.Row) (indexeddb.Key, error) {
	start := r
	start.Primary, start.Sequence = indexeddb.Key{}, indexeddb.NoSequence
	all := s.from(start)
	defer all.close()
	for all.next(fail) && all.row.Key.Compare(r.Key) == 0 {
		if err := ctx.Err(); err != nil {
			return indexeddb.Key{}, fmt.Errorf("read index rows: %w", err)
		}
		if found, counts, err := s.indexRow(all.row, all.value); err != nil || counts && found.Primary.Compare(r.Primary) != 0 {
			return found.Primary, err
		}
	}
	return indexeddb.Key{}, all.err
}
