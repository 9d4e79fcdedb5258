package metabase

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"math/big"
	"strings"

	"github.com/ledgerd/ledger/internal/base"
)

// ID names an object or a container. Its text form is base58.
type ID [32]byte

// Address names an object in its container. Its text form is CONTAINER/OBJECT.
type Address struct{ Container, Object ID }

// Owner identifies the owner of an object: a prefix of one byte, a script hash of 20 bytes, and a
// checksum of 4 bytes. Its text form is base58.
type Owner [25]byte

const ownerPrefix = 0x35

// NewOwner returns the owner with a script hash.
func NewOwner(scriptHash [20]byte) (o Owner) {
	o[0] = ownerPrefix
	copy(o[1:], scriptHash[:])
	first := sha256.Sum256(o[:21])
	second := sha256.Sum256(first[:])
	copy(o[21:], second[:4])
	return o
}

// String returns the id in base58.
func (id ID) String() string { return base58(id[:]) }

// IsZero reports whether the id is not set.
func (id ID) IsZero() bool { return id == ID{} }

// String returns the owner in base58.
func (o Owner) String() string { return base58(o[:]) }

// String returns the address as CONTAINER/OBJECT.
func (a Address) String() string { return a.Container.String() + "/" + a.Object.String() }

// bytes returns the key of the address in buckets that are keyed by address.
func (a Address) bytes() []byte { return append(a.Container[:], a.Object[:]...) }

// ParseID reads an id in base58. Errors: base.ErrInvalid.
func ParseID(s string) (id ID, err error) {
	b, err := parseBase58(s, len(id))
	if err != nil {
		return id, err
	}
	return ID(b), nil
}

// ParseAddress reads CONTAINER/OBJECT. Errors: base.ErrInvalid.
func ParseAddress(s string) (a Address, err error) {
	container, object, ok := strings.Cut(s, "/")
	if !ok {
		return a, fmt.Errorf("parse address %.120q: want CONTAINER/OBJECT: %w", s, base.ErrInvalid)
	}
	if a.Container, err = ParseID(container); err != nil {
		return a, err
	}
	a.Object, err = ParseID(object)
	return a, err
}

// ParseOwner reads an owner in base58. Errors: base.ErrInvalid.
func ParseOwner(s string) (o Owner, err error) {
	b, err := parseBase58(s, len(o))
	if err != nil {
		return o, err
	}
	if copy(o[:], b); o != NewOwner([20]byte(b[1:21])) {
		return o, fmt.Errorf("parse owner %q: the prefix or the checksum is wrong: %w", s, base.ErrInvalid)
	}
	return o, nil
}

// idOf returns b as an id. ok is false when b does not have 32 bytes.
func idOf(b []byte) (id ID, ok bool) {
	if len(b) != len(id) {
		return id, false
	}
	return ID(b), true
}

// addressOf returns b as an address. ok is false when b does not have 64 bytes.
func addressOf(b []byte) (a Address, ok bool) {
	if len(b) != 64 {
		return a, false
	}
	return Address{ID(b[:32]), ID(b[32:])}, true
}

const base58Digits = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"

// base58 encodes bytes as a number in base 58, with a 1 for each leading zero byte.
func base58(b []byte) string {
	var digits []byte
	n, radix, digit := new(big.Int).SetBytes(b), big.NewInt(58), new(big.Int)
	for n.Sign() > 0 {
		n.DivMod(n, radix, digit)
		digits = append(digits, base58Digits[digit.Int64()])
	}
	for _, c := range b {
		if c != 0 {
			break
		}
		digits = append(digits, base58Digits[0])
	}
	for i, j := 0, len(digits)-1; i < j; i, j = i+1, j-1 {
		digits[i], digits[j] = digits[j], digits[i]
	}
	return string(digits)
}

// isBase58 reports whether s consists of base58 digits.
func isBase58(s string) bool {
	for i := range len(s) {
		if strings.IndexByte(base58Digits, s[i]) < 0 {
			return false
		}
	}
	return true
}

// parseBase58 decodes exactly size bytes.
func parseBase58(s string, size int) ([]byte, error) {
	if len(s) > 2*size || !isBase58(s) {
		return nil, fmt.Errorf("parse %.120q: want %d bytes in base58: %w", s, size, base.ErrInvalid)
	}
	n, radix := new(big.Int), big.NewInt(58)
	for i := range len(s) {
		n.Add(n.Mul(n, radix), big.NewInt(int64(strings.IndexByte(base58Digits, s[i]))))
	}
	zeros := len(s) - len(strings.TrimLeft(s, base58Digits[:1]))
	b := append(bytes.Repeat([]byte{0}, zeros), n.Bytes()...)
	if len(b) != size {
		return nil, fmt.Errorf("parse %q: want %d bytes in base58, got %d: %w", s, size, len(b), base.ErrInvalid)
	}
	return b, nil
}
