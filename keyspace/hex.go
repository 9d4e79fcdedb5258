package keyspace

import (
	"bytes"
	"encoding/hex"
)

// Hex writes names and key as lower-case hexadecimal digits with one 0x00 between each two:
//
//	hex(ns1) | 00 | hex(ns2) | 00 | ... | hex(key)
//
// 0x00 is below all digits, so a name sorts before those that it begins. Keys directly in a
// namespace sort among the namespaces below it.
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

// Decode splits a row; see Scheme. ns and key do not share memory with row.
func (s Hex) Decode(row []byte) (ns [][]byte, key []byte, err error) {
	for _, part := range bytes.Split(row, []byte{0}) {
		name := make([]byte, hex.DecodedLen(len(part)))
		if _, err := hex.Decode(name, part); err != nil || bytes.ContainsAny(part, "ABCDEF") {
			return nil, nil, malformed("pairs of digits 0 to 9 and a to f", "other bytes")
		}
		ns = append(ns, name)
	}
	last := len(ns) - 1
	if last == 0 {
		return nil, nil, malformed("a namespace and a key", "one part")
	}
	return ns[:last], ns[last], nil
}

// Prefix returns the common beginning of the rows in ns and below; see Scheme.
func (s Hex) Prefix(ns [][]byte) ([]byte, error) {
	return s.Encode(ns, nil)
}

// Subtree returns a range of rows; see Scheme.
func (s Hex) Subtree(ns [][]byte) (from, to []byte, err error) {
	from, err = s.Prefix(ns)
	if err != nil {
		return nil, nil, err
	}
	return from, PrefixEnd(from), nil
}

// Properties returns the properties of the scheme.
func (s Hex) Properties() Properties {
	return Properties{AnyBytes: true, Injective: true, KeyOrder: true, NamespaceOrder: true, Nesting: true, MixedDepth: true}
}
