package schema

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf16"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/permazen/encoding"
)

// Bounds of composite indexes, and of types, fields, indexes and dimensions of arrays in a model.
const (
	MinIndexFields = 2
	MaxIndexFields = 4
	MaxItems       = 10_000
)

// Normalize sorts types, fields and indexes by name, names sub-fields, and checks the model.
// Callers must normalize a model before any other use; Parse does so. Errors: base.ErrInvalid,
// base.ErrUnsupported for an unknown encoding, base.ErrTooLarge.
func (m *Model) Normalize() error {
	n := len(m.Types)
	for _, t := range m.Types {
		n += len(t.Indexes)
		for _, f := range t.Fields {
			n += f.items()
		}
	}
	if n > MaxItems {
		return fmt.Errorf("model has %d types, fields, indexes and dimensions, at most %d are allowed: %w", n, MaxItems, base.ErrTooLarge)
	}
	slices.SortStableFunc(m.Types, func(a, b *ObjectType) int { return compareNames(a.Name, b.Name) })
	for i, t := range m.Types {
		if i > 0 && m.Types[i-1].Name == t.Name {
			return fmt.Errorf("object type %q is there twice: %w", t.Name, base.ErrInvalid)
		}
		if err := t.normalize(m); err != nil {
			return fmt.Errorf("object type %.100q: %w", t.Name, err)
		}
	}
	return m.checkNumbers()
}

// items counts a field, its sub-fields, and dimensions of arrays: each has an encoding in memory.
func (f *Field) items() int {
	n := 1 + f.Dimensions + strings.Count(f.Encoding, "[]")
	for _, s := range f.Sub {
		n += s.items()
	}
	return n
}

// checkNumbers refuses one storage id for two SchemaIds, and two storage ids for one SchemaId.
func (m *Model) checkNumbers() error {
	ids, numbers := map[uint32]string{}, map[string]uint32{}
	for it := range m.items() {
		if it.wanted == 0 {
			continue
		}
		if it.wanted > encoding.MaxUint {
			return fmt.Errorf("storage id %d is too large: %w", it.wanted, base.ErrInvalid)
		}
		if id, ok := ids[it.wanted]; ok && id != it.id {
			return fmt.Errorf("storage id %d stands for two items: %w", it.wanted, base.ErrInvalid)
		}
		if n, ok := numbers[it.id]; ok && n != it.wanted {
			return fmt.Errorf("one item has the storage ids %d and %d: %w", n, it.wanted, base.ErrInvalid)
		}
		ids[it.wanted], numbers[it.id] = it.id, it.wanted
	}
	return nil
}

// compareNames compares names by UTF-16 code units.
func compareNames(a, b string) int {
	return slices.Compare(utf16.Encode([]rune(a)), utf16.Encode([]rune(b)))
}

// checkName refuses names that are no Java identifiers.
func checkName(s string) error {
	for i, r := range s {
		start := unicode.IsLetter(r) || unicode.Is(unicode.Nl, r) || unicode.Is(unicode.Sc, r) || unicode.Is(unicode.Pc, r)
		part := unicode.IsDigit(r) || unicode.Is(unicode.Mn, r) || unicode.Is(unicode.Mc, r)
		if !start && (i == 0 || !part) {
			return fmt.Errorf("name %.100q is no identifier: %w", s, base.ErrInvalid)
		}
	}
	if s == "" {
		return fmt.Errorf("name is empty: %w", base.ErrInvalid)
	}
	return nil
}

func (t *ObjectType) normalize(m *Model) error {
	if err := checkName(t.Name); err != nil {
		return err
	}
	slices.SortStableFunc(t.Fields, func(a, b *Field) int { return compareNames(a.Name, b.Name) })
	for i, f := range t.Fields {
		if i > 0 && t.Fields[i-1].Name == f.Name {
			return fmt.Errorf("field %q is there twice: %w", f.Name, base.ErrInvalid)
		}
		err := checkName(f.Name)
		if err == nil {
			err = f.normalize(m, false)
		}
		if err != nil {
			return fmt.Errorf("field %.100q: %w", f.Name, err)
		}
	}
	slices.SortStableFunc(t.Indexes, func(a, b *CompositeIndex) int { return compareNames(a.Name, b.Name) })
	for i, x := range t.Indexes {
		if err := x.check(t, t.Indexes[:i]); err != nil {
			return fmt.Errorf("index %.100q: %w", x.Name, err)
		}
	}
	return nil
}

func (f *Field) normalize(m *Model, sub bool) error {
	names := f.Kind.subNames()
	if len(f.Sub) != len(names) {
		return fmt.Errorf("has %d sub-fields, want %d: %w", len(f.Sub), len(names), base.ErrInvalid)
	}
	for i, s := range f.Sub {
		if s.Name != "" && s.Name != names[i] {
			return fmt.Errorf("sub-field has the name %.100q, want %s: %w", s.Name, names[i], base.ErrInvalid)
		}
		s.Name = names[i]
		if !s.Kind.IsValue() {
			return fmt.Errorf("sub-field %s is a %s: %w", s.Name, s.Kind, base.ErrInvalid)
		}
		if err := s.normalize(m, true); err != nil {
			return fmt.Errorf("sub-field %s: %w", s.Name, err)
		}
	}
	switch f.Kind {
	case Simple:
		_, err := encoding.Builtin(f.Encoding)
		return err
	case Reference:
		return f.checkReference(m, sub)
	case Enum, EnumArray:
		return f.checkEnum()
	case Counter, Set, List, Map:
		return nil
	}
	return fmt.Errorf("%s is not known: %w", f.Kind, base.ErrInvalid)
}

func (f *Field) checkReference(m *Model, sub bool) error {
	f.Indexed = true
	switch {
	case int(f.InverseDelete) >= len(actionNames):
		return fmt.Errorf("%s is not known: %w", f.InverseDelete, base.ErrInvalid)
	case f.InverseDelete == Remove && !sub:
		return fmt.Errorf("%s is for sub-fields: %w", f.InverseDelete, base.ErrInvalid)
	case f.InverseDelete == Ignore && !f.AllowDeleted:
		return fmt.Errorf("%s needs references to deleted objects to be allowed: %w", f.InverseDelete, base.ErrInvalid)
	}
	if !f.Limited {
		f.Types = nil
		return nil
	}
	slices.SortFunc(f.Types, compareNames)
	f.Types = slices.Compact(f.Types)
	for _, name := range f.Types {
		if m.Type(name) == nil {
			return fmt.Errorf("refers to the object type %.100q, which is not there: %w", name, base.ErrInvalid)
		}
	}
	return nil
}

func (f *Field) checkEnum() error {
	if f.Kind == EnumArray && (f.Dimensions < 1 || f.Dimensions > encoding.MaxDimensions) {
		return fmt.Errorf("has %d dimensions: %w", f.Dimensions, base.ErrInvalid)
	}
	seen := map[string]bool{"null": true}
	for _, name := range f.Identifiers {
		if err := checkName(name); err != nil {
			return err
		}
		if seen[name] {
			return fmt.Errorf("identifier %.100q is not allowed or there twice: %w", name, base.ErrInvalid)
		}
		seen[name] = true
	}
	return nil
}

func (x *CompositeIndex) check(t *ObjectType, before []*CompositeIndex) error {
	if err := checkName(x.Name); err != nil {
		return err
	}
	if len(x.Fields) < MinIndexFields || len(x.Fields) > MaxIndexFields {
		return fmt.Errorf("has %d fields, want %d to %d: %w", len(x.Fields), MinIndexFields, MaxIndexFields, base.ErrInvalid)
	}
	for i, name := range x.Fields {
		if f := t.Field(name); f == nil || !f.Kind.IsValue() || slices.Contains(x.Fields[:i], name) {
			return fmt.Errorf("field %.100q is not there, has not one value, or is there twice: %w", name, base.ErrInvalid)
		}
	}
	for _, o := range before {
		n := min(len(o.Fields), len(x.Fields))
		if o.Name == x.Name || slices.Equal(o.Fields[:n], x.Fields[:n]) {
			return fmt.Errorf("has the name or begins with the fields of index %.100q: %w", o.Name, base.ErrInvalid)
		}
	}
	return nil
}

// Equal reports whether two models have the same XML.
func (m *Model) Equal(o *Model) bool { return m.XML() == o.XML() }
