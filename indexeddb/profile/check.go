package profile

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/ledgerd/ledger/indexeddb"
	"github.com/ledgerd/ledger/indexeddb/value"
	"github.com/ledgerd/ledger/internal/base"
)

// maxChecked is the greatest length of a value that Check decodes. It bounds the memory.
const maxChecked = 512 << 10

// Check reads and verifies the whole directory. Besides the checks of Open and Import, it compares
// the rows of each index with the values of the records, requires unique keys in unique indexes,
// and reads all blobs. Damage goes to Options.Damage. Errors: base.ErrCorrupt from there, those of
// ctx.
func (p *Profile) Check(ctx context.Context) (Result, error) {
	c := checker{ctx: ctx, p: p}
	c.result.Databases = int64(len(p.Schema().Databases))
	c.progress.Total = p.total()
	if err := p.stores(c.store); err != nil {
		return c.result, fmt.Errorf("check: %w", err)
	}
	return c.result, nil
}

type checker struct {
	ctx      context.Context
	p        *Profile
	result   Result
	progress Progress
}

func (c *checker) report(err error) error { return c.p.options.Damage(err) }

func (c *checker) store(id storeID, s *indexeddb.Store) error {
	c.result.Stores++
	err := c.p.source.records(c.ctx, id, c.report, func(r *record) error { return c.record(id, s, r) })
	if err != nil {
		return err
	}
	for _, x := range s.Indexes {
		c.result.Indexes++
		if err := c.index(id, s, x); err != nil {
			return err
		}
	}
	return nil
}

// record reads the blobs of a record, and looks up the index rows for its value.
func (c *checker) record(id storeID, s *indexeddb.Store, r *record) error {
	c.result.Records++
	c.result.Bytes += int64(len(r.value))
	c.progress.Records, c.progress.Bytes = c.result.Records, c.result.Bytes
	c.p.options.Progress(c.progress)
	for i, o := range r.objects {
		if o.Type == indexeddb.ObjectHandle || o.Size == 0 {
			continue
		}
		c.result.Blobs++
		n, err := c.read(r, i)
		if c.result.Bytes += n; err == nil && n != o.Size {
			err = damaged(r.row.Describe(), "object %d has %d bytes and had %d", i, n, o.Size)
		}
		if err != nil {
			if err := c.report(fmt.Errorf("%s: %w", r.row.Describe(), err)); err != nil {
				return err
			}
		}
	}
	v, ok, err := c.decode(s, r)
	if err != nil {
		return c.report(fmt.Errorf("%s: %w", r.row.Describe(), err))
	}
	if !ok {
		c.result.Opaque++
		return nil
	}
	for _, x := range s.Indexes {
		for _, k := range x.Keys(v, r.objects) {
			row := id.row(indexeddb.KindIndexRow, r.row.Primary)
			row.Index, row.Key = x.ID, k
			has, err := c.p.source.hasIndexRow(c.ctx, row)
			if err == nil && !has {
				err = c.missing(x, row)
			}
			if errors.Is(err, base.ErrCorrupt) {
				err = c.report(err)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// missing handles a missing index row. A merge leaves a record out of a unique index when another
// record has its key; that other record may have been deleted since.
func (c *checker) missing(x *indexeddb.Index, row indexeddb.Row) error {
	if !x.Unique {
		return damaged(row.Describe(), "it is missing, though the record has this key")
	}
	holder, err := c.p.source.holder(c.ctx, row)
	if err == nil {
		c.result.LeftOut++
		c.p.options.LeftOut(row, holder)
	}
	return err
}

// read reads the content of an object to its end.
func (c *checker) read(r *record, i int) (int64, error) {
	f, err := r.open(i)
	if err != nil {
		return 0, err
	}
	n, err := io.Copy(io.Discard, f)
	return n, errors.Join(err, f.Close())
}

// decode decodes the value of a record after Inject. ok is false when the value is of an unknown
// kind or too long.
func (c *checker) decode(s *indexeddb.Store, r *record) (v value.Value, ok bool, err error) {
	v, err = value.DecodeBounded(r.value, maxChecked)
	if w, wrapped := v.(*value.Wrapped); err == nil && wrapped {
		v, err = c.unwrap(w, r)
	}
	switch {
	case errors.Is(err, base.ErrUnsupported), errors.Is(err, base.ErrTooLarge):
		return nil, false, nil
	case err != nil:
		return nil, false, err
	}
	if s.Injects() {
		if v, ok = indexeddb.Inject(v, s.KeyPath.Paths[0], r.row.Primary); !ok {
			return nil, false, damaged("value", "it cannot have the key of the record at %q", s.KeyPath.Paths[0])
		}
	}
	return v, true, nil
}

// unwrap decodes a value stored in an external object.
func (c *checker) unwrap(w *value.Wrapped, r *record) (value.Value, error) {
	if w.Index != len(r.objects)-1 || r.objects[w.Index].Size != w.Size {
		return nil, damaged("value", "it is in object %d of %d bytes, which the record does not have", w.Index, w.Size)
	}
	if w.Size > maxChecked {
		return nil, base.ErrTooLarge
	}
	f, err := r.open(w.Index)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(f, w.Size))
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	return value.DecodeBounded(b, maxChecked)
}

// index checks that each row of an index matches the value of a record.
func (c *checker) index(id storeID, s *indexeddb.Store, x *indexeddb.Index) error {
	row := id.row(indexeddb.KindIndexRow, indexeddb.Key{})
	row.Index = x.ID
	var last indexeddb.Key
	stale, err := c.p.source.indexRows(c.ctx, row, c.report, func(r indexeddb.Row) error {
		c.result.IndexRows++
		err := c.indexRow(id, s, x, r)
		if err == nil && x.Unique && !last.IsZero() && last.Compare(r.Key) == 0 {
			err = damaged(r.Describe(), "the index is unique, and another record has this key")
		}
		last = r.Key
		if errors.Is(err, base.ErrCorrupt) {
			return c.report(err)
		}
		return err
	})
	c.result.StaleIndexRows += stale
	return err
}

func (c *checker) indexRow(id storeID, s *indexeddb.Store, x *indexeddb.Index, row indexeddb.Row) error {
	r, err := c.p.source.record(c.ctx, id, row.Primary)
	if errors.Is(err, base.ErrCorrupt) {
		return nil // the record is already reported
	}
	if err != nil {
		return err
	}
	if r == nil {
		return damaged(row.Describe(), "it has no record")
	}
	v, ok, err := c.decode(s, r)
	if err != nil || !ok {
		return nil // the record is already reported
	}
	for _, k := range x.Keys(v, r.objects) {
		if k.Compare(row.Key) == 0 {
			return nil
		}
	}
	return damaged(row.Describe(), "its record does not have this key")
}
