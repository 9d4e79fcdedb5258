package schema

import (
	"fmt"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/permazen/encoding"
)

// Kind is the kind of a field.
type Kind uint8

// The kinds of fields.
const (
	// Simple fields have one value of an encoding.
	Simple Kind = iota
	// Reference fields refer to an object or are null. They are always indexed.
	Reference
	// Enum fields have one of several identifiers or are null.
	Enum
	// EnumArray fields have an array of identifiers or are null.
	EnumArray
	// Counter fields have a number; merges sum its changes.
	Counter
	// Set and List fields have elements of one sub-field. Map fields have keys and values.
	Set
	List
	Map
)

var kindTags = [...]string{
	"SimpleField", "ReferenceField", "EnumField", "EnumArrayField", "CounterField", "SetField", "ListField", "MapField",
}

// String returns the XML tag of the kind. SchemaIds of such fields begin with it.
func (k Kind) String() string {
	if int(k) < len(kindTags) {
		return kindTags[k]
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// IsValue reports whether fields of the kind have one value. Only such fields can be sub-fields or
// indexed.
func (k Kind) IsValue() bool { return k <= EnumArray }

// DeleteAction is the treatment of a reference when its target is deleted.
type DeleteAction uint8

// The delete actions.
const (
	// Exception refuses the deletion.
	Exception DeleteAction = iota
	// Ignore leaves the reference dangling.
	Ignore
	// Nullify makes the reference null.
	Nullify
	// Remove takes the reference out of its collection.
	Remove
	// Delete deletes the object with the reference.
	Delete
)

var actionNames = [...]string{"EXCEPTION", "IGNORE", "NULLIFY", "REMOVE", "DELETE"}

// String returns the name of the action in XML.
func (a DeleteAction) String() string {
	if int(a) < len(actionNames) {
		return actionNames[a]
	}
	return fmt.Sprintf("action %d", uint8(a))
}

// ParseDeleteAction parses the name of an action. Errors: base.ErrInvalid.
func ParseDeleteAction(s string) (DeleteAction, error) {
	for i, name := range actionNames {
		if name == s {
			return DeleteAction(i), nil
		}
	}
	return 0, fmt.Errorf("%.40q is no delete action: %w", s, base.ErrInvalid)
}

// Model is one schema: a set of object types.
type Model struct{ Types []*ObjectType }

// ObjectType is a type of objects.
type ObjectType struct {
	Name string
	// StorageID requests a storage id in the database; 0 requests the next free one.
	StorageID uint32
	Fields    []*Field
	Indexes   []*CompositeIndex
}

// CompositeIndex is an index on 2 to 4 fields with one value each.
type CompositeIndex struct {
	Name      string
	StorageID uint32
	Fields    []string
}

// Field is a field of an object type, or a sub-field.
type Field struct {
	Kind Kind
	// Name may be empty in a sub-field until Model.Normalize sets it.
	Name      string
	StorageID uint32
	// Encoding is the id of the encoding of a Simple field.
	Encoding string
	// Indexed is for fields with one value. References are always indexed.
	Indexed bool
	// Identifiers are for Enum and EnumArray, Dimensions for EnumArray.
	Identifiers []string
	Dimensions  int
	// The next fields are for references. Types are the allowed target types. If Limited is false,
	// all types are allowed.
	InverseDelete DeleteAction
	ForwardDelete bool
	AllowDeleted  bool
	Limited       bool
	Types         []string
	// Sub is the element of a Set or List, or the key and the value of a Map.
	Sub []*Field
}

// IsIndexed reports whether the field has a simple index.
func (f *Field) IsIndexed() bool { return f.Kind == Reference || f.Kind.IsValue() && f.Indexed }

// Codec returns the encoding of a field with one value. Errors: base.ErrUnsupported,
// base.ErrInvalid.
func (f *Field) Codec() (*encoding.Encoding, error) {
	switch f.Kind {
	case Simple:
		return encoding.Builtin(f.Encoding)
	case Reference:
		return encoding.Reference, nil
	case Enum:
		return encoding.Enum(f.Identifiers), nil
	case EnumArray:
		return encoding.Array(encoding.Enum(f.Identifiers), f.Dimensions), nil
	}
	return nil, fmt.Errorf("a %s has no encoding: %w", f.Kind, base.ErrInvalid)
}

// Type returns the type with a name, or nil.
func (m *Model) Type(name string) *ObjectType {
	for _, t := range m.Types {
		if t.Name == name {
			return t
		}
	}
	return nil
}

// Field returns the field with a name, or nil.
func (t *ObjectType) Field(name string) *Field {
	for _, f := range t.Fields {
		if f.Name == name {
			return f
		}
	}
	return nil
}

// subNames are the names of sub-fields.
func (k Kind) subNames() []string {
	switch k {
	case Set, List:
		return []string{"element"}
	case Map:
		return []string{"key", "value"}
	}
	return nil
}
