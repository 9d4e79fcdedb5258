package profile

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/ledgerd/ledger/indexeddb"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/ordered"
)

// Page is the format of a Profile that OpenPage returned.
const Page Format = "page"

// OpenPage opens the IndexedDB rows of a page as a Profile, for listing and Check. The Profile uses
// r until Close. Errors: as Open.
func OpenPage(ctx context.Context, r ordered.Reader, o *Options) (*Profile, error) {
	p := &Profile{dir: Directory{Format: Page}, options: o.withDefaults()}
	s := &pageSource{r: r, counts: map[storeID]int64{}}
	p.source = s
	var err error
	if s.meta, err = indexeddb.PageSchema(ctx, r, p.options.Damage); err != nil {
		return nil, err
	}
	if err := s.survey(ctx, p.options.Damage); err != nil {
		return nil, err
	}
	return p, nil
}

// pageSource reads a page.
type pageSource struct {
	r      ordered.Reader
	meta   *indexeddb.Schema
	counts map[storeID]int64
}

var _ source = (*pageSource)(nil)

func (s *pageSource) schema() (*indexeddb.Schema, map[storeID]int64) { return s.meta, s.counts }
func (s *pageSource) close() error                                   { return nil }

// rows calls fn for the rows with a prefix, in order. values is set to read values too; content is
// never read. It calls report with damage, and stops only at an error from report.
func (s *pageSource) rows(ctx context.Context, prefix []byte, values bool, report func(error) error, fn func(indexeddb.Row, []byte) error) (err error) {
	it := s.r.Iter(ordered.Range{Start: prefix, End: ordered.PrefixEnd(prefix), KeysOnly: !values})
	defer func() { err = errors.Join(err, it.Close()) }()
	for it.Next(ctx) {
		row, err := indexeddb.DecodePageKey(it.Key())
		var value []byte
		if err == nil && values && row.Kind != indexeddb.KindContent {
			var page []byte
			if page, err = it.Value(ctx); err == nil {
				row, value, err = indexeddb.DecodePageRow(it.Key(), page)
			}
		}
		switch {
		case err == nil:
			err = fn(row, value)
		case errors.Is(err, base.ErrCorrupt):
			err = report(fmt.Errorf("row %s: %w", shortHex(it.Key()), err))
		}
		if err != nil {
			return err
		}
	}
	return it.Err()
}

// survey counts records, and checks that all rows belong to objects in the metadata.
func (s *pageSource) survey(ctx context.Context, report func(error) error) error {
	return s.rows(ctx, indexeddb.PagePrefix(), false, report, func(r indexeddb.Row, _ []byte) error {
		if r.Store == 0 || r.Kind < indexeddb.KindRecord {
			return nil
		}
		d := s.meta.Database(r.Database)
		if d == nil || d.Store(r.Store) == nil || r.Kind == indexeddb.KindIndexRow && d.Store(r.Store).Index(r.Index) == nil {
			return report(damaged(r.Describe(), "its object store or index does not exist"))
		}
		if r.Kind == indexeddb.KindRecord {
			s.counts[storeID{r.Database, r.Store}]++
		}
		return nil
	})
}

// metadata implements source.
func (s *pageSource) metadata(ctx context.Context, fn func(indexeddb.Row, []byte) error) error {
	families := []indexeddb.Row{{Kind: indexeddb.KindGlobal}}
	for _, d := range s.meta.Databases {
		families = append(families, indexeddb.Row{Kind: indexeddb.KindDatabase, Database: d.ID})
	}
	for _, f := range families {
		if err := s.rows(ctx, indexeddb.PageFamily(f), true, fail, fn); err != nil {
			return err
		}
	}
	return nil
}

// records implements source.
func (s *pageSource) records(ctx context.Context, id storeID, report func(error) error, fn func(*record) error) error {
	last := s.meta.Database(id.database).Store(id.store).LastVersion
	family := indexeddb.PageFamily(id.row(indexeddb.KindRecord, indexeddb.Key{}))
	err := s.rows(ctx, family, true, report, func(row indexeddb.Row, value []byte) error {
		r, err := s.join(ctx, row, value)
		if err == nil && (r.version < 1 || r.version > last) {
			err = damaged(row.Describe(), "its version is %d, the last of the object store %d", r.version, last)
		}
		if errors.Is(err, base.ErrCorrupt) {
			return report(err)
		}
		if err != nil {
			return err
		}
		return fn(r)
	})
	if err != nil {
		return err
	}
	return s.orphans(ctx, id, report)
}

// orphans reports external objects and contents without a record.
func (s *pageSource) orphans(ctx context.Context, id storeID, report func(error) error) error {
	for _, kind := range []indexeddb.Kind{indexeddb.KindExternal, indexeddb.KindContent} {
		family := indexeddb.PageFamily(id.row(kind, indexeddb.Key{}))
		err := s.rows(ctx, family, kind == indexeddb.KindExternal, report, func(row indexeddb.Row, _ []byte) error {
			if row.Primary.IsZero() {
				return nil // content of a record with a long key, which this row lacks
			}
			key, _ := indexeddb.PageKey(nil, id.row(indexeddb.KindRecord, row.Primary))
			_, err := s.r.Get(ctx, key)
			if errors.Is(err, base.ErrNotFound) {
				return report(damaged(row.Describe(), "it has no record"))
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// join makes a record from its row and its external objects.
func (s *pageSource) join(ctx context.Context, row indexeddb.Row, value []byte) (r *record, err error) {
	r = &record{row: row}
	if r.version, r.value, err = indexeddb.DecodeRecord(value); err != nil {
		return nil, fmt.Errorf("%s: %w", row.Describe(), err)
	}
	external := row
	external.Kind = indexeddb.KindExternal
	key, _ := indexeddb.PageKey(nil, external)
	if r.objects, err = indexeddb.PageObjects(ctx, s.r, key); err != nil {
		return nil, fmt.Errorf("%s: %w", external.Describe(), err)
	}
	r.open = func(o int) (io.ReadCloser, error) {
		row.Kind, row.Sequence = indexeddb.KindContent, int64(o)
		key, _ := indexeddb.PageKey(nil, row)
		v, err := s.r.Open(ctx, key)
		if errors.Is(err, base.ErrNotFound) {
			return nil, damaged(row.Describe(), "it is missing")
		}
		if err != nil {
			return nil, err
		}
		return v, nil
	}
	return r, nil
}

// get returns the value of a row, or nil when there is none.
func (s *pageSource) get(ctx context.Context, r indexeddb.Row) ([]byte, error) {
	key, _ := indexeddb.PageKey(nil, r)
	page, err := s.r.Get(ctx, key)
	if errors.Is(err, base.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.Describe(), err)
	}
	_, value, err := indexeddb.DecodePageRow(key, page)
	return append([]byte{}, value...), err
}

// record implements source.
func (s *pageSource) record(ctx context.Context, id storeID, primary indexeddb.Key) (*record, error) {
	row := id.row(indexeddb.KindRecord, primary)
	value, err := s.get(ctx, row)
	if err != nil || value == nil {
		return nil, err
	}
	return s.join(ctx, row, value)
}

// indexRows implements source. All rows of a page are valid.
func (s *pageSource) indexRows(ctx context.Context, x indexeddb.Row, report func(error) error, fn func(indexeddb.Row) error) (stale int64, err error) {
	return 0, s.rows(ctx, indexeddb.PageFamily(x), true, report, func(r indexeddb.Row, _ []byte) error { return fn(r) })
}

// hasIndexRow implements source.
func (s *pageSource) hasIndexRow(ctx context.Context, r indexeddb.Row) (bool, error) {
	value, err := s.get(ctx, r)
	return value != nil, err
}

// holder implements source.
func (s *pageSource) holder(ctx context.Context, r indexeddb.Row) (holder indexeddb.Key, err error) {
	prefix := r.Key.AppendPagePart(indexeddb.PageFamily(r))
	found := errors.New("found")
	err = s.rows(ctx, prefix, true, fail, func(row indexeddb.Row, _ []byte) error {
		if row.Primary.Compare(r.Primary) == 0 {
			return nil
		}
		holder = row.Primary
		return found
	})
	if errors.Is(err, found) {
		err = nil
	}
	return holder, err
}
