package value

import (
	"iter"
	"strconv"
)

// Value is a script value. The package comment lists its types.
type Value any

// Undefined is the value undefined.
type Undefined struct{}

// Null is the value null.
type Null struct{}

// Hole is a missing element of an array.
type Hole struct{}

// Property is a property of an object. Its name may be an index.
type Property struct {
	Name  string
	Value Value
}

// Properties are the own properties of an object, in order. Names are unique.
type Properties []Property

// Get returns the value of a property.
func (p Properties) Get(name string) (Value, bool) {
	for i := range p {
		if p[i].Name == name {
			return p[i].Value, true
		}
	}
	return nil, false
}

// Set sets the value of a property. A new property becomes the last one.
func (p *Properties) Set(name string, v Value) {
	for i := range *p {
		if (*p)[i].Name == name {
			(*p)[i].Value = v
			return
		}
	}
	*p = append(*p, Property{name, v})
}

// Object is a plain object.
type Object struct{ Properties }

// Array is an array. Elements contains all elements, or none if the array lacks some. In that case
// the elements are properties with their index as name.
type Array struct {
	Length   uint32
	Elements []Value
	Properties
	// Sparse is set when the elements are serialized as properties. V8 does this for every array
	// that it has deserialized itself, that is when a script reads, changes and writes a record.
	Sparse bool
}

// All yields the existing elements, in order.
func (a *Array) All() iter.Seq[Value] {
	return func(yield func(Value) bool) {
		for _, v := range a.Elements {
			if _, hole := v.(Hole); !hole && !yield(v) {
				return
			}
		}
		for i := range a.Properties {
			if p := &a.Properties[i]; isIndex(p.Name, a.Length) && !yield(p.Value) {
				return
			}
		}
	}
}

// isIndex reports whether name is the index of an element in an array.
func isIndex(name string, length uint32) bool {
	n, err := strconv.ParseUint(name, 10, 32)
	return err == nil && n < uint64(length) && strconv.FormatUint(n, 10) == name
}

// Extended is an object of another type with properties of its own. V8 does not write these; they
// come from an injected generated key. Object occurs nowhere else in the value.
type Extended struct {
	Object Value
	Properties
}

// Date is a date in milliseconds since 1970; NaN is an invalid one.
type Date struct{ Milliseconds float64 }

// Boxed is an object that holds a bool, float64, *big.Int or string.
type Boxed struct{ Value Value }

// RegExp is a regular expression. Flags are in alphabetic order.
type RegExp struct{ Pattern, Flags string }

// Map is a Map, with its entries in order.
type Map struct{ Entries [][2]Value }

// Set is a Set, with its elements in order.
type Set struct{ Elements []Value }

// Buffer is an ArrayBuffer. MaxLength is -1 when it cannot be resized.
type Buffer struct {
	Bytes     []byte
	MaxLength int64
}

// View is a typed array or a DataView: part of a Buffer. Offset and Length are in bytes.
type View struct {
	// Kind is the name of its class, such as Uint8Array.
	Kind           string
	Buffer         *Buffer
	Offset, Length int
	// Tracks is set when the length follows the length of the buffer.
	Tracks bool
}

// Bytes returns the bytes of the buffer that the view covers, in shared memory.
func (v *View) Bytes() []byte { return v.Buffer.Bytes[v.Offset : v.Offset+v.Length] }

// Error is an Error or a DOMException. Absent Message and Stack are empty, and an absent Cause is
// nil.
type Error struct {
	// Name is the name of the class, such as TypeError.
	Name, Message, Stack string
	DOM                  bool
	Cause                Value
}

// Blob refers to a blob or file, an external object of the record, by position.
type Blob struct {
	Index int
	File  bool
}

// FileList refers to external objects by position.
type FileList struct{ Indexes []int }

// Handle refers to an external object that is a file system handle.
type Handle struct {
	Name      string
	Index     int
	Directory bool
}

// ImageData is a picture. Settings are pairs of a tag and its value, in Blink's form.
type ImageData struct {
	Settings      [][2]uint32
	Width, Height uint32
	Bytes         []byte
}

// Shape is a geometry object, such as DOMRect, with its numbers.
type Shape struct {
	Kind    string
	Numbers []float64
}

// Wrapped means that the content of an external object is the serialized value. Index is the
// position of this object, which is the last one. Size is its length in bytes.
type Wrapped struct {
	Size  int64
	Index int
}
