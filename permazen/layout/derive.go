package layout

import (
	"fmt"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/permazen/encoding"
	"github.com/ledgerd/ledger/permazen/schema"
)

// Values returns the stored bytes of a field with one value, or its default when it has no row.
type Values func(f *Field) []byte

// ObjectKeys calls emit with the keys of the index rows that follow from an object's fields with
// one value: schema index, simple indexes, composite indexes. Keys are borrowed until emit returns.
func (t *Type) ObjectKeys(id encoding.ObjID, values Values, emit func(key []byte)) {
	buf := append(ObjectsPrefix(t.Schema.Index), id[:]...)
	emit(buf)
	for _, f := range t.Fields {
		if f.Model.IsIndexed() {
			buf = f.AppendIndexKey(buf[:0], values(f), id, nil)
			emit(buf)
		}
	}
	for _, x := range t.Indexes {
		buf = x.AppendKey(buf[:0], id, values)
		emit(buf)
	}
}

// ElementKeys calls emit with the keys of the index rows that follow from a row of a collection.
// content is the part of the row's key after the field. Keys are borrowed until emit returns.
func (f *Field) ElementKeys(id encoding.ObjID, content, value []byte, emit func(key []byte)) {
	first := f.Sub[0]
	switch f.Model.Kind {
	case schema.List:
		if first.Model.IsIndexed() {
			emit(first.AppendIndexKey(nil, value, id, content))
		}
	case schema.Set, schema.Map:
		if first.Model.IsIndexed() {
			emit(first.AppendIndexKey(nil, content, id, nil))
		}
		if len(f.Sub) > 1 && f.Sub[1].Model.IsIndexed() {
			emit(f.Sub[1].AppendIndexKey(nil, value, id, content))
		}
	}
}

// AppendIndexKey appends the key of an index row. rest is the index in a list, or the key in a map.
func (f *Field) AppendIndexKey(dst, value []byte, id encoding.ObjID, rest []byte) []byte {
	return append(append(append(append(dst, f.Prefix...), value...), id[:]...), rest...)
}

// AppendKey appends the key of an index row.
func (x *Composite) AppendKey(dst []byte, id encoding.ObjID, values Values) []byte {
	dst = append(dst, x.Prefix...)
	for _, f := range x.Fields {
		dst = append(dst, values(f)...)
	}
	return append(dst, id[:]...)
}

// IndexRow is the decoded key of an index row. Its slices share memory with the key.
type IndexRow struct {
	// Index is the storage id of the index, or 0 for the schema index.
	Index  uint32
	Values [][]byte
	ID     encoding.ObjID
	Rest   []byte
}

// ParseIndexRow decodes a key of any index but the schema index. Errors: base.ErrCorrupt.
func (t *Tables) ParseIndexRow(key []byte) (IndexRow, error) {
	index, n, err := encoding.StrictUint(key)
	if err != nil {
		return IndexRow{}, err
	}
	shape := t.indexes[index]
	if shape == nil {
		return IndexRow{}, fmt.Errorf("no index has storage id %d: %w", index, base.ErrCorrupt)
	}
	row := IndexRow{Index: index}
	err = shape.parse(&row, key[n:])
	return row, err
}

func (s *Shape) parse(row *IndexRow, rest []byte) (err error) {
	for _, c := range s.Codecs {
		n, err := c.Len(rest)
		if err != nil {
			return err
		}
		row.Values = append(row.Values, rest[:n])
		rest = rest[n:]
	}
	if row.ID, err = encoding.ReadObjID(rest); err != nil {
		return err
	}
	row.Rest = rest[IDBytes:]
	if s.Rest == NoRest && len(row.Rest) > 0 {
		return fmt.Errorf("%d bytes follow the object id of an index row: %w", len(row.Rest), base.ErrCorrupt)
	}
	if s.Rest == ListIndex {
		_, n, err := encoding.StrictUint(row.Rest)
		if err == nil && n != len(row.Rest) {
			err = base.ErrCorrupt
		}
		if err != nil {
			return fmt.Errorf("index in a list: %w", err)
		}
	}
	return nil
}

// ParseObjectsRow decodes a key of the schema index. Errors: base.ErrCorrupt.
func ParseObjectsRow(key []byte) (schemaIndex uint32, id encoding.ObjID, err error) {
	schemaIndex, n, err := encoding.StrictUint(key[2:])
	if err != nil {
		return 0, id, err
	}
	if id, err = encoding.ReadObjID(key[2+n:]); err != nil {
		return 0, id, err
	}
	if len(key) != 2+n+IDBytes || schemaIndex == 0 {
		return 0, id, fmt.Errorf("row of the schema index has the wrong length or number: %w", base.ErrCorrupt)
	}
	return schemaIndex, id, nil
}

// Decode decodes a row of the field. content is the part of the row's key after the field. key is
// the index in a list, as int, or the key in a map. v is the element or value, int64 for a counter.
// Errors: base.ErrCorrupt.
func (f *Field) Decode(content, value []byte) (key, v any, err error) {
	switch f.Model.Kind {
	case schema.Counter:
		v, err = ParseCounter(value)
	case schema.Set:
		v, err = f.Sub[0].Codec.Value(content)
	case schema.List:
		var i uint32
		if i, _, err = encoding.Uint(content); err == nil {
			key = int(i)
			v, err = f.Sub[0].Codec.Value(value)
		}
	case schema.Map:
		if key, err = f.Sub[0].Codec.Value(content); err == nil {
			v, err = f.Sub[1].Codec.Value(value)
		}
	default:
		v, err = f.Codec.Value(value)
	}
	return key, v, err
}
