package schema

import (
	"crypto/sha256"
	"encoding/hex"
	"iter"
	"maps"
	"slices"
	"unicode/utf16"
)

// A SchemaId is the kind of an item, "_", and 32 hexadecimal digits. The digits are the XOR of both
// halves of the SHA-256 of a stream that describes the item's encoding. Strings have the form of
// Java's DataOutput: a length of 2 bytes, then modified UTF-8. Numbers have 4 bytes, big-endian.

type identity struct{ stream []byte }

func (d *identity) text(s string) {
	var b []byte
	for _, u := range utf16.Encode([]rune(s)) {
		switch {
		case u >= 1 && u < 0x80:
			b = append(b, byte(u))
		case u < 0x800:
			b = append(b, 0xc0|byte(u>>6), 0x80|byte(u)&0x3f)
		default:
			b = append(b, 0xe0|byte(u>>12), 0x80|byte(u>>6)&0x3f, 0x80|byte(u)&0x3f)
		}
	}
	d.stream = append(append(d.stream, byte(len(b)>>8), byte(len(b))), b...)
}

func (d *identity) texts(list []string) {
	d.number(len(list))
	for _, s := range list {
		d.text(s)
	}
}

func (d *identity) number(n int) {
	d.stream = append(d.stream, byte(n>>24), byte(n>>16), byte(n>>8), byte(n))
}

func (d *identity) flag(b bool) {
	if b {
		d.stream = append(d.stream, 1)
	} else {
		d.stream = append(d.stream, 0)
	}
}

func (d *identity) sum(typeCode string) string {
	h := sha256.Sum256(d.stream)
	half := h[:16]
	for i := range half {
		half[i] ^= h[16+i]
	}
	return typeCode + "_" + hex.EncodeToString(half)
}

// field writes a field to the stream. whole selects the form in the identity of a whole schema.
func (d *identity) field(f, parent *Field, whole bool) {
	d.text(f.Kind.String())
	d.text(f.Name)
	if !f.Kind.IsValue() {
		for _, s := range f.Sub {
			d.field(s, f, whole)
		}
		return
	}
	d.flag(parent != nil)
	if parent != nil {
		d.text(parent.Kind.String())
		d.text(parent.Name)
	}
	if f.Kind == Simple {
		d.text(f.Encoding)
	}
	d.flag(whole)
	if whole {
		d.flag(f.IsIndexed())
	}
	switch f.Kind {
	case Enum, EnumArray:
		d.texts(f.Identifiers)
		if f.Kind == EnumArray {
			d.number(f.Dimensions)
		}
	case Reference:
		d.flag(whole)
		if !whole {
			return
		}
		d.text(f.InverseDelete.String())
		d.flag(f.ForwardDelete)
		d.flag(f.AllowDeleted)
		d.flag(f.Limited)
		if f.Limited {
			d.texts(f.Types)
		}
	}
}

const (
	indexCode  = "CompositeIndex"
	typeCode   = "ObjectType"
	schemaCode = "Schema"
)

func (d *identity) index(x *CompositeIndex, t *ObjectType) {
	d.text(indexCode)
	d.text(x.Name)
	d.number(len(x.Fields))
	d.flag(true)
	for _, name := range x.Fields {
		d.flag(true)
		d.field(t.Field(name), nil, false)
	}
}

func (d *identity) objectType(t *ObjectType, whole bool) {
	d.text(typeCode)
	d.text(t.Name)
	d.flag(whole)
	if !whole {
		return
	}
	d.number(len(t.Fields))
	for _, f := range t.Fields {
		d.field(f, nil, true)
	}
	d.number(len(t.Indexes))
	for _, x := range t.Indexes {
		d.index(x, t)
	}
}

// ID returns the SchemaId of the type. It depends only on the type's name.
func (t *ObjectType) ID() string {
	var d identity
	d.objectType(t, false)
	return d.sum(typeCode)
}

// ID returns the SchemaId of a field. parent is nil unless f is a sub-field.
func (f *Field) ID(parent *Field) string {
	var d identity
	d.field(f, parent, false)
	return d.sum(f.Kind.String())
}

// ID returns the SchemaId of an index of t.
func (x *CompositeIndex) ID(t *ObjectType) string {
	var d identity
	d.index(x, t)
	return d.sum(indexCode)
}

// ID returns the SchemaId of the whole schema.
func (m *Model) ID() string {
	var d identity
	d.text(schemaCode)
	d.number(len(m.Types))
	for _, t := range m.Types {
		d.objectType(t, true)
	}
	return d.sum(schemaCode)
}

// item is anything with a storage id.
type item struct {
	id     string
	wanted uint32 // 0: any
}

// items yields the items of the model in the order in which they get storage ids.
func (m *Model) items() iter.Seq[item] {
	return func(yield func(item) bool) {
		for _, t := range m.Types {
			if !yield(item{t.ID(), t.StorageID}) {
				return
			}
			for _, f := range t.Fields {
				if !yield(item{f.ID(nil), f.StorageID}) {
					return
				}
				for _, s := range f.Sub {
					if !yield(item{s.ID(f), s.StorageID}) {
						return
					}
				}
			}
			for _, x := range t.Indexes {
				if !yield(item{x.ID(t), x.StorageID}) {
					return
				}
			}
		}
	}
}

// IDs returns the SchemaIds of all items, in the order in which they get storage ids. A SchemaId
// can occur several times.
func (m *Model) IDs() []string {
	var ids []string
	for it := range m.items() {
		ids = append(ids, it.id)
	}
	return ids
}

// Number adds the missing storage ids of the model to table, which maps SchemaIds to storage ids.
// Entries of table stay. Items that request a free storage id get it. All others, including those
// that request a taken one, get the least free ids.
func (m *Model) Number(table map[string]uint32) {
	taken := map[uint32]bool{}
	for n := range maps.Values(table) {
		taken[n] = true
	}
	all := slices.Collect(m.items())
	for _, it := range all {
		if _, ok := table[it.id]; !ok && it.wanted != 0 && !taken[it.wanted] {
			table[it.id], taken[it.wanted] = it.wanted, true
		}
	}
	next := uint32(1)
	for _, it := range all {
		if _, ok := table[it.id]; ok {
			continue
		}
		for taken[next] {
			next++
		}
		table[it.id], taken[next] = next, true
	}
}
