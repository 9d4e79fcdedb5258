package secret

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"io"
	"log/slog"
)

// redacted replaces a secret in output.
const redacted = "[secret]"

// Bytes is a secret. The zero value is empty. It is not comparable with ==; use Equal.
//
// I1: the bytes are in a closure. Package fmt prints unexported fields by reflection, without
// calling their methods, and follows pointers when a verb does not fit; of a function it can print
// only the address.
type Bytes struct {
	get func() []byte
}

// New returns a secret with a copy of b; the caller still owns b and may wipe it.
func New(b []byte) Bytes {
	own := append([]byte(nil), b...)
	return Bytes{get: func() []byte { return own }}
}

// FromString returns a secret with the bytes of s. s itself stays in memory until it is collected.
func FromString(s string) Bytes { return New([]byte(s)) }

// Expose returns the bytes, not a copy. The caller must not change or print them, or keep them
// longer than the secret.
func (s Bytes) Expose() []byte {
	if s.get == nil {
		return nil
	}
	return s.get()
}

// Len returns the number of bytes.
func (s Bytes) Len() int { return len(s.Expose()) }

// IsZero reports whether there are no bytes.
func (s Bytes) IsZero() bool { return s.Len() == 0 }

// Equal reports whether both secrets have the same bytes, in a time that depends only on their
// lengths.
func (s Bytes) Equal(other Bytes) bool {
	a, b := sha256.Sum256(s.Expose()), sha256.Sum256(other.Expose())
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1
}

// String implements fmt.Stringer without the bytes.
func (Bytes) String() string { return redacted }

// GoString implements fmt.GoStringer without the bytes.
func (Bytes) GoString() string { return redacted }

// Format implements fmt.Formatter without the bytes, for every verb.
func (Bytes) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// LogValue implements slog.LogValuer without the bytes.
func (Bytes) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText implements encoding.TextMarshaler without the bytes.
func (Bytes) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// MarshalJSON implements json.Marshaler without the bytes.
func (Bytes) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }

// MarshalBinary implements encoding.BinaryMarshaler without the bytes, so that encoding/gob does
// not use another method.
func (Bytes) MarshalBinary() ([]byte, error) { return []byte(redacted), nil }
