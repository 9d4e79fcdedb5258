package indexeddb

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/ledgerd/ledger/internal/base"
)

// KeyPathType is the type of a key path, with the number that Chromium writes.
type KeyPathType byte

// The types of key paths.
const (
	NoKeyPath     KeyPathType = 0
	StringKeyPath KeyPathType = 1
	ArrayKeyPath  KeyPathType = 2
)

// KeyPath is the place of the key in a value. The zero KeyPath is none.
type KeyPath struct {
	Type KeyPathType
	// Paths has one element for StringKeyPath, which may be the empty path, and any number for
	// ArrayKeyPath.
	Paths []string
	// Bare is set when the path is stored without a type, as in very old data.
	Bare bool
}

// Equal reports whether both paths are the same, regardless of Bare.
func (p KeyPath) Equal(other KeyPath) bool {
	return p.Type == other.Type && slices.Equal(p.Paths, other.Paths)
}

// String formats the path for people.
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

// DecodeKeyPath decodes a path that takes all of b. Errors: base.ErrCorrupt.
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

// Check validates p: it must be the empty string, property names joined by dots, or a list of one
// or more such paths. Errors: base.ErrInvalid.
func (p KeyPath) Check() error {
	if p.Type == ArrayKeyPath && len(p.Paths) == 0 {
		return fmt.Errorf("key path without paths: %w", base.ErrInvalid)
	}
	for _, path := range p.Paths {
		if !validPath(path) {
			return fmt.Errorf("key path %.100q: %w", path, base.ErrInvalid)
		}
	}
	return nil
}

// validPath reports whether a path is empty or consists of script identifiers joined by dots.
func validPath(path string) bool {
	begins := path != ""
	for _, r := range path {
		switch {
		case r == '.' && begins, !begins && r != '.' && !continuesIdentifier(r), begins && !beginsIdentifier(r):
			return false
		}
		begins = r == '.'
	}
	return !begins
}

func beginsIdentifier(r rune) bool {
	return r == '$' || r == '_' || unicode.In(r, unicode.L, unicode.Nl, unicode.Other_ID_Start) && !unicode.In(r, unicode.Pattern_Syntax, unicode.Pattern_White_Space)
}

func continuesIdentifier(r rune) bool {
	const nonJoiner, joiner = '\u200c', '\u200d'
	return beginsIdentifier(r) || r == nonJoiner || r == joiner || unicode.In(r, unicode.Mn, unicode.Mc, unicode.Nd, unicode.Pc, unicode.Other_ID_Continue)
}
