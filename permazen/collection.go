package permazen

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"reflect"

	"github.com/ledgerd/ledger/permazen/layout"
	"github.com/ledgerd/ledger/permazen/schema"
)

// Validator is a Go struct that validates itself. Create and Put call Validate before they write.
type Validator interface{ Validate() error }

// Collection accesses objects of one type as Go structs; see Define. It is safe for concurrent use.
type Collection[T any] struct{ st *structType }

// Name returns the name of the object type.
func (c *Collection[T]) Name() string { return c.st.name }

// Create creates an object with the values of v. Errors: ErrInvalidObject, ErrBadReference,
// ErrNoType, base.ErrInvalid.
func (c *Collection[T]) Create(ctx context.Context, tx *Tx, v *T) (Ref[T], error) {
	id, err := tx.newID(ctx, c.st.name)
	if err != nil {
		return Ref[T]{}, fmt.Errorf("create an object: %w", err)
	}
	t, err := tx.typeNamed(c.st.name)
	if err != nil {
		return Ref[T]{}, fmt.Errorf("create an object: %w", err)
	}
	o, err := c.encode(ctx, tx, layout.NewObject(id, t), v, nil)
	if err != nil {
		return Ref[T]{}, fmt.Errorf("create an object: %w", err)
	}
	return Ref[T]{id}, tx.insert(ctx, o)
}

// Get returns an object. Errors: ErrNoObject, ErrNoType.
func (c *Collection[T]) Get(ctx context.Context, tx *Tx, r Ref[T]) (T, error) {
	var v T
	o, t, err := c.object(ctx, tx, r)
	if err != nil {
		return v, err
	}
	if err := c.decode(o, t, reflect.ValueOf(&v).Elem()); err != nil {
		return v, fmt.Errorf("read object %s: %w", r.ID, err)
	}
	return v, nil
}

// object reads an object and its type in the schema of the transaction. It migrates an object of
// another schema, unless tx is a view.
func (c *Collection[T]) object(ctx context.Context, tx *Tx, r Ref[T]) (*layout.Object, *layout.Type, error) {
	o, err := tx.tables.ReadObject(ctx, tx.r, r.ID)
	if err != nil {
		return nil, nil, err
	}
	if o == nil {
		return nil, nil, fmt.Errorf("object %s: %w", r.ID, ErrNoObject)
	}
	t := o.Type
	if t.Schema.Index != tx.schema.Index {
		if t, err = tx.use(ctx, r.ID); err == nil && tx.w != nil {
			o, err = tx.tables.ReadObject(ctx, tx.r, r.ID)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	if t.Model.Name != c.st.name {
		return nil, nil, fmt.Errorf("object %s is a %s, not a %s: %w", r.ID, t.Model.Name, c.st.name, ErrNoType)
	}
	return o, t, nil
}

// Put sets the values of an object from v and writes only changed rows. Errors: ErrNoObject,
// ErrNoType, ErrInvalidObject, ErrBadReference, base.ErrInvalid.
func (c *Collection[T]) Put(ctx context.Context, tx *Tx, r Ref[T], v *T) error {
	if err := tx.writable(); err != nil {
		return err
	}
	before, _, err := c.object(ctx, tx, r)
	if err != nil {
		return fmt.Errorf("put an object: %w", err)
	}
	after, err := c.encode(ctx, tx, before.Clone(), v, before)
	if err == nil {
		err = layout.Replace(ctx, tx.w, before, after)
	}
	if err != nil {
		return fmt.Errorf("put object %s: %w", r.ID, err)
	}
	return nil
}

// Update reads an object, calls f to change the struct, and puts it. Errors: as Get and Put, and
// those of f.
func (c *Collection[T]) Update(ctx context.Context, tx *Tx, r Ref[T], f func(*T) error) error {
	v, err := c.Get(ctx, tx, r)
	if err != nil {
		return err
	}
	if err := f(&v); err != nil {
		return err
	}
	return c.Put(ctx, tx, r, &v)
}

// Delete deletes an object; see Tx.Delete. Errors: ErrReferenced.
func (c *Collection[T]) Delete(ctx context.Context, tx *Tx, r Ref[T]) (bool, error) {
	return tx.Delete(ctx, r.ID)
}

// All yields all objects of the type by ascending id. An error is in the last pair.
func (c *Collection[T]) All(ctx context.Context, tx *Tx) iter.Seq2[Ref[T], error] {
	ids, err := tx.Objects(c.st.name)
	return refs[T](ctx, ids, err)
}

// Find yields the objects with the given values in an index, by ascending id. Tx.Index describes
// index names. There is one value for each field of the index, in the types of Tx. An error is in
// the last pair.
func (c *Collection[T]) Find(ctx context.Context, tx *Tx, index string, values ...any) iter.Seq2[Ref[T], error] {
	x, err := tx.Index(c.st.name, index)
	var ids IDs
	if err == nil {
		ids, err = x.Equal(values...)
	}
	return refs[T](ctx, ids, err)
}

func refs[T any](ctx context.Context, ids IDs, err error) iter.Seq2[Ref[T], error] {
	return func(yield func(Ref[T], error) bool) {
		if err != nil {
			yield(Ref[T]{}, err)
			return
		}
		for id, err := range Each(ctx, ids) {
			if !yield(Ref[T]{id}, err) {
				return
			}
		}
	}
}

// encode sets the values of o from v. before is the old state of the object, nil for a new one.
// Fields that v leaves unchanged keep their rows.
func (c *Collection[T]) encode(ctx context.Context, tx *Tx, o *layout.Object, v *T, before *layout.Object) (*layout.Object, error) {
	if check, ok := any(v).(Validator); ok {
		if err := check.Validate(); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrInvalidObject, err)
		}
	}
	s := reflect.ValueOf(v).Elem()
	old := reflect.New(c.st.typ).Elem()
	if before != nil {
		if err := c.decode(before, o.Type, old); err != nil {
			return nil, err
		}
	}
	for _, sf := range c.st.fields {
		value := s.FieldByIndex(sf.index)
		if before != nil && reflect.DeepEqual(value.Interface(), old.FieldByIndex(sf.index).Interface()) {
			continue
		}
		f := o.Type.Field(sf.model.Name)
		if err := sf.encode(o, f, value); err != nil {
			return nil, fmt.Errorf("field %s: %w", f.Model.Name, err)
		}
	}
	return o, checkTargets(ctx, tx, o, before)
}

// checkTargets checks the references of o that before does not have.
func checkTargets(ctx context.Context, tx *Tx, o, before *layout.Object) (err error) {
	type link struct {
		field uint32
		id    ObjID
	}
	had := map[link]bool{}
	if before != nil {
		before.Targets(func(f *layout.Field, id ObjID) { had[link{f.ID, id}] = true })
	}
	o.Targets(func(f *layout.Field, id ObjID) {
		if err == nil && !had[link{f.ID, id}] {
			if err = tx.checkTarget(ctx, f, id); err != nil {
				err = fmt.Errorf("field %s: %w", f.Name(), err)
			}
		}
	})
	return err
}

func (sf *structField) encode(o *layout.Object, f *layout.Field, v reflect.Value) error {
	switch f.Model.Kind {
	case schema.Counter:
		o.Values[f.ID] = layout.CounterValue(v.Int())
		return nil
	case schema.Set, schema.Map, schema.List:
		return sf.encodeRows(o, f, v)
	}
	b, err := f.Codec.Append(nil, sf.value.to(v))
	if err == nil {
		o.Set(f, b)
	}
	return err
}

func (sf *structField) encodeRows(o *layout.Object, f *layout.Field, v reflect.Value) error {
	delete(o.Collections, f.ID)
	if v.Len() == 0 {
		return nil
	}
	rows := o.Rows(f)
	if f.Model.Kind == schema.List {
		for i := range v.Len() {
			b, err := f.Sub[0].Codec.Append(nil, sf.value.to(v.Index(i)))
			if err != nil {
				return fmt.Errorf("element %d: %w", i, err)
			}
			rows[string(elementIndex(i))] = b
		}
		return layout.CheckLength(v.Len())
	}
	for it := v.MapRange(); it.Next(); {
		key, err := f.Sub[0].Codec.Append(nil, sf.key.to(it.Key()))
		if err != nil {
			return err
		}
		var value []byte
		if f.Model.Kind == schema.Map {
			if value, err = f.Sub[1].Codec.Append(nil, sf.value.to(it.Value())); err != nil {
				return err
			}
		}
		rows[string(key)] = value
	}
	return nil
}

// decode sets s from the fields of an object.
func (c *Collection[T]) decode(o *layout.Object, t *layout.Type, s reflect.Value) error {
	for _, sf := range c.st.fields {
		f := t.Field(sf.model.Name)
		if err := sf.decode(o, f, s.FieldByIndex(sf.index)); err != nil {
			return fmt.Errorf("field %s: %w", f.Model.Name, err)
		}
	}
	return nil
}

func (sf *structField) decode(o *layout.Object, f *layout.Field, to reflect.Value) error {
	switch f.Model.Kind {
	case schema.Counter:
		if b, ok := o.Values[f.ID]; ok {
			n, err := layout.ParseCounter(b)
			to.SetInt(n)
			return err
		}
		return nil
	case schema.List:
		return sf.decodeList(o, f, to)
	case schema.Set, schema.Map:
		return sf.decodeMap(o, f, to)
	}
	b := o.Value(f)
	if bytes.Equal(b, f.Default) {
		return nil // the zero value
	}
	v, err := f.Codec.Value(b)
	if err == nil {
		to.Set(sf.value.from(v))
	}
	return err
}

func (sf *structField) decodeList(o *layout.Object, f *layout.Field, to reflect.Value) error {
	list := o.List(f)
	if len(list) == 0 {
		return nil
	}
	s := reflect.MakeSlice(to.Type(), 0, len(list))
	for _, b := range list {
		v, err := f.Sub[0].Codec.Value(b)
		if err != nil {
			return err
		}
		s = reflect.Append(s, sf.value.from(v))
	}
	to.Set(s)
	return nil
}

func (sf *structField) decodeMap(o *layout.Object, f *layout.Field, to reflect.Value) error {
	rows := o.Collections[f.ID]
	if len(rows) == 0 {
		return nil
	}
	m := reflect.MakeMapWithSize(to.Type(), len(rows))
	for content, b := range rows {
		key, err := f.Sub[0].Codec.Value([]byte(content))
		if err != nil {
			return err
		}
		value := reflect.Zero(to.Type().Elem())
		if f.Model.Kind == schema.Map {
			v, err := f.Sub[1].Codec.Value(b)
			if err != nil {
				return err
			}
			value = sf.value.from(v)
		}
		m.SetMapIndex(sf.key.from(key), value)
	}
	to.Set(m)
	return nil
}
