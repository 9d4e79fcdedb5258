package indexeddb

import (
	"slices"
	"strings"
)

// KeyPathType says what a key path is. Its numbers are those that Chromium writes.
type KeyPathType byte

// The types of key paths.
const (
	NoKeyPath     KeyPathType = 0
	StringKeyPath KeyPathType = 1
	ArrayKeyPath  KeyPathType = 2
)

// KeyPath says where in a value its keys are. The zero KeyPath is none.
type KeyPath struct {
	Type KeyPathType
	// Paths has one path for StringKeyPath, which may be empty, and any number for ArrayKeyPath.
	Paths []string
	// Bare is set when the path is stored without type, as very old data has it.
	Bare bool
}

// Equal reports whether both are the same path, however they are stored.
func (p KeyPath) Equal(other KeyPath) bool {
	return p.Type == other.Type && slices.Equal(p.Paths, other.Paths)
}

// String returns the path for people.
func (p KeyPath) String() string {
	switch p.Type {
	case StringKeyPath:
		return p.Paths[0]
	case ArrayKeyPath:
		return "[" + strings.Join(p.Paths, ", ") + "]"
	}
	return ""
}

// Append appends the path as the value of a metadata row.
func (p KeyPath) Append(dst []byte) []byte {
	if p.Bare {
		return AppendString(dst, p.Paths[0])
	}
	dst = append(dst, 0, 0, byte(p.Type))
	if p.Type == ArrayKeyPath {
		dst = AppendVarInt(dst, int64(len(p.Paths)))
	}
	for _, path := range p.Paths {
		dst = appendStringWithLength(dst, path)
	}
	return dst
}

// DecodeKeyPath decodes a path, which takes all of b. Errors: base.ErrCorrupt.
func DecodeKeyPath(b []byte) (KeyPath, error) {
	if len(b) < 3 || b[0] != 0 || b[1] != 0 {
		path, err := DecodeString(b)
		return KeyPath{Type: StringKeyPath, Paths: []string{path}, Bare: true}, err
	}
	p, rest, n := KeyPath{Type: KeyPathType(b[2])}, b[3:], int64(0)
	switch p.Type {
	case NoKeyPath:
	case StringKeyPath:
		n = 1
	case ArrayKeyPath:
		var err error
		if n, rest, err = DecodeVarInt(rest); err != nil {
			return KeyPath{}, err
		}
	default:
		return KeyPath{}, malformed("key path", "type %d", p.Type)
	}
	for range n {
		path, after, err := decodeStringWithLength(rest)
		if err != nil {
			return KeyPath{}, err
		}
		p.Paths, rest = append(p.Paths, path), after
	}
	if len(rest) > 0 {
		return KeyPath{}, malformed("key path", "%d bytes behind it", len(rest))
	}
	return p, nil
}
