package encoding

import (
	"bytes"
	"fmt"

	"github.com/ledgerd/ledger/internal/base"
)

// Prefix is the common prefix of the ids of built-in encodings.
const Prefix = "urn:fdc:permazen.io:2020:"

// MaxDimensions is the greatest number of dimensions of an array.
const MaxDimensions = 255

// Encoding encodes the values of one type as bytes.
type Encoding struct {
	id        string
	zero      []byte // the default value
	low, high bool   // whether a value can begin with 0x00 or 0xff
	put       func(dst []byte, v any) ([]byte, error)
	get       func(b []byte) (any, int, error)
	length    func(b []byte) (int, error) // nil: decode and encode again
	wrapper   bool                        // encoding of a Java wrapper type, which has no arrays
}

// ID returns the id of the encoding, such as "urn:fdc:permazen.io:2020:int". Encodings of
// references and enums have the id "".
func (e *Encoding) ID() string { return e.id }

// Default returns the encoded default value: null, or zero in an encoding without null. The caller
// owns the slice.
func (e *Encoding) Default() []byte { return bytes.Clone(e.zero) }

// Append appends the encoded v; nil is null. On an error it returns nil. Errors: base.ErrInvalid.
func (e *Encoding) Append(dst []byte, v any) ([]byte, error) { return e.put(dst, v) }

// Decode decodes the value at the start of b and returns its length in bytes. The value shares no
// memory with b. Errors: base.ErrCorrupt.
func (e *Encoding) Decode(b []byte) (v any, n int, err error) { return e.get(b) }

// Value decodes b, which must be exactly one value. Errors: base.ErrCorrupt.
func (e *Encoding) Value(b []byte) (any, error) {
	v, n, err := e.get(b)
	if err == nil && n != len(b) {
		err = fmt.Errorf("%d bytes follow a value: %w", len(b)-n, base.ErrCorrupt)
	}
	if err != nil {
		return nil, err
	}
	return v, nil
}

// Len returns the length in bytes of the value at the start of b, which must be in its canonical
// form. Errors: base.ErrCorrupt.
func (e *Encoding) Len(b []byte) (int, error) {
	if e.length != nil {
		return e.length(b)
	}
	v, n, err := e.get(b)
	if err != nil {
		return 0, err
	}
	if again, err := e.put(nil, v); err != nil || !bytes.Equal(again, b[:n]) {
		return 0, errCanonical
	}
	return n, nil
}

// codec makes an encoding without null from typed functions.
func codec[T any](put func([]byte, T) ([]byte, error), get func([]byte) (T, int, error)) *Encoding {
	return &Encoding{
		put: func(dst []byte, v any) ([]byte, error) {
			t, ok := v.(T)
			if !ok {
				return nil, fmt.Errorf("encode a %T where a %T is wanted: %w", v, t, base.ErrInvalid)
			}
			return put(dst, t)
		},
		get: func(b []byte) (any, int, error) {
			v, n, err := get(b)
			if err != nil {
				return nil, 0, err
			}
			return v, n, nil
		},
	}
}

// starts sets whether values can begin with 0x00 and 0xff.
func (e *Encoding) starts(low, high bool) *Encoding {
	e.low, e.high = low, high
	return e
}

func (e *Encoding) by(length func([]byte) (int, error)) *Encoding {
	e.length = length
	return e
}

// primitive sets the name and the default value of an encoding without null.
func (e *Encoding) primitive(name string, zero any) *Encoding {
	e.id = Prefix + name
	e.zero, _ = e.put(nil, zero)
	return e
}

const null = 0xff

// nullable adds null to e. Null sorts last. If values of e can begin with the byte of null, a
// prefix byte precedes each value.
func (e *Encoding) nullable(name string) *Encoding {
	n := &Encoding{zero: []byte{null}, low: e.low && !e.high, high: true}
	if name != "" {
		n.id = Prefix + name
	}
	before := 0
	if e.high {
		before = 1
	}
	n.put = func(dst []byte, v any) ([]byte, error) {
		if v == nil {
			return append(dst, null), nil
		}
		if before == 1 {
			dst = append(dst, 1)
		}
		return e.put(dst, v)
	}
	n.get = func(b []byte) (any, int, error) {
		if isNull, err := nullHead(b, before); isNull || err != nil {
			return nil, 1, err
		}
		v, k, err := e.get(b[before:])
		return v, k + before, err
	}
	n.length = func(b []byte) (int, error) {
		if isNull, err := nullHead(b, before); isNull || err != nil {
			return 1, err
		}
		k, err := e.Len(b[before:])
		return k + before, err
	}
	return n
}

func nullHead(b []byte, before int) (isNull bool, err error) {
	switch {
	case len(b) == 0:
		return false, errShort
	case b[0] == null:
		return true, nil
	case before == 1 && b[0] != 1:
		return false, errFirst
	}
	return false, nil
}

// array returns the encoding of arrays of e. Their values are []any.
func (e *Encoding) array() *Encoding {
	var before []byte
	if e.low {
		before = []byte{1}
	}
	put := func(dst []byte, list []any) ([]byte, error) {
		for _, v := range list {
			var err error
			if dst, err = e.put(append(dst, before...), v); err != nil {
				return nil, err
			}
		}
		return append(dst, 0), nil
	}
	get := func(b []byte) ([]any, int, error) {
		list := []any{}
		n, err := elements(b, len(before), func(b []byte) (int, error) {
			v, n, err := e.get(b)
			list = append(list, v)
			return n, err
		})
		return list, n, err
	}
	a := codec(put, get).starts(true, e.high && !e.low).by(func(b []byte) (int, error) {
		return elements(b, len(before), e.Len)
	})
	a = a.nullable("")
	if e.id != "" {
		a.id = e.id + "[]"
	}
	return a
}

// elements calls f for each element of an array, after the element's prefix byte if there is one.
// It returns the length of the array.
func elements(b []byte, before int, f func([]byte) (int, error)) (int, error) {
	for i := 0; ; {
		switch {
		case i >= len(b):
			return 0, errShort
		case b[i] == 0:
			return i + 1, nil
		case before == 1 && b[i] != 1:
			return 0, errFirst
		}
		n, err := f(b[i+before:])
		if err != nil {
			return 0, err
		}
		i += before + n
	}
}
