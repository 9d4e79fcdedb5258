package permazen

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/permazen/encoding"
	"github.com/ledgerd/ledger/permazen/layout"
	"github.com/ledgerd/ledger/permazen/schema"
)

// field returns a field of an object. Without kinds, the field must have one value.
func (tx *Tx) field(ctx context.Context, id ObjID, name string, kinds ...schema.Kind) (*layout.Field, error) {
	t, err := tx.use(ctx, id)
	if err != nil {
		return nil, err
	}
	f := t.Field(name)
	if f == nil {
		return nil, fmt.Errorf("field %.100q of type %s: %w", name, t.Model.Name, ErrNoField)
	}
	if len(kinds) == 0 && f.Model.Kind.IsValue() {
		return f, nil
	}
	for _, k := range kinds {
		if f.Model.Kind == k {
			return f, nil
		}
	}
	return nil, fmt.Errorf("field %s is a %s: %w", name, f.Model.Kind, base.ErrInvalid)
}

// rowKey returns the key of a field's row, where content names an element of a collection.
func rowKey(id ObjID, f *layout.Field, content []byte) []byte {
	return append(append(append(make([]byte, 0, len(id)+5+len(content)), id[:]...), f.Prefix...), content...)
}

// find returns the value of a row. An absent row is no error.
func (tx *Tx) find(ctx context.Context, key []byte) (value []byte, ok bool, err error) {
	value, err = tx.r.Get(ctx, key)
	if errors.Is(err, base.ErrNotFound) {
		return nil, false, nil
	}
	return value, err == nil, err
}

// stored returns the encoded value of a field with one value.
func (tx *Tx) stored(ctx context.Context, id ObjID, f *layout.Field) ([]byte, error) {
	value, ok, err := tx.find(ctx, rowKey(id, f, nil))
	if err != nil {
		return nil, fmt.Errorf("read field %s of object %s: %w", f.Name(), id, err)
	}
	if !ok {
		return f.Default, nil
	}
	return value, nil
}

// Get returns the value of a field with one value. Errors: ErrNoObject, ErrNoType, ErrNoField.
func (tx *Tx) Get(ctx context.Context, id ObjID, field string) (any, error) {
	f, err := tx.field(ctx, id, field)
	if err != nil {
		return nil, fmt.Errorf("get: %w", err)
	}
	b, err := tx.stored(ctx, id, f)
	if err != nil {
		return nil, err
	}
	v, err := f.Codec.Value(b)
	if err != nil {
		return nil, fmt.Errorf("read field %s of object %s: %w", field, id, err)
	}
	return v, nil
}

// Set sets the value of a field with one value. Errors: ErrNoObject, ErrNoType, ErrNoField,
// ErrBadReference, base.ErrInvalid.
func (tx *Tx) Set(ctx context.Context, id ObjID, field string, value any) error {
	if err := tx.writable(); err != nil {
		return err
	}
	f, err := tx.field(ctx, id, field)
	if err != nil {
		return fmt.Errorf("set: %w", err)
	}
	after, err := tx.checkValue(ctx, f, value)
	if err != nil {
		return fmt.Errorf("set: %w", err)
	}
	before, err := tx.stored(ctx, id, f)
	if err != nil || bytes.Equal(before, after) {
		return err
	}
	if err := tx.setStored(ctx, id, f, before, after); err != nil {
		return fmt.Errorf("write field %s of object %s: %w", field, id, err)
	}
	return nil
}

// setStored writes the row of a field with one value and updates its index rows.
func (tx *Tx) setStored(ctx context.Context, id ObjID, f *layout.Field, before, after []byte) error {
	var err error
	if key := rowKey(id, f, nil); bytes.Equal(after, f.Default) {
		err = tx.w.Delete(ctx, key)
	} else {
		err = tx.w.Put(ctx, key, after)
	}
	if err != nil {
		return err
	}
	if f.Model.IsIndexed() {
		if err := tx.moveRow(ctx, f.AppendIndexKey(nil, before, id, nil), f.AppendIndexKey(nil, after, id, nil)); err != nil {
			return err
		}
	}
	for _, x := range f.Composites {
		values := map[*layout.Field][]byte{}
		for _, o := range x.Fields {
			if values[o], err = tx.stored(ctx, id, o); err != nil {
				return err
			}
		}
		key := func(value []byte) []byte {
			values[f] = value
			return x.AppendKey(nil, id, func(o *layout.Field) []byte { return values[o] })
		}
		if err := tx.moveRow(ctx, key(before), key(after)); err != nil {
			return err
		}
	}
	return nil
}

// moveRow replaces an index row by another one.
func (tx *Tx) moveRow(ctx context.Context, from, to []byte) error {
	if err := tx.w.Delete(ctx, from); err != nil {
		return err
	}
	return tx.w.Put(ctx, to, nil)
}

// Counter returns the value of a counter. Errors: ErrNoObject, ErrNoType, ErrNoField.
func (tx *Tx) Counter(ctx context.Context, id ObjID, field string) (int64, error) {
	f, err := tx.field(ctx, id, field, schema.Counter)
	if err != nil {
		return 0, fmt.Errorf("read a counter: %w", err)
	}
	value, ok, err := tx.find(ctx, rowKey(id, f, nil))
	if err != nil || !ok {
		return 0, err // in a view, an object that is not migrated may have no row
	}
	n, err := layout.ParseCounter(value)
	if err != nil {
		return 0, fmt.Errorf("read counter %s of object %s: %w", field, id, err)
	}
	return n, nil
}

// SetCounter sets the value of a counter. Errors: ErrNoObject, ErrNoType, ErrNoField.
func (tx *Tx) SetCounter(ctx context.Context, id ObjID, field string, n int64) error {
	if err := tx.writable(); err != nil {
		return err
	}
	f, err := tx.field(ctx, id, field, schema.Counter)
	if err != nil {
		return fmt.Errorf("set a counter: %w", err)
	}
	return tx.w.Put(ctx, rowKey(id, f, nil), layout.CounterValue(n))
}

// Adjust adds to a counter, with wrap-around. Errors: ErrNoObject, ErrNoType, ErrNoField.
func (tx *Tx) Adjust(ctx context.Context, id ObjID, field string, by int64) error {
	n, err := tx.Counter(ctx, id, field)
	if err != nil {
		return err
	}
	return tx.SetCounter(ctx, id, field, n+by)
}

// Object returns an object in encoded form, or nil when it does not exist. It migrates an object of
// another schema. Errors: ErrNoType.
func (tx *Tx) Object(ctx context.Context, id ObjID) (*layout.Object, error) {
	if _, err := tx.use(ctx, id); err != nil {
		if errors.Is(err, ErrNoObject) {
			return nil, nil
		}
		return nil, err
	}
	return tx.tables.ReadObject(ctx, tx.r, id)
}

// elementIndex returns the part of a list element's key that follows the field.
func elementIndex(i int) []byte { return encoding.AppendUint(nil, uint32(i)) }
