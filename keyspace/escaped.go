package keyspace

import "bytes"

// Escaped writes each name with 0x00 as 00 ff and ends it with a mark for what follows, then the
// key as it is:
//
//	esc(ns1) | 00 01 | esc(ns2) | 00 01 | ... | esc(nsN) | 00 02 | key
//
// 00 01 says that another name follows, 00 02 that the key does. At the first difference of two
// rows, either two bytes of names or keys differ, or a mark meets a further byte of a name, which
// is above 00 or is 00 ff; so order and depth are kept. Namespaces below sort before the keys
// directly in a namespace.
type Escaped struct{}

const (
	more   = 0x01 // after 00: another name follows
	last   = 0x02 // after 00: the key follows
	zero   = 0xff // after 00: the name has a 00 here
	beyond = 0x03 // after 00: greater than both marks
)

var _ Scheme = Escaped{}

// Encode returns a row; see Scheme.
func (s Escaped) Encode(ns [][]byte, key []byte) ([]byte, error) {
	n := len(key)
	for _, name := range ns {
		n += len(name) + bytes.Count(name, []byte{0}) + 2
	}
	return s.Append(make([]byte, 0, n), ns, key)
}

// Append appends a row; see Scheme.
func (s Escaped) Append(dst []byte, ns [][]byte, key []byte) ([]byte, error) {
	if len(ns) == 0 {
		return dst, errNoNamespace()
	}
	dst = appendNames(dst, ns)
	return append(append(dst, 0, last), key...), nil
}

// appendNames appends the names without the mark after the last one.
func appendNames(dst []byte, ns [][]byte) []byte {
	for i, name := range ns {
		if i > 0 {
			dst = append(dst, 0, more)
		}
		for {
			n := bytes.IndexByte(name, 0)
			if n < 0 {
				break
			}
			dst = append(append(dst, name[:n+1]...), zero)
			name = name[n+1:]
		}
		dst = append(dst, name...)
	}
	return dst
}

// Decode splits a row; see Scheme. The key, and names without 0x00, share memory with row.
func (s Escaped) Decode(row []byte) (ns [][]byte, key []byte, err error) {
	for {
		name, mark, rest, err := decodeName(row)
		if err != nil {
			return nil, nil, err
		}
		ns, row = append(ns, name), rest
		if mark == last {
			return ns, row, nil
		}
	}
}

// decodeName removes the first name from row.
func decodeName(row []byte) (name []byte, mark byte, rest []byte, err error) {
	owned := false
	for from := row; ; {
		i := bytes.IndexByte(from, 0)
		if i < 0 || i+1 == len(from) {
			return nil, 0, nil, malformed("a mark after the name", "the end")
		}
		part, mark := from[:i:i], from[i+1]
		switch mark {
		case more, last:
			if owned {
				part = append(name, part...)
			}
			return part, mark, from[i+2:], nil
		case zero:
			if !owned {
				name, owned = make([]byte, 0, len(part)+16), true
			}
			name = append(append(name, part...), 0)
			from = from[i+2:]
		default:
			return nil, 0, nil, malformed("01, 02 or ff after 00", "%#02x", mark)
		}
	}
}

// Prefix returns the common beginning of the rows directly in ns; see Scheme.
func (s Escaped) Prefix(ns [][]byte) ([]byte, error) {
	if len(ns) == 0 {
		return nil, errNoNamespace()
	}
	return append(appendNames(nil, ns), 0, last), nil
}

// Subtree returns a range of rows; see Scheme.
func (s Escaped) Subtree(ns [][]byte) (from, to []byte, err error) {
	if len(ns) == 0 {
		return nil, nil, errNoNamespace()
	}
	names := appendNames(nil, ns)
	return append(bytes.Clone(names), 0, more), append(names, 0, beyond), nil
}

// Properties returns the properties of the scheme.
func (s Escaped) Properties() Properties {
	return Properties{AnyBytes: true, Injective: true, KeyOrder: true, NamespaceOrder: true, Nesting: true, MixedDepth: true, DirectRange: true}
}
