package profile

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/ledgerd/ledger/indexeddb"
	"github.com/ledgerd/ledger/ordered"
)

// Result counts the copied or checked items.
type Result struct {
	Databases, Stores, Indexes int64
	Records, IndexRows, Blobs  int64
	// Bytes is the total size of values and blobs.
	Bytes int64
	// StaleIndexRows counts obsolete rows of the directory, which the browser has not swept yet.
	// Pages have none.
	StaleIndexRows int64
	// Opaque counts records kept undecoded because their value is of an unknown kind or too long.
	// Only Check reads values.
	Opaque int64
	// LeftOut counts rows missing from unique indexes: a merge leaves a row out when another record
	// has the key. Only Check counts them.
	LeftOut int64
}

// Import replaces the IndexedDB rows of a page with the content of the directory. It stops at the
// first damage, unless Options.Damage continues; then it omits damaged rows. Errors:
// base.ErrCorrupt, those of w and ctx.
func (p *Profile) Import(ctx context.Context, w ordered.Writer) (Result, error) {
	prefix := indexeddb.PagePrefix()
	if err := w.DeleteRange(ctx, prefix, ordered.PrefixEnd(prefix)); err != nil {
		return Result{}, fmt.Errorf("import: %w", err)
	}
	im := importer{ctx: ctx, p: p, w: w}
	im.result.Databases = int64(len(p.Schema().Databases))
	im.progress.Total = p.total()
	err := p.source.metadata(ctx, im.put)
	if err == nil {
		err = p.stores(im.store)
	}
	if err != nil {
		return im.result, fmt.Errorf("import: %w", err)
	}
	return im.result, nil
}

// importer writes rows to a page.
type importer struct {
	ctx      context.Context
	p        *Profile
	w        ordered.Writer
	result   Result
	progress Progress
}

func (im *importer) put(r indexeddb.Row, value []byte) error {
	key, pageValue := indexeddb.PageRow(r, value)
	if err := im.w.Put(im.ctx, key, pageValue); err != nil {
		return fmt.Errorf("%s: %w", r.Describe(), err)
	}
	return nil
}

func (im *importer) store(id storeID, s *indexeddb.Store) error {
	im.result.Stores++
	if err := im.p.source.records(im.ctx, id, im.p.options.Damage, im.record); err != nil {
		return err
	}
	for _, x := range s.Indexes {
		im.result.Indexes++
		row := indexeddb.Row{Kind: indexeddb.KindIndexRow, Database: id.database, Store: id.store, Index: x.ID}
		stale, err := im.p.source.indexRows(im.ctx, row, im.p.options.Damage, func(r indexeddb.Row) error {
			im.result.IndexRows++
			return im.put(r, nil)
		})
		im.result.StaleIndexRows += stale
		if err != nil {
			return err
		}
	}
	return nil
}

func (im *importer) record(r *record) error {
	value := indexeddb.AppendRecord(make([]byte, 0, len(r.value)+9), r.version, r.value)
	if err := im.put(r.row, value); err != nil {
		return err
	}
	im.result.Records++
	im.result.Bytes += int64(len(r.value))
	if len(r.objects) > 0 {
		row := r.row
		row.Kind = indexeddb.KindExternal
		if err := im.put(row, indexeddb.AppendExternalObjects(nil, r.objects)); err != nil {
			return err
		}
	}
	for i, o := range r.objects {
		if o.Type == indexeddb.ObjectHandle || o.Size == 0 {
			continue
		}
		if err := im.content(r, i, o); err != nil {
			return err
		}
	}
	im.progress.Records, im.progress.Bytes = im.result.Records, im.result.Bytes
	im.p.options.Progress(im.progress)
	return nil
}

// content copies a blob.
func (im *importer) content(r *record, i int, o indexeddb.ExternalObject) error {
	row := r.row
	row.Kind, row.Sequence = indexeddb.KindContent, int64(i)
	key, _ := indexeddb.PageKey(nil, row)
	f, err := r.open(i)
	if err != nil {
		return fmt.Errorf("%s: %w", row.Describe(), err)
	}
	err = im.w.PutReader(im.ctx, key, &counting{r: f, im: im}, o.Size)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("%s: %w", row.Describe(), err)
	}
	im.result.Blobs++
	return nil
}

// counting reports progress within a blob.
type counting struct {
	r  io.Reader
	im *importer
}

func (c *counting) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.im.result.Bytes += int64(n)
	c.im.progress.Bytes = c.im.result.Bytes
	c.im.p.options.Progress(c.im.progress)
	return n, err
}
