package keyspace

import (
	"bytes"
	"encoding/hex"
)

// Hex writes names and key as lower-case hexadecimal digits with one 0x00 between two of them:
//
//	hex(ns1) | 00 | hex(ns2) | 00 | ... | hex(key)
//
// 0x00 stands before all digits, so a name sorts before those that it begins. Keys directly in a
// namespace stand among the namespaces below it.
type Hex struct{}

var _ Scheme = Hex{}

// Encode returns a row; see Scheme.
func (s Hex) Encode(ns [][]byte, key []byte) ([]byte, error) {
	n := 2 * len(key)
	for _, name := range ns {
		n += 2*len(name) + 1
	}
	return s.Append(make([]byte, 0, n), ns, key)
}

// Append appends a row; see Scheme.
func (s Hex) Append(dst []byte, ns [][]byte, key []byte) ([]byte, error) {
	if len(ns) == 0 {
		return dst, errNoNamespace()
	}
	for _, name := range ns {
		dst = append(hex.AppendEncode(dst, name), 0)
	}
	return hex.AppendEncode(dst, key), nil
}

// Decode takes a row apart; see Scheme. ns and key do not share memory with row.
func (s Hex) Decode(row []byte) (ns [][]byte, key []byte, err error) {
	buf := make([]byte, 0, len(row)/2)
	for {
		i := bytes.IndexByte(row, 0)
		part := row
		if i >= 0 {
			part = row[:i]
		}
		from := len(buf)
		if buf, err = appendDigits(buf, part); err != nil {
			return nil, nil, err
		}
		name := buf[from:len(buf):len(buf)]
		if i < 0 {
			if ns == nil {
				return nil, nil, malformed("a namespace and a key", "one part")
			}
			return ns, name, nil
		}
		ns, row = append(ns, name), row[i+1:]
	}
}

// appendDigits decodes lower-case digits and appends the bytes to dst.
func appendDigits(dst, digits []byte) ([]byte, error) {
	if len(digits)%2 != 0 {
		return nil, malformed("two digits for a byte", "%d digits", len(digits))
	}
	for i := 0; i < len(digits); i += 2 {
		hi, lo := digit(digits[i]), digit(digits[i+1])
		if hi|lo > 15 {
			return nil, malformed("digits 0 to 9 and a to f", "other bytes")
		}
		dst = append(dst, hi<<4|lo)
	}
	return dst, nil
}

// digit returns the value of a digit, a number above 15 for anything else.
func digit(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10
	}
	return 0xff
}

// Prefix returns what rows in ns and below begin with; see Scheme.
func (s Hex) Prefix(ns [][]byte) ([]byte, error) {
	row, err := s.Encode(ns, nil)
	if err != nil {
		return nil, err
	}
	return row, nil
}

// Subtree returns a range of rows; see Scheme.
func (s Hex) Subtree(ns [][]byte) (from, to []byte, err error) {
	from, err = s.Prefix(ns)
	if err != nil {
		return nil, nil, err
	}
	return from, PrefixEnd(from), nil
}

// Properties says what the scheme can do.
func (s Hex) Properties() Properties {
	return Properties{AnyBytes: true, Injective: true, KeyOrder: true, NamespaceOrder: true, Nesting: true, MixedDepth: true}
}
