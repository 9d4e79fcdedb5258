package layout

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/ordered"
	"github.com/ledgerd/ledger/permazen/encoding"
	"github.com/ledgerd/ledger/permazen/schema"
)

// Object is an object in memory, with encoded values.
type Object struct {
	ID   encoding.ObjID
	Type *Type
	// Values are the values of counters, and of fields with one value that is not the default, by
	// storage id.
	Values map[uint32][]byte
	// Collections are the rows of sets, lists and maps by storage id. A row maps the part of the
	// key after the field to the value.
	Collections map[uint32]map[string][]byte
}

// NewObject returns an object with default values; its counters are 0.
func NewObject(id encoding.ObjID, t *Type) *Object {
	o := &Object{ID: id, Type: t, Values: map[uint32][]byte{}, Collections: map[uint32]map[string][]byte{}}
	for _, f := range t.Fields {
		if f.Model.Kind == schema.Counter {
			o.Values[f.ID] = CounterValue(0)
		}
	}
	return o
}

// Clone returns a copy that shares no maps with o.
func (o *Object) Clone() *Object {
	c := &Object{ID: o.ID, Type: o.Type, Values: maps.Clone(o.Values), Collections: map[uint32]map[string][]byte{}}
	for id, rows := range o.Collections {
		c.Collections[id] = maps.Clone(rows)
	}
	return c
}

// Set sets a counter or a field with one value.
func (o *Object) Set(f *Field, value []byte) {
	if f.Codec != nil && bytes.Equal(value, f.Default) {
		delete(o.Values, f.ID)
		return
	}
	o.Values[f.ID] = value
}

// Value returns the value of a field with one value.
func (o *Object) Value(f *Field) []byte {
	if v, ok := o.Values[f.ID]; ok {
		return v
	}
	return f.Default
}

// Rows returns the rows of a collection for modification.
func (o *Object) Rows(f *Field) map[string][]byte {
	if o.Collections[f.ID] == nil {
		o.Collections[f.ID] = map[string][]byte{}
	}
	return o.Collections[f.ID]
}

// List returns the elements of a list.
func (o *Object) List(f *Field) [][]byte {
	rows := o.Collections[f.ID]
	list := make([][]byte, 0, len(rows))
	for _, key := range slices.Sorted(maps.Keys(rows)) {
		list = append(list, rows[key])
	}
	return list
}

// SetList sets the elements of a list.
func (o *Object) SetList(f *Field, list [][]byte) {
	rows := make(map[string][]byte, len(list))
	for i, e := range list {
		rows[string(encoding.AppendUint(nil, uint32(i)))] = e
	}
	o.Collections[f.ID] = rows
}

// Each calls emit with all rows of the object and its index rows. Keys are borrowed until emit
// returns. o may be nil.
func (o *Object) Each(emit func(key, value []byte)) {
	if o == nil {
		return
	}
	emit(o.ID[:], MetaValue(o.Type.Schema.Index))
	index := func(key []byte) { emit(key, nil) }
	var buf []byte
	for id, value := range o.Values {
		buf = encoding.AppendUint(append(buf[:0], o.ID[:]...), id)
		emit(buf, value)
	}
	for id, rows := range o.Collections {
		f := o.Type.ByID(id)
		for content, value := range rows {
			buf = append(encoding.AppendUint(append(buf[:0], o.ID[:]...), id), content...)
			emit(buf, value)
			f.ElementKeys(o.ID, []byte(content), value, index)
		}
	}
	o.Type.ObjectKeys(o.ID, o.Value, index)
}

// all returns the rows of Each.
func (o *Object) all() map[string][]byte {
	rows := map[string][]byte{}
	o.Each(func(key, value []byte) { rows[string(key)] = value })
	return rows
}

// Replace replaces the rows of before in w by those of after. Either may be nil. Errors: those of w
// and of ctx.
func Replace(ctx context.Context, w ordered.Writer, before, after *Object) error {
	a, b := before.all(), after.all()
	for _, key := range slices.Sorted(maps.Keys(a)) {
		if _, ok := b[key]; ok {
			continue
		}
		if err := w.Delete(ctx, []byte(key)); err != nil {
			return fmt.Errorf("remove the row %x: %w", key, err)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(b)) {
		if v, ok := a[key]; ok && bytes.Equal(v, b[key]) {
			continue
		}
		if err := w.Put(ctx, []byte(key), b[key]); err != nil {
			return fmt.Errorf("write the row %x: %w", key, err)
		}
	}
	return nil
}

// ReadMeta reads the first row of an object and returns its type, or nil when the object does not
// exist. Errors: base.ErrCorrupt, those of r and of ctx.
func (t *Tables) ReadMeta(ctx context.Context, r ordered.Reader, id encoding.ObjID) (*Type, error) {
	value, err := r.Get(ctx, id[:])
	if isNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read object %s: %w", id, err)
	}
	return t.typeOf(id, value)
}

// typeOf decodes the first row of an object.
func (t *Tables) typeOf(id encoding.ObjID, value []byte) (*Type, error) {
	index, _, err := ParseMeta(value)
	if err != nil {
		return nil, fmt.Errorf("read object %s: %w", id, err)
	}
	typ := t.TypeOf(id, index)
	if typ == nil {
		return nil, fmt.Errorf("object %s has schema %d, which has no such type: %w", id, index, base.ErrCorrupt)
	}
	return typ, nil
}

// ReadObject reads an object in one scan. It returns nil when the object does not exist. Errors:
// base.ErrCorrupt, those of r and of ctx.
func (t *Tables) ReadObject(ctx context.Context, r ordered.Reader, id encoding.ObjID) (*Object, error) {
	var o *Object
	for row, err := range ordered.Rows(ctx, r, ordered.Prefix(id[:])) {
		switch {
		case err != nil:
		case o != nil:
			err = o.add(row)
		case len(row.Key) > IDBytes:
			return nil, nil // rows without a first row
		default:
			typ, err := t.typeOf(id, row.Value)
			if err != nil {
				return nil, err
			}
			o = &Object{ID: id, Type: typ, Values: map[uint32][]byte{}, Collections: map[uint32]map[string][]byte{}}
		}
		if err != nil {
			return nil, fmt.Errorf("read object %s: %w", id, err)
		}
	}
	return o, nil
}

func (o *Object) add(row ordered.Row) error {
	n, size, err := encoding.StrictUint(row.Key[IDBytes:])
	if err != nil {
		return fmt.Errorf("row %x: %w", row.Key, err)
	}
	content := row.Key[IDBytes+size:]
	f := o.Type.ByID(n)
	switch {
	case f == nil:
		return fmt.Errorf("row %x: type %s has no such field: %w", row.Key, o.Type.Model.Name, base.ErrCorrupt)
	case f.Sub != nil:
		o.Rows(f)[string(content)] = row.Value
	case len(content) > 0:
		return fmt.Errorf("row %x: %d bytes follow the field: %w", row.Key, len(content), base.ErrCorrupt)
	default:
		o.Values[n] = row.Value
	}
	return nil
}
