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

// Hole is an element of an array that has no value.
type Hole struct{}

// Property is a property of an object: its name, which may be that of an index, and its value.
type Property struct {
	Name  string
	Value Value
}

// Properties are the own properties of an object, in order. No two have the same name.
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

// Set sets the value of a property, which becomes the last one when it is new.
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

// Array is an array. Elements are all of it, or, of one that lacks some, none: elements are
// properties then that have an index as name.
type Array struct {
	Length   uint32
	Elements []Value
	Properties
	// Sparse is set when the elements are serialized as properties. V8 does so with every array
	// that it has read itself: those of a record that a script has read, changed and written.
	Sparse bool
}

// All yields the elements that are there, in order.
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

// isIndex reports whether name is that of an element of an array.
func isIndex(name string, length uint32) bool {
	n, err := strconv.ParseUint(name, 10, 32)
	return err == nil && n < uint64(length) && strconv.FormatUint(n, 10) == name
}

// Extended is an object of another type with properties of its own. V8 writes none of these; it
// comes of a generated key that was put into the object. Object stands nowhere else in the value.
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

// View is a typed array or a DataView: part of a Buffer, in bytes.
type View struct {
	// Kind is the name of its class, such as Uint8Array.
	Kind           string
	Buffer         *Buffer
	Offset, Length int
	// Tracks is set when the length follows that of the buffer.
	Tracks bool
}

// Bytes returns the part of the buffer.
func (v *View) Bytes() []byte { return v.Buffer.Bytes[v.Offset : v.Offset+v.Length] }

// Error is an Error or a DOMException. Message and Stack are empty when it has none, Cause is nil.
type Error struct {
	// Name is that of the class, such as TypeError.
	Name, Message, Stack string
	DOM                  bool
	Cause                Value
}

// Blob refers to an external object of the record, a blob or file, by its position.
type Blob struct {
	Index int
	File  bool
}

// FileList refers to external objects by their positions.
type FileList struct{ Indexes []int }

// Handle refers to an external object that is a handle of the file system.
type Handle struct {
	Name      string
	Index     int
	Directory bool
}

// ImageData is a picture. Settings are pairs of a tag and its value, as Blink writes them.
type ImageData struct {
	Settings      [][2]uint32
	Width, Height uint32
	Bytes         []byte
}

// Shape is an object of geometry, such as DOMRect, with its numbers.
type Shape struct {
	Kind    string
	Numbers []float64
}

// Wrapped says that the serialized value is the content of an external object: the one at Index,
// which has Size bytes and is the last one.
type Wrapped struct {
	Size  int64
	Index int
}
