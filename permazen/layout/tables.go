package layout

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/ordered"
	"github.com/ledgerd/ledger/permazen/encoding"
	"github.com/ledgerd/ledger/permazen/schema"
)

// Tables are the schemas of a database and the storage ids of their items.
type Tables struct {
	// Schemas are keyed by schema index, storage ids by SchemaId.
	Schemas map[uint32]*Schema
	IDs     map[string]uint32

	types   map[uint32]bool
	indexes map[uint32]*Shape
}

// Schema is a schema with its numbers.
type Schema struct {
	Index uint32
	ID    string
	Model *schema.Model
	// Stored is the value of the schema's row: the compressed document.
	Stored []byte
	// Types are sorted by storage id.
	Types []*Type
}

// Type is an object type in a schema.
type Type struct {
	ID     uint32
	Schema *Schema
	Model  *schema.ObjectType
	// Fields are sorted by storage id and have no sub-fields.
	Fields  []*Field
	Indexes []*Composite
}

// Field is a field or sub-field of a type.
type Field struct {
	ID     uint32
	Model  *schema.Field
	Type   *Type
	Parent *Field // nil unless it is a sub-field
	Sub    []*Field
	// Codec is the encoding of a field with one value, and Default its default value.
	Codec   *encoding.Encoding
	Default []byte
	// Composites are the composite indexes that contain the field.
	Composites []*Composite
	// Prefix is the storage id as it is in keys.
	Prefix []byte
}

// Composite is a composite index of a type.
type Composite struct {
	ID     uint32
	Model  *schema.CompositeIndex
	Fields []*Field
	Prefix []byte
}

// Name returns the name; the parent's name precedes that of a sub-field: "friends.element".
func (f *Field) Name() string {
	if f.Parent != nil {
		return f.Parent.Model.Name + "." + f.Model.Name
	}
	return f.Model.Name
}

// Shape describes the rows of an index.
type Shape struct {
	Name   string
	Codecs []*encoding.Encoding // of the values before the object id
	Rest   Rest
	// Target is set for indexes of references.
	Target bool
}

// Rest is the kind of data after the object id in an index row.
type Rest uint8

// The kinds of Rest.
const (
	NoRest Rest = iota
	ListIndex
	MapKey
)

// New makes tables from schemas with Index and Model. Without Stored it compresses the document. It
// keeps its arguments. ids may have entries that no schema uses. Errors: base.ErrCorrupt when ids
// lacks an entry.
func New(schemas map[uint32]*Schema, ids map[string]uint32) (*Tables, error) {
	t := &Tables{Schemas: map[uint32]*Schema{}, IDs: ids, types: map[uint32]bool{}, indexes: map[uint32]*Shape{}}
	seen := map[string]bool{}
	for _, index := range slices.Sorted(maps.Keys(schemas)) {
		in := schemas[index]
		s := &Schema{Index: index, ID: in.Model.ID(), Model: in.Model, Stored: in.Stored}
		if s.Stored == nil {
			s.Stored = Stored(s.Model)
		}
		if seen[s.ID] {
			return nil, fmt.Errorf("schema %d is there twice: %w", index, base.ErrCorrupt)
		}
		seen[s.ID] = true
		for _, model := range s.Model.Types {
			typ, err := t.newType(s, model)
			if err != nil {
				return nil, fmt.Errorf("schema %d, object type %s: %w", index, model.Name, err)
			}
			s.Types = append(s.Types, typ)
		}
		slices.SortFunc(s.Types, func(a, b *Type) int { return cmp.Compare(a.ID, b.ID) })
		t.Schemas[index] = s
	}
	return t, nil
}

func (t *Tables) number(id string) (uint32, []byte, error) {
	n, ok := t.IDs[id]
	if !ok {
		return 0, nil, fmt.Errorf("%s has no storage id: %w", id, base.ErrCorrupt)
	}
	return n, encoding.AppendUint(nil, n), nil
}

func (t *Tables) newType(s *Schema, model *schema.ObjectType) (*Type, error) {
	typ := &Type{Schema: s, Model: model}
	var err error
	if typ.ID, _, err = t.number(model.ID()); err != nil {
		return nil, err
	}
	t.types[typ.ID] = true
	for _, m := range model.Fields {
		f, err := t.newField(typ, m, nil)
		if err != nil {
			return nil, fmt.Errorf("field %s: %w", m.Name, err)
		}
		typ.Fields = append(typ.Fields, f)
	}
	for _, m := range model.Indexes {
		x := &Composite{Model: m}
		if x.ID, x.Prefix, err = t.number(m.ID(model)); err != nil {
			return nil, err
		}
		shape := &Shape{Name: m.Name}
		for _, name := range m.Fields {
			f := typ.Field(name)
			x.Fields = append(x.Fields, f)
			f.Composites = append(f.Composites, x)
			shape.Codecs = append(shape.Codecs, f.Codec)
		}
		typ.Indexes = append(typ.Indexes, x)
		t.indexes[x.ID] = shape
	}
	slices.SortFunc(typ.Fields, func(a, b *Field) int { return cmp.Compare(a.ID, b.ID) })
	return typ, nil
}

func (t *Tables) newField(typ *Type, m *schema.Field, parent *Field) (*Field, error) {
	f := &Field{Model: m, Type: typ, Parent: parent}
	var pm *schema.Field
	if parent != nil {
		pm = parent.Model
	}
	var err error
	if f.ID, f.Prefix, err = t.number(m.ID(pm)); err != nil {
		return nil, err
	}
	for _, s := range m.Sub {
		sub, err := t.newField(typ, s, f)
		if err != nil {
			return nil, err
		}
		f.Sub = append(f.Sub, sub)
	}
	if !m.Kind.IsValue() {
		return f, nil
	}
	if f.Codec, err = m.Codec(); err != nil {
		return nil, err
	}
	f.Default = f.Codec.Default()
	if m.IsIndexed() {
		shape := &Shape{Name: f.Name(), Codecs: []*encoding.Encoding{f.Codec}, Target: m.Kind == schema.Reference}
		switch {
		case parent != nil && parent.Model.Kind == schema.List:
			shape.Rest = ListIndex
		case parent != nil && parent.Model.Kind == schema.Map && f.Model.Name == "value":
			shape.Rest = MapKey
		}
		t.indexes[f.ID] = shape
	}
	return f, nil
}

// IsType reports whether a storage id belongs to an object type in any schema.
func (t *Tables) IsType(id uint32) bool { return t.types[id] }

// Index returns the shape of the index with a storage id, or nil when no schema has such an index.
func (t *Tables) Index(id uint32) *Shape { return t.indexes[id] }

// Indexes returns the storage ids of all indexes, sorted.
func (t *Tables) Indexes() []uint32 { return slices.Sorted(maps.Keys(t.indexes)) }

// TargetIndexes returns the storage ids of the indexes of references, sorted.
func (t *Tables) TargetIndexes() (ids []uint32) {
	for _, id := range t.Indexes() {
		if t.indexes[id].Target {
			ids = append(ids, id)
		}
	}
	return ids
}

// TypeOf returns the type of an object in a schema, or nil.
func (t *Tables) TypeOf(id encoding.ObjID, schemaIndex uint32) *Type {
	if s := t.Schemas[schemaIndex]; s != nil {
		return s.Type(id.Type())
	}
	return nil
}

// Find returns the schema with a SchemaId, or nil.
func (t *Tables) Find(id string) *Schema {
	for _, s := range t.Schemas {
		if s.ID == id {
			return s
		}
	}
	return nil
}

// Type returns the type with a storage id, or nil.
func (s *Schema) Type(id uint32) *Type {
	i, ok := slices.BinarySearchFunc(s.Types, id, func(t *Type, id uint32) int { return cmp.Compare(t.ID, id) })
	if !ok {
		return nil
	}
	return s.Types[i]
}

// Named returns the type with a name, or nil.
func (s *Schema) Named(name string) *Type {
	for _, t := range s.Types {
		if t.Model.Name == name {
			return t
		}
	}
	return nil
}

// ByID returns the field with a storage id, or nil. It ignores sub-fields.
func (t *Type) ByID(id uint32) *Field {
	i, ok := slices.BinarySearchFunc(t.Fields, id, func(f *Field, id uint32) int { return cmp.Compare(f.ID, id) })
	if !ok {
		return nil
	}
	return t.Fields[i]
}

// Field returns the field with a name, or nil. It ignores sub-fields.
func (t *Type) Field(name string) *Field {
	for _, f := range t.Fields {
		if f.Model.Name == name {
			return f
		}
	}
	return nil
}

// MayRefer reports whether a reference field may refer to objects of the type in id.
func (f *Field) MayRefer(id encoding.ObjID) bool {
	if !f.Model.Limited {
		return true
	}
	for _, t := range f.Type.Schema.Types {
		if t.ID == id.Type() {
			return slices.Contains(f.Model.Types, t.Model.Name)
		}
	}
	return false
}

// HasObjects reports whether the schema index lists objects of a schema. Errors: those of r and of
// ctx.
func (t *Tables) HasObjects(ctx context.Context, r ordered.Reader, index uint32) (bool, error) {
	rg := ordered.Prefix(ObjectsPrefix(index))
	rg.KeysOnly = true
	it := r.Iter(rg)
	has := it.Next(ctx)
	if err := errors.Join(it.Err(), it.Close()); err != nil {
		return false, fmt.Errorf("look for objects of schema %d: %w", index, err)
	}
	return has, nil
}
