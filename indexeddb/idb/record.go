package idb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/ledgerd/ledger/indexeddb"
	"github.com/ledgerd/ledger/indexeddb/value"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/ordered"
)

// Record is a record that a query returned.
type Record struct {
	// Key is the key of the match: its key in the index, or its primary key.
	Key, PrimaryKey indexeddb.Key
	// Value belongs to the caller.
	Value value.Value
	// Objects are the blobs, files and handles in Value, which refers to them by position.
	Objects []indexeddb.ExternalObject

	store *ObjectStore
	part  []byte // of the primary key
}

// Open returns the content of a blob or file. It can be read until the transaction ends or the
// record is deleted. The caller closes it. Errors: ErrType for a position without content,
// ErrTransactionInactive, ErrUnknown.
func (r *Record) Open(ctx context.Context, position int) (ordered.Value, error) {
	const op = "open a blob"
	if position < 0 || position >= len(r.Objects) || r.Objects[position].Type == indexeddb.ObjectHandle {
		return nil, newError(ErrType, op, "position %d", position)
	}
	if err := r.store.tx.enter(op); err != nil {
		return nil, err
	}
	v, err := r.store.openContent(ctx, r.part, position, r.Objects[position])
	if err != nil {
		return nil, r.store.tx.fail(op, err, false)
	}
	return v, nil
}

// Blob returns a blob, file or handle for a Put into this or another record. Put reads the content,
// so the transaction of r must not have ended.
func (r *Record) Blob(position int) Blob {
	if position < 0 || position >= len(r.Objects) {
		return Blob{err: newError(ErrType, "take a blob", "position %d", position)}
	}
	return Blob{object: &r.Objects[position], from: r, position: position}
}

// Blob is the content of a Blob or File in a value. It is passed to Put with the value.
type Blob struct {
	// Type is the media type, such as "image/png"; it may be empty.
	Type string
	// Size is the length of Content in bytes. It must be exact.
	Size int64
	// Content is read once, to its end. It may be nil when Size is 0.
	Content io.Reader
	// File is set for a File; it has a Name and a modification time.
	File     bool
	Name     string
	Modified time.Time

	from     *Record
	position int
	object   *indexeddb.ExternalObject
	err      error
}

// external returns the external object for b, without its number.
func (b Blob) external() indexeddb.ExternalObject {
	if b.object != nil {
		return *b.object
	}
	o := indexeddb.ExternalObject{Type: indexeddb.ObjectBlob, MediaType: b.Type, Size: b.Size}
	if b.File {
		o.Type, o.Name, o.Modified = indexeddb.ObjectFile, b.Name, indexeddb.ModifiedAt(b.Modified.UnixMicro())
	}
	return o
}

// open returns the content, and a function to call after reading.
func (b Blob) open(ctx context.Context) (io.Reader, func() error, error) {
	if b.from == nil {
		return b.Content, func() error { return nil }, nil
	}
	v, err := b.from.store.openContent(ctx, b.from.part, b.position, *b.object)
	if err != nil {
		return nil, nil, err
	}
	return v, v.Close, nil
}

// openContent opens the content of an external object of a record.
func (s *ObjectStore) openContent(ctx context.Context, part []byte, position int, o indexeddb.ExternalObject) (ordered.Value, error) {
	if o.Size == 0 {
		return empty{}, nil
	}
	v, err := s.tx.r.Open(ctx, s.contentKey(part, position))
	return v, missing(err, position)
}

// missing returns the error for missing content.
func missing(err error, position int) error {
	if errors.Is(err, base.ErrNotFound) {
		return damaged("record", "the content of external object %d is missing", position)
	}
	return err
}

// damaged returns the error for inconsistent rows.
func damaged(where, got string, args ...any) error {
	return &base.CorruptError{Where: where, Got: fmt.Sprintf(got, args...)}
}

// empty is the content of an empty blob. Such a blob has no row.
type empty struct{}

func (empty) Read([]byte) (int, error)          { return 0, io.EOF }
func (empty) ReadAt([]byte, int64) (int, error) { return 0, io.EOF }
func (empty) Size() int64                       { return 0 }
func (empty) Close() error                      { return nil }

// stored is a record in its stored form. Most of the cost of a read is decoding, so fields are
// decoded only on demand.
type stored struct {
	part    []byte        // of the primary key, in row keys
	primary indexeddb.Key // zero until requested
	value   []byte        // serialized; at a cursor, borrowed until it moves
}

// decodeStored splits the row of a record. primary may be zero when it is not known.
func (s *ObjectStore) decodeStored(part []byte, primary indexeddb.Key, pageValue []byte) (stored, error) {
	out := stored{part: part, primary: primary}
	raw, err := pageValue, error(nil)
	if indexeddb.ShortPagePart(part) {
		var row indexeddb.Row
		row, raw, err = indexeddb.DecodePageRow(append(s.records[:len(s.records):len(s.records)], part...), pageValue)
		out.primary = row.Primary
	}
	if err != nil {
		return out, err
	}
	_, out.value, err = indexeddb.DecodeRecord(raw)
	return out, err
}

// primaryKey returns the primary key.
func (r *stored) primaryKey() (indexeddb.Key, error) {
	var err error
	if r.primary.IsZero() {
		r.primary, err = indexeddb.DecodeWholeSortable(r.part)
	}
	return r.primary, err
}

// decode returns the value of a record after Inject, and its external objects.
func (s *ObjectStore) decode(ctx context.Context, r *stored) (value.Value, []indexeddb.ExternalObject, error) {
	b, objects, err := s.serialized(ctx, r)
	if err != nil {
		return nil, nil, err
	}
	v, err := value.Decode(b)
	if err != nil {
		return nil, nil, newError(ErrDataClone, "decode a value", "%w", err)
	}
	if s.meta.Injects() {
		k, err := r.primaryKey()
		if err != nil {
			return nil, nil, err
		}
		var ok bool
		if v, ok = indexeddb.Inject(v, s.meta.KeyPath.Paths[0], k); !ok {
			return nil, nil, damaged("record", "its value cannot have its key")
		}
	}
	return v, objects, nil
}

// serialized returns the serialized value of a record, and its external objects. When the last of
// these contains the value, serialized reads it and omits it from the list.
func (s *ObjectStore) serialized(ctx context.Context, r *stored) ([]byte, []indexeddb.ExternalObject, error) {
	if !value.MayRefer(r.value) {
		return r.value, nil, nil
	}
	w, err := value.Unwrap(r.value)
	if err != nil {
		return nil, nil, newError(ErrDataClone, "decode a value", "%w", err)
	}
	objects, err := s.externals(ctx, r.part)
	if err != nil || w == nil {
		return r.value, objects, err
	}
	if w.Index != len(objects)-1 || objects[w.Index].Size != w.Size {
		return nil, nil, damaged("record", "its value is in an external object that it does not have")
	}
	content, err := s.tx.r.Get(ctx, s.contentKey(r.part, w.Index))
	return content, objects[:w.Index], missing(err, w.Index)
}

// externals returns the external objects of a record, or nil when it has no such row.
func (s *ObjectStore) externals(ctx context.Context, part []byte) ([]indexeddb.ExternalObject, error) {
	return indexeddb.PageObjects(ctx, s.tx.r, append(s.external[:len(s.external):len(s.external)], part...))
}
