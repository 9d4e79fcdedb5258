package permazen

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/permazen/schema"
)

// Ref is a reference to an object whose Go type is T. The zero Ref is null. A field of this type
// can refer only to objects of the type that Define made from T.
type Ref[T any] struct{ ID ObjID }

// IsNull reports whether the reference is null.
func (r Ref[T]) IsNull() bool { return r.ID.IsZero() }

func (Ref[T]) target() reflect.Type { return reflect.TypeFor[T]() }

// Counter is a numeric field. A merge sums the amounts that devices have added.
type Counter int64

// Set is a field with distinct elements.
type Set[T comparable] map[T]struct{}

// SetOf returns a set of the given elements.
func SetOf[T comparable](elements ...T) Set[T] {
	s := Set[T]{}
	for _, e := range elements {
		s[e] = struct{}{}
	}
	return s
}

// Has reports whether the set has an element.
func (s Set[T]) Has(e T) bool {
	_, ok := s[e]
	return ok
}

// Models collects the Go types of one schema.
type Models struct {
	types map[reflect.Type]*structType
	model *schema.Model
}

// structType is a Go struct that Define made an object type.
type structType struct {
	name   string
	typ    reflect.Type
	fields []*structField
	model  *schema.ObjectType
}

// structField is a field of a structType.
type structField struct {
	model *schema.Field
	index []int
	value codec   // of a field with one value, an element, or a map's value
	key   codec   // of a map's key
	sub   []codec // in the order of sub-fields
}

// Define makes a Go struct an object type with the given name. Exported fields with a tag
// `permazen:"name,..."` are its fields. An empty name means the Go name with a lower-case first
// letter. The kind of a field follows from its Go type:
//
//	bool int8 int16 int32 int64 int    boolean byte short int long long
//	float32 float64 uint16             float double char
//	string, []byte, time.Time          String, byte[], Instant; the zero value is null
//	types of package encoding          these; the zero value is null
//	*T                                 what T is, with null: nil
//	Ref[T], ObjID                      reference to objects of T, or to any
//	Counter                            counter
//	Set[T], []T, map[K]V               set, list, map
//
// Words after the name, separated by commas:
//
//	index                              indexed; for a set or list its elements
//	keyindex, valueindex               indexed key or value of a map
//	inverse=exception|ignore|nullify|remove|delete
//	                                   what happens to references when their target is deleted
//	forward                            targets are deleted with the object
//	deleted                            references to objects that do not exist are allowed
//	enum=A|B|C                         a string that is one of these, or null
//	enc=NAME                           another built-in encoding, such as URI or int[]
//	id=N                               the storage id
//
// A field named _ with a tag `permazen:"name:field,field"` defines a composite index. Errors:
// base.ErrInvalid.
func Define[T any](m *Models, name string) (*Collection[T], error) {
	t := reflect.TypeFor[T]()
	if t.Kind() != reflect.Struct || m.types[t] != nil || m.model != nil {
		return nil, fmt.Errorf("define %s as %s: it is no struct, is defined, or the model is made: %w", t, name, base.ErrInvalid)
	}
	st := &structType{name: name, typ: t, model: &schema.ObjectType{Name: name}}
	fields := slices.DeleteFunc(reflect.VisibleFields(t), func(f reflect.StructField) bool { return f.Name == "_" })
	for i := range t.NumField() {
		if f := t.Field(i); f.Name == "_" { // VisibleFields omits fields named _ that hide each other
			fields = append(fields, f)
		}
	}
	for _, f := range fields {
		if err := st.add(f); err != nil {
			return nil, fmt.Errorf("define %s as %s: field %s: %w", t, name, f.Name, err)
		}
	}
	if m.types == nil {
		m.types = map[reflect.Type]*structType{}
	}
	m.types[t] = st
	return &Collection[T]{st}, nil
}

// Model returns the schema of all defined types. Errors: as schema.Model.Normalize.
func (m *Models) Model() (*schema.Model, error) {
	if m.model != nil {
		return m.model, nil
	}
	model := &schema.Model{}
	for _, st := range m.types {
		for _, f := range st.fields {
			for i, c := range f.codecs() {
				if c.target == nil {
					continue
				}
				to := m.types[c.target]
				if to == nil {
					return nil, fmt.Errorf("field %s of %s refers to %s, which is not defined: %w", f.model.Name, st.name, c.target, base.ErrInvalid)
				}
				r := f.model
				if len(f.model.Sub) > 0 {
					r = f.model.Sub[i]
				}
				r.Limited, r.Types = true, []string{to.name}
			}
		}
		model.Types = append(model.Types, st.model)
	}
	if err := model.Normalize(); err != nil {
		return nil, fmt.Errorf("make a schema of Go types: %w", err)
	}
	m.model = model
	return model, nil
}

// codecs returns the codec of the field, or the codecs of its sub-fields in order.
func (f *structField) codecs() []codec {
	if f.sub != nil {
		return f.sub
	}
	return []codec{f.value}
}

const tagName = "permazen"

func (st *structType) add(f reflect.StructField) error {
	tag, ok := f.Tag.Lookup(tagName)
	if !ok || tag == "-" {
		return nil
	}
	if f.Name == "_" {
		name, fields, ok := strings.Cut(tag, ":")
		if !ok {
			return fmt.Errorf("tag %q is no name, colon and fields: %w", tag, base.ErrInvalid)
		}
		st.model.Indexes = append(st.model.Indexes, &schema.CompositeIndex{Name: name, Fields: strings.Split(fields, ",")})
		return nil
	}
	if !f.IsExported() {
		return fmt.Errorf("it is not exported: %w", base.ErrInvalid)
	}
	for i := range f.Index[1:] {
		if st.typ.FieldByIndex(f.Index[:i+1]).Type.Kind() == reflect.Pointer {
			return fmt.Errorf("it is in an embedded pointer: %w", base.ErrInvalid)
		}
	}
	words := strings.Split(tag, ",")
	o, err := parseWords(words[1:])
	if err != nil {
		return err
	}
	sf := &structField{index: f.Index}
	if sf.model, err = sf.make(f.Type, o); err != nil {
		return err
	}
	if sf.model.Name = words[0]; sf.model.Name == "" {
		sf.model.Name = strings.ToLower(f.Name[:1]) + f.Name[1:]
	}
	sf.model.StorageID = o.id
	st.fields = append(st.fields, sf)
	st.model.Fields = append(st.model.Fields, sf.model)
	return nil
}

// words are the options in a tag.
type words struct {
	index, keyIndex, valueIndex, forward, deleted bool
	inverse                                       schema.DeleteAction
	enum                                          []string
	encoding                                      string
	id                                            uint32
}

func parseWords(list []string) (o words, err error) {
	flags := map[string]*bool{
		"index": &o.index, "keyindex": &o.keyIndex, "valueindex": &o.valueIndex, "forward": &o.forward, "deleted": &o.deleted,
	}
	for _, w := range list {
		key, value, _ := strings.Cut(w, "=")
		switch {
		case flags[w] != nil:
			*flags[w] = true
		case key == "inverse":
			if o.inverse, err = schema.ParseDeleteAction(strings.ToUpper(value)); err != nil {
				return o, err
			}
			o.deleted = o.deleted || o.inverse == schema.Ignore
		case key == "enum":
			o.enum = strings.Split(value, "|")
		case key == "enc":
			o.encoding = value
		case key == "id":
			n, err := strconv.ParseUint(value, 10, 31)
			if err != nil {
				return o, fmt.Errorf("id %q: %w", value, base.ErrInvalid)
			}
			o.id = uint32(n)
		default:
			return o, fmt.Errorf("word %q of the tag is not known: %w", w, base.ErrInvalid)
		}
	}
	return o, nil
}

// make returns the schema of a field of a Go type, and sets the conversion of values.
func (sf *structField) make(t reflect.Type, o words) (*schema.Field, error) {
	switch {
	case t == reflect.TypeFor[Counter]():
		return &schema.Field{Kind: schema.Counter}, nil
	case o.encoding != "" || t.Implements(reflect.TypeFor[targeted]()):
	case t.Kind() == reflect.Map && t.Elem() == reflect.TypeFor[struct{}]():
		return sf.collection(schema.Set, o, t.Key())
	case t.Kind() == reflect.Map:
		return sf.collection(schema.Map, o, t.Key(), t.Elem())
	case t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8 && goTypes[t] == "":
		return sf.collection(schema.List, o, t.Elem())
	}
	f, c, err := newCodec(t, o)
	sf.value = c
	return f, err
}

func (sf *structField) collection(kind schema.Kind, o words, subs ...reflect.Type) (*schema.Field, error) {
	f := &schema.Field{Kind: kind}
	for i, t := range subs {
		so := o
		if kind == schema.Map {
			so.index = []bool{o.keyIndex, o.valueIndex}[i]
		}
		sub, c, err := newCodec(t, so)
		if err != nil {
			return nil, err
		}
		f.Sub, sf.sub = append(f.Sub, sub), append(sf.sub, c)
	}
	sf.key, sf.value = sf.sub[0], sf.sub[len(sf.sub)-1]
	return f, nil
}
