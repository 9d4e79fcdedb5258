package encoding

import (
	"encoding/hex"
	"fmt"

	"github.com/ledgerd/ledger/internal/base"
)

// ObjID is the id of an object: the storage id of its type, in the encoding of AppendUint, then
// random bytes. The zero ObjID is no id.
type ObjID [8]byte

// ParseObjID parses 16 hexadecimal digits. Errors: base.ErrInvalid.
func ParseObjID(s string) (ObjID, error) {
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(ObjID{}) || checkID(b) != nil {
		return ObjID{}, fmt.Errorf("%.40q is no object id: %w", s, base.ErrInvalid)
	}
	return ObjID(b), nil
}

// String returns the id as 16 hexadecimal digits.
func (id ObjID) String() string { return hex.EncodeToString(id[:]) }

// IsZero reports whether id is the zero ObjID.
func (id ObjID) IsZero() bool { return id == ObjID{} }

// Type returns the storage id of the object's type, or 0 when id is not valid.
func (id ObjID) Type() uint32 {
	v, _, err := StrictUint(id[:])
	if err != nil {
		return 0
	}
	return v
}

// ReadObjID decodes the id at the start of b. Errors: base.ErrCorrupt.
func ReadObjID(b []byte) (ObjID, error) {
	if err := checkID(b); err != nil {
		return ObjID{}, err
	}
	return ObjID(b[:8]), nil
}

func checkID(b []byte) error {
	if len(b) < len(ObjID{}) {
		return errShort
	}
	v, _, err := StrictUint(b)
	if err == nil && v == 0 {
		err = errFirst
	}
	return err
}

// Reference is the encoding of references. Its values are ObjID or nil.
var Reference = newReference()

func newReference() *Encoding {
	put := func(dst []byte, id ObjID) ([]byte, error) {
		if checkID(id[:]) != nil {
			return nil, fmt.Errorf("encode a reference to %s: %w", id, base.ErrInvalid)
		}
		return append(dst, id[:]...), nil
	}
	get := func(b []byte) (ObjID, int, error) {
		id, err := ReadObjID(b)
		return id, len(id), err
	}
	return codec(put, get).by(func(b []byte) (int, error) { return len(ObjID{}), checkID(b) }).nullable("")
}

// Enum returns the encoding of an enum. identifiers are in the order of their ordinals. Values are
// identifiers as strings, or nil.
func Enum(identifiers []string) *Encoding {
	ordinals := make(map[string]uint32, len(identifiers))
	for i, name := range identifiers {
		ordinals[name] = uint32(i)
	}
	put := func(dst []byte, name string) ([]byte, error) {
		i, ok := ordinals[name]
		if !ok {
			return nil, fmt.Errorf("%.100q is not in the enum: %w", name, base.ErrInvalid)
		}
		return AppendUint(dst, i), nil
	}
	get := func(b []byte) (string, int, error) {
		i, n, err := Uint(b)
		if err == nil && int64(i) >= int64(len(identifiers)) {
			err = errRange
		}
		if err != nil {
			return "", 0, err
		}
		return identifiers[i], n, nil
	}
	return codec(put, get).starts(true, false).nullable("")
}

// Array returns the encoding of arrays of e with the given number of dimensions, 1 to
// MaxDimensions. Values are []any or nil.
func Array(e *Encoding, dimensions int) *Encoding {
	for range dimensions {
		e = e.array()
	}
	return e
}
