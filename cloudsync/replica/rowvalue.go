package replica

import (
	"bytes"
	"encoding/binary"
	"errors"
	"reflect"
	"slices"

	"github.com/ledgerd/ledger/cloudsync/epoch"
)

// The value of a row is a part of State. Its type determines the encoding:
//
//	numbers, booleans  uvarints; bytes as they are
//	strings, slices    the length, then the elements
//	arrays, structs    the elements
//	maps               the length, each key before its value, ascending by their bytes
//	pointers           1 and the value that they point to; 0 for nil
//
// One value has one encoding. Other types are not encoded; State has none.

// encodeValue returns the encoding of v.
func encodeValue(v reflect.Value) []byte {
	var c valueCoder
	c.code(v)
	return c.b
}

// parseValue reads the output of encodeValue. Its use of memory is bounded by the length of b.
func parseValue(b []byte, v reflect.Value) error {
	c := valueCoder{b: b, reading: true}
	if c.code(v); c.err == nil && !bytes.Equal(encodeValue(v), b) {
		c.err = errors.New("not in its only form")
	}
	return c.err
}

// valueCoder appends values to b, or reads settable values from the front of b. The first error of
// reading stays, and zeros follow it.
type valueCoder struct {
	b       []byte
	reading bool
	err     error
}

func (c *valueCoder) code(v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		if is := c.flag(v.Bool()); c.reading {
			v.SetBool(is)
		}
	case reflect.Int64:
		if x := c.number(uint64(v.Int())); c.reading {
			v.SetInt(int64(x))
		}
	case reflect.Uint32, reflect.Uint64:
		if x := c.number(v.Uint()); c.reading {
			v.SetUint(x) // a number that is too great has another encoding
		}
	case reflect.Uint8:
		if !c.reading {
			c.b = append(c.b, byte(v.Uint()))
		} else if len(c.b) == 0 {
			c.err = errCut
		} else {
			v.SetUint(uint64(c.b[0]))
			c.b = c.b[1:]
		}
	case reflect.String:
		b := []byte(v.String())
		if c.code(reflect.ValueOf(&b).Elem()); c.reading {
			v.SetString(string(b))
		}
	case reflect.Pointer:
		if c.flag(!v.IsNil()) {
			if c.reading {
				v.Set(reflect.New(v.Type().Elem()))
			}
			c.code(v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			c.code(v.Field(i))
		}
	case reflect.Array:
		for i := range v.Len() {
			c.code(v.Index(i))
		}
	case reflect.Slice:
		c.codeSlice(v)
	case reflect.Map:
		c.codeMap(v)
	}
}

func (c *valueCoder) codeSlice(v reflect.Value) {
	n := c.number(uint64(v.Len()))
	if c.reading {
		v.SetZero()
	}
	for i := 0; uint64(i) < n && c.err == nil; i++ {
		if c.reading {
			v.Grow(1)
			v.SetLen(i + 1)
		}
		c.code(v.Index(i))
	}
	if s, ok := v.Interface().(epoch.Set); ok && c.reading && !slices.Equal(s, epoch.SetOf(s...)) {
		c.err = errors.New("commits that are not ascending")
	}
}

func (c *valueCoder) codeMap(v reflect.Value) {
	n := c.number(uint64(v.Len()))
	if !c.reading {
		var entries [][]byte
		for key, value := range v.Seq2() {
			entries = append(entries, append(encodeValue(key), encodeValue(value)...))
		}
		slices.SortFunc(entries, bytes.Compare)
		c.b = append(c.b, bytes.Join(entries, nil)...)
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	for ; n > 0 && c.err == nil; n-- {
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		c.code(key)
		c.code(value)
		v.SetMapIndex(key, value)
	}
}

var errCut = errors.New("a value that ends too early")

// number codes a number, and returns it.
func (c *valueCoder) number(x uint64) uint64 {
	if !c.reading {
		c.b = binary.AppendUvarint(c.b, x)
		return x
	}
	x, n := binary.Uvarint(c.b)
	if n <= 0 {
		c.err = errCut
		return 0
	}
	c.b = c.b[n:]
	return x
}

// flag codes a boolean, and returns it.
func (c *valueCoder) flag(is bool) bool {
	if is {
		return c.number(1) == 1
	}
	return c.number(0) == 1
}
