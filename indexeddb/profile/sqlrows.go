package profile

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"

	"github.com/ledgerd/ledger/indexeddb"
	"github.com/ledgerd/ledger/internal/base"
)

// Compression types of a record's value.
const (
	sqlPlain  = 0
	sqlZstd   = 1
	sqlSnappy = 2
)

// recordColumns are the columns that join reads.
var recordColumns = "row_id, " + bounded("key") + ", compression_type, " + bounded("value")

// bounded selects a column, or NULL when it is longer than maxBlock.
func bounded(column string) string {
	return fmt.Sprintf("CASE WHEN length(%s) <= %d THEN %s END", column, maxBlock, column)
}

// records implements source.
func (s *sqlSource) records(ctx context.Context, id storeID, report func(error) error, fn func(*record) error) error {
	return query(ctx, s.files[id.database], func(scan func(...any) error) error {
		r, err := s.join(ctx, id, scan)
		if errors.Is(err, base.ErrCorrupt) {
			return report(err)
		}
		if err != nil {
			return err
		}
		return fn(r)
	}, "SELECT "+recordColumns+" FROM records WHERE object_store_id = ? ORDER BY key", id.store)
}

// record implements source.
func (s *sqlSource) record(ctx context.Context, id storeID, primary indexeddb.Key) (r *record, err error) {
	err = query(ctx, s.files[id.database], func(scan func(...any) error) error {
		r, err = s.join(ctx, id, scan)
		return err
	}, "SELECT "+recordColumns+" FROM records WHERE object_store_id = ? AND key = ?", id.store, primary.AppendSortable(nil))
	return r, err
}

// join makes a record from a row and its external objects.
func (s *sqlSource) join(ctx context.Context, id storeID, scan func(...any) error) (*record, error) {
	var rowID, compression int64
	var key, value []byte
	if err := scan(&rowID, &key, &compression, &value); err != nil {
		return nil, err
	}
	primary, err := indexeddb.DecodeWholeSortable(key)
	if err != nil {
		return nil, fmt.Errorf("record %d/%d with the key %s: %w", id.database, id.store, shortHex(key), err)
	}
	r := &record{row: id.row(indexeddb.KindRecord, primary), version: sqlRecordVersion}
	if r.value, err = decompressSQL(value, compression); err != nil {
		return nil, fmt.Errorf("%s: %w", r.row.Describe(), err)
	}
	db := s.files[id.database]
	var blobs []int64
	err = query(ctx, db, func(scan func(...any) error) error {
		o, blob, err := externalObject(scan)
		r.objects, blobs = append(r.objects, o), append(blobs, blob)
		return err
	}, `SELECT b.row_id, b.object_type, COALESCE(b.mime_type, ''), COALESCE(b.size_bytes, 0), COALESCE(b.file_name, x''), COALESCE(b.last_modified, 0),
		CASE WHEN b.object_type = 2 AND length(b.bytes) <= 65536 THEN b.bytes END
		FROM blob_references r JOIN blobs b ON b.row_id = r.blob_row_id WHERE r.record_row_id = ? ORDER BY r.row_id`, rowID)
	r.open = func(i int) (io.ReadCloser, error) {
		return &sqlBlob{ctx: ctx, db: db, id: blobs[i], name: r.row.Describe()}, nil
	}
	return r, err
}

func decompressSQL(b []byte, compression int64) ([]byte, error) {
	switch {
	case b == nil:
		return nil, damaged("value", "it is missing, or longer than %d bytes", maxBlock)
	case compression == sqlPlain:
		return b, nil
	case compression == sqlSnappy:
		if _, err := decodedLen(b); err != nil {
			return nil, damaged("value", "%v", err)
		}
		raw, err := snappy.Decode(nil, b)
		if err != nil {
			return nil, damaged("value", "%v", err)
		}
		return raw, nil
	case compression != sqlZstd:
		return nil, damaged("value", "it is compressed by method %d", compression)
	}
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxBlock))
	if err != nil {
		return nil, err
	}
	defer z.Close()
	raw, err := z.DecodeAll(b, nil)
	if err != nil {
		return nil, damaged("value", "%v", err)
	}
	return raw, nil
}

// externalObject makes an external object from a row. Its number is the number of the row plus one,
// because numbers begin with 2.
func externalObject(scan func(...any) error) (o indexeddb.ExternalObject, blob int64, err error) {
	var kind int64
	var name any
	if err := scan(&blob, &kind, &o.MediaType, &o.Size, &name, &o.Modified, &o.Token); err != nil {
		return o, 0, err
	}
	if kind < 0 || kind > int64(indexeddb.ObjectHandle) || blob < 1 || o.Size < 0 {
		return o, 0, damaged("blob", "row %d has type %d and %d bytes", blob, kind, o.Size)
	}
	o.Type, o.Number = indexeddb.ObjectType(kind), blob+1
	switch name := name.(type) {
	case string:
		o.Name = name
	case []byte:
		o.Name = utf16Text(name)
	}
	return o, blob, nil
}

// sqlBlob reads a blob. Each part of the blob is a row.
type sqlBlob struct {
	ctx  context.Context
	db   *sql.DB
	id   int64
	name string
	part int64 // the next part
	rest *bytes.Reader
}

// Close implements io.Closer.
func (b *sqlBlob) Close() error { return nil }

func (b *sqlBlob) Read(p []byte) (int, error) {
	for b.rest == nil || b.rest.Len() == 0 {
		text, args := "SELECT CASE WHEN length(bytes) <= ? THEN bytes END FROM blobs WHERE row_id = ?", []any{maxBlock, b.id}
		if b.part > 0 {
			text, args = "SELECT CASE WHEN length(bytes) <= ? THEN bytes END FROM overflow_blob_chunks WHERE blob_row_id = ? AND chunk_index = ?", append(args, b.part)
		}
		var chunk []byte
		err := scanRow(b.ctx, b.db.QueryRowContext(b.ctx, text, args...), &chunk)
		switch {
		case errors.Is(err, sql.ErrNoRows) && b.part > 0:
			return 0, io.EOF
		case err != nil:
			return 0, classifySQL(b.name, err)
		case chunk == nil:
			return 0, damaged(b.name, "part %d of blob %d is not in the file, or longer than %d bytes", b.part, b.id, maxBlock)
		}
		b.rest = bytes.NewReader(chunk)
		b.part++
	}
	return b.rest.Read(p)
}

// indexRows implements source. All rows are valid, and each must have a record.
func (s *sqlSource) indexRows(ctx context.Context, x indexeddb.Row, report func(error) error, fn func(indexeddb.Row) error) (stale int64, err error) {
	return 0, query(ctx, s.files[x.Database], func(scan func(...any) error) error {
		var key, primary []byte
		var records int64
		if err := scan(&key, &primary, &records); err != nil {
			return err
		}
		row, err := sqlIndexRow(x, key, primary)
		if err == nil && records != 1 {
			err = damaged(row.Describe(), "it has no record")
		}
		if err != nil {
			return report(err)
		}
		return fn(row)
	}, "SELECT "+bounded("i.key")+", "+bounded("i.record_key")+`, (SELECT COUNT(*) FROM records r WHERE r.row_id = i.record_row_id AND r.object_store_id = i.object_store_id AND r.key = i.record_key)
		FROM index_references i WHERE i.object_store_id = ? AND i.index_id = ? ORDER BY i.key, i.record_key`, x.Store, x.Index)
}

func sqlIndexRow(x indexeddb.Row, key, primary []byte) (indexeddb.Row, error) {
	var err, primaryErr error
	x.Key, err = indexeddb.DecodeWholeSortable(key)
	x.Primary, primaryErr = indexeddb.DecodeWholeSortable(primary)
	if err := errors.Join(err, primaryErr); err != nil {
		return x, fmt.Errorf("index row %d/%d/%d %s of %s: %w", x.Database, x.Store, x.Index, shortHex(key), shortHex(primary), err)
	}
	return x, nil
}

// hasIndexRow implements source.
func (s *sqlSource) hasIndexRow(ctx context.Context, r indexeddb.Row) (bool, error) {
	n := 0
	err := scanRow(ctx, s.files[r.Database].QueryRowContext(ctx, "SELECT COUNT(*) FROM index_references WHERE object_store_id = ? AND index_id = ? AND key = ? AND record_key = ?",
		r.Store, r.Index, r.Key.AppendSortable(nil), r.Primary.AppendSortable(nil)), &n)
	return n > 0, err
}

// holder implements source.
func (s *sqlSource) holder(ctx context.Context, r indexeddb.Row) (indexeddb.Key, error) {
	var primary []byte
	err := scanRow(ctx, s.files[r.Database].QueryRowContext(ctx, "SELECT record_key FROM index_references WHERE object_store_id = ? AND index_id = ? AND key = ? AND record_key != ? LIMIT 1",
		r.Store, r.Index, r.Key.AppendSortable(nil), r.Primary.AppendSortable(nil)), &primary)
	if errors.Is(err, sql.ErrNoRows) {
		return indexeddb.Key{}, nil
	}
	if err != nil {
		return indexeddb.Key{}, err
	}
	return indexeddb.DecodeWholeSortable(primary)
}
