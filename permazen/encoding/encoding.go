package encoding

import (
	"bytes"
	"fmt"

	"github.com/ledgerd/ledger/internal/base"
)

// Prefix is what the ids of the built-in encodings begin with.
const Prefix = "urn:fdc:permazen.io:2020:"

// MaxDimensions is the greatest number of dimensions of an array.
const MaxDimensions = 255

// Encoding is how values of one type become bytes.
type Encoding struct {
	id        string
	zero      []byte // the default value
	low, high bool   // whether a value can begin with 0x00, 0xff
	put       func(dst []byte, v any) ([]byte, error)
	get       func(b []byte) (any, int, error)
	length    func(b []byte) (int, error) // nil: by reading and writing
	wrapper   bool                        // of a primitive: there are no arrays of it
}

// ID returns the name of the encoding, such as "urn:fdc:permazen.io:2020:int". Encodings of
// references and enums have none.
func (e *Encoding) ID() string { return e.id }

// Default returns the bytes of the default value: null, or zero where there is no null. They are
// the caller's.
func (e *Encoding) Default() []byte { return bytes.Clone(e.zero) }

// IsDefault reports whether b is the default value.
func (e *Encoding) IsDefault(b []byte) bool { return bytes.Equal(b, e.zero) }

// Append appends v, which is nil for null. On an error it returns nil. Errors: base.ErrInvalid.
func (e *Encoding) Append(dst []byte, v any) ([]byte, error) { return e.put(dst, v) }

// Decode reads the value at the start of b and returns how many bytes it has. The value shares
// nothing with b. Errors: base.ErrCorrupt.
func (e *Encoding) Decode(b []byte) (v any, n int, err error) { return e.get(b) }

// Value reads b, which must be one value and nothing else. Errors: base.ErrCorrupt.
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

// Len returns how many bytes the value at the start of b has, when it is in its canonical form.
// Errors: base.ErrCorrupt.
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

// codec makes an encoding without null of functions of a type.
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

// starts says what values can begin with.
func (e *Encoding) starts(low, high bool) *Encoding {
	e.low, e.high = low, high
	return e
}

func (e *Encoding) by(length func([]byte) (int, error)) *Encoding {
	e.length = length
	return e
}

// primitive names an encoding without null.
func (e *Encoding) primitive(name string, zero any) *Encoding {
	e.id = Prefix + name
	e.zero, _ = e.put(nil, zero)
	return e
}

const null = 0xff

// nullable returns e with null, which sorts last. Where values of e can begin with the byte of
// null, each gets a byte before it.
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

// array returns the encoding of arrays of e, whose values are []any.
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

// elements calls f at each element of an array, behind the byte before it, until the end of the
// array.
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
