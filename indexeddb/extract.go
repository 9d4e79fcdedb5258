package indexeddb

import (
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/ledgerd/ledger/indexeddb/internal/wtf8"
	"github.com/ledgerd/ledger/indexeddb/value"
)

// KeyOf converts a script value to a key. These values are keys: a number except NaN, a valid date,
// a string, a buffer or a view of one, and an array of keys without holes and cycles.
func KeyOf(v value.Value) (Key, bool) {
	enc, ok := appendKeyOf(nil, v, nil)
	if !ok {
		return Key{}, false
	}
	return Key{string(enc)}, true
}

// maxKeyBytes bounds the key of a value. Without it, arrays that each hold another array twice
// would give a key of exponential size.
const maxKeyBytes = 16 << 20

// appendKeyOf appends the key of v. in lists the arrays that enclose v.
func appendKeyOf(dst []byte, v value.Value, in []*value.Array) ([]byte, bool) {
	var k Key
	var err error
	switch v := v.(type) {
	case float64:
		k, err = NumberKey(v)
	case *value.Date:
		k, err = DateKey(v.Milliseconds)
	case string:
		k = StringKey(v)
	case *value.Buffer:
		k = BinaryKey(v.Bytes)
	case *value.View:
		k = BinaryKey(v.Bytes())
	case *value.Extended:
		return appendKeyOf(dst, v.Object, in)
	case *value.Array:
		if len(dst) > maxKeyBytes || len(in) >= MaxDepth || slices.Contains(in, v) || uint64(v.Length) != uint64(len(v.Elements)) {
			return nil, false
		}
		dst = AppendVarInt(append(dst, byte(KeyArray)), int64(len(v.Elements)))
		for _, e := range v.Elements {
			var ok bool
			if dst, ok = appendKeyOf(dst, e, append(in, v)); !ok {
				return nil, false
			}
		}
		return dst, true
	default:
		return nil, false
	}
	return k.Append(dst), err == nil
}

// ValueOf returns the script value of a key.
func ValueOf(k Key) value.Value {
	switch k.Type() {
	case KeyNumber:
		return k.Number()
	case KeyDate:
		return &value.Date{Milliseconds: k.Number()}
	case KeyString:
		return k.Text()
	case KeyBinary:
		return &value.Buffer{Bytes: k.Binary(), MaxLength: -1}
	}
	a := &value.Array{}
	for e := range k.Elements() {
		a.Elements = append(a.Elements, ValueOf(e))
	}
	a.Length = uint32(len(a.Elements))
	return a
}

// At returns the part of a value at a path of property names. objects are the external objects of
// the record. ok is false when the part is missing or undefined. Not only objects have properties:
// strings and arrays have length, blobs size and type, files name and lastModified (see package
// value).
func At(v value.Value, path string, objects []ExternalObject) (part value.Value, ok bool) {
	if path == "" {
		return v, true
	}
	for name := range strings.SplitSeq(path, ".") {
		var ok bool
		if v, ok = step(v, name, objects); !ok {
			return nil, false
		}
		if _, undefined := v.(value.Undefined); undefined {
			return nil, false
		}
	}
	return v, true
}

func step(v value.Value, name string, objects []ExternalObject) (value.Value, bool) {
	if extended, ok := v.(*value.Extended); ok {
		if part, ok := extended.Get(name); ok {
			return part, true
		}
		v = extended.Object
	}
	switch v := v.(type) {
	case string:
		return float64(wtf8.Len(v)), name == "length"
	case *value.Object:
		return v.Get(name)
	case *value.Array:
		if name == "length" {
			return float64(v.Length), true
		}
		if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(v.Elements) && strconv.Itoa(i) == name {
			_, hole := v.Elements[i].(value.Hole)
			return v.Elements[i], !hole
		}
		return v.Get(name)
	case *value.Blob:
		if v.Index >= len(objects) {
			return nil, false
		}
		return blobStep(v, name, objects[v.Index])
	}
	return nil, false
}

func blobStep(b *value.Blob, name string, o ExternalObject) (value.Value, bool) {
	switch {
	case name == "size":
		return float64(o.Size), true
	case name == "type":
		return o.MediaType, true
	case name == "name" && b.File:
		return o.Name, true
	case name == "lastModified" && b.File:
		return math.Floor(float64(o.ModifiedUnixMicro()) / 1000), true
	}
	return nil, false
}

// Key returns the key at the path in a value. For ArrayKeyPath this is an array of the keys at all
// paths; each of them must exist. objects are the external objects of the record.
func (p KeyPath) Key(v value.Value, objects []ExternalObject) (Key, bool) {
	switch p.Type {
	case StringKeyPath:
		part, ok := At(v, p.Paths[0], objects)
		if !ok {
			return Key{}, false
		}
		return KeyOf(part)
	case ArrayKeyPath:
		var keys []Key
		for _, path := range p.Paths {
			part, ok := At(v, path, objects)
			if !ok {
				return Key{}, false
			}
			k, ok := KeyOf(part)
			if !ok {
				return Key{}, false
			}
			keys = append(keys, k)
		}
		k, err := ArrayKey(keys...)
		return k, err == nil
	}
	return Key{}, false
}

// Keys returns the keys of the index rows of a record, sorted and without duplicates. v is the
// value after Inject. objects are the external objects of the record.
func (x *Index) Keys(v value.Value, objects []ExternalObject) []Key {
	if x.MultiEntry && x.KeyPath.Type == StringKeyPath {
		part, ok := At(v, x.KeyPath.Paths[0], objects)
		if a, isArray := part.(*value.Array); ok && isArray {
			var keys []Key
			for e := range a.All() {
				if k, ok := KeyOf(e); ok {
					keys = append(keys, k)
				}
			}
			slices.SortFunc(keys, Key.Compare)
			return slices.Compact(keys)
		}
	}
	if k, ok := x.KeyPath.Key(v, objects); ok {
		return []Key{k}
	}
	return nil
}

// Inject puts a generated key into v at a path of property names, and creates missing objects on
// the path. It changes v. It wraps an object that cannot hold properties in a value.Extended. ok is
// false when a value on the path is not an object.
func Inject(v value.Value, path string, k Key) (out value.Value, ok bool) {
	out = v
	replace := func(extended value.Value) { out = extended } // replaces v in its parent
	names := strings.Split(path, ".")
	for i, name := range names {
		properties := propertiesOf(v)
		if properties == nil {
			if !isObject(v) {
				return nil, false
			}
			extended := &value.Extended{Object: v}
			properties = &extended.Properties
			replace(extended)
		}
		if i == len(names)-1 {
			properties.Set(name, ValueOf(k))
			break
		}
		next, ok := properties.Get(name)
		if !ok {
			next = &value.Object{}
			properties.Set(name, next)
		}
		v, replace = next, func(extended value.Value) { properties.Set(name, extended) }
	}
	return out, true
}

// Injectable reports whether Inject can put a key at a path so that the encoded value contains it,
// that is into an object or array. The specification requires this for Put; Chromium does not.
func Injectable(v value.Value, path string) bool {
	for name := range strings.SplitSeq(path, ".") {
		properties := propertiesOf(v)
		if properties == nil {
			return false
		}
		next, ok := properties.Get(name)
		if !ok {
			return true // Inject creates objects from here on
		}
		v = next
	}
	return true
}

// isObject reports whether a value is an object that a script can give properties.
func isObject(v value.Value) bool {
	switch v.(type) {
	case nil, value.Undefined, value.Null, value.Hole, bool, float64, string, *big.Int, *value.Wrapped:
		return false
	}
	return true
}

func propertiesOf(v value.Value) *value.Properties {
	switch v := v.(type) {
	case *value.Object:
		return &v.Properties
	case *value.Array:
		return &v.Properties
	case *value.Extended:
		return &v.Properties
	}
	return nil
}
