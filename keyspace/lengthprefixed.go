package keyspace

import (
	"encoding/binary"
	"fmt"

	"github.com/ledgerd/ledger/internal/base"
)

// LengthPrefixed writes the length of each name before it, then the key as it is:
//
//	len(ns1) | ns1 | len(ns2) | ns2 | ... | key
//
// Lengths are big-endian. Namespaces sort by length before content, so K4 does not hold. All rows
// of a store have the same depth: otherwise the key of one row could equal the namespace of a
// deeper row, and the row would be ambiguous.
type LengthPrefixed struct {
	// Width is the number of bytes of a length: 1, 2, 4 or 8; 0 is 4. It bounds the length of a
	// name.
	Width int
	// Depth is the number of namespaces of every row, at least 1; 0 is 1.
	Depth int
}

var _ Scheme = LengthPrefixed{}

func (s LengthPrefixed) width() int {
	if s.Width == 0 {
		return 4
	}
	return s.Width
}

func (s LengthPrefixed) depth() int { return max(s.Depth, 1) }

func (s LengthPrefixed) valid() error {
	switch s.width() {
	case 1, 2, 4, 8:
	default:
		return fmt.Errorf("encode key: length of %d bytes: %w", s.Width, base.ErrInvalid)
	}
	if s.Depth < 0 {
		return fmt.Errorf("encode key: depth %d: %w", s.Depth, base.ErrInvalid)
	}
	return nil
}

// Encode returns a row; see Scheme.
func (s LengthPrefixed) Encode(ns [][]byte, key []byte) ([]byte, error) {
	n := len(key)
	for _, name := range ns {
		n += s.width() + len(name)
	}
	row, err := s.Append(make([]byte, 0, max(n, 0)), ns, key)
	if err != nil {
		return nil, err
	}
	return row, nil
}

// Append appends a row; see Scheme.
func (s LengthPrefixed) Append(dst []byte, ns [][]byte, key []byte) ([]byte, error) {
	if len(ns) != s.depth() {
		return dst, fmt.Errorf("encode key: %d namespaces where there are %d: %w", len(ns), s.depth(), base.ErrInvalid)
	}
	row, err := s.header(dst, ns)
	if err != nil {
		return dst, err
	}
	return append(row, key...), nil
}

// header appends the names.
func (s LengthPrefixed) header(dst []byte, ns [][]byte) ([]byte, error) {
	if err := s.valid(); err != nil {
		return nil, err
	}
	if len(ns) == 0 {
		return nil, errNoNamespace()
	}
	w := s.width()
	for _, name := range ns {
		if w < 8 && uint64(len(name)) >= 1<<(8*w) {
			return nil, fmt.Errorf("encode key: namespace of %d bytes with a length of %d: %w", len(name), w, base.ErrTooLarge)
		}
		var b [8]byte
		binary.BigEndian.PutUint64(b[:], uint64(len(name)))
		dst = append(append(dst, b[8-w:]...), name...)
	}
	return dst, nil
}

// Decode splits a row; see Scheme. ns and key share memory with row.
func (s LengthPrefixed) Decode(row []byte) (ns [][]byte, key []byte, err error) {
	if err := s.valid(); err != nil {
		return nil, nil, err
	}
	w := s.width()
	for range s.depth() {
		if len(row) < w {
			return nil, nil, malformed(fmt.Sprintf("a length of %d bytes", w), "%d bytes", len(row))
		}
		var b [8]byte
		copy(b[8-w:], row)
		n := binary.BigEndian.Uint64(b[:])
		row = row[w:]
		if n > uint64(len(row)) {
			return nil, nil, malformed(fmt.Sprintf("a name of %d bytes", n), "%d bytes", len(row))
		}
		ns = append(ns, row[:n:n])
		row = row[n:]
	}
	return ns, row, nil
}

// Prefix returns the common beginning of the rows in ns; see Scheme. ns must have the depth of the
// rows.
func (s LengthPrefixed) Prefix(ns [][]byte) ([]byte, error) {
	return s.Append(nil, ns, nil)
}

// Subtree returns a range of rows; see Scheme. ns may be less deep than the rows.
func (s LengthPrefixed) Subtree(ns [][]byte) (from, to []byte, err error) {
	if len(ns) > s.depth() {
		return nil, nil, fmt.Errorf("encode key: %d namespaces where there are %d: %w", len(ns), s.depth(), base.ErrInvalid)
	}
	from, err = s.header(nil, ns)
	if err != nil {
		return nil, nil, err
	}
	return from, PrefixEnd(from), nil
}

// Properties returns the properties of the scheme.
func (s LengthPrefixed) Properties() Properties {
	return Properties{AnyBytes: s.width() == 8, Injective: true, KeyOrder: true, Nesting: true, DirectRange: true}
}
