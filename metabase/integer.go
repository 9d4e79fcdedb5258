package metabase

import (
	"math/big"
)

// integerBytes is the length of an integer in a key. The first byte is the sign, 0 for negative
// integers. The magnitude follows, big-endian, with inverted bits when negative, so that keys sort
// as integers.
const integerBytes = 33

// greatestInteger is the greatest magnitude that a key can hold.
var greatestInteger = new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 256), big.NewInt(1))

// parseInteger parses a decimal integer of any size, with an optional sign.
func parseInteger(s string) (*big.Int, bool) {
	digits := s
	if s != "" && (s[0] == '+' || s[0] == '-') {
		digits = s[1:]
	}
	if digits == "" {
		return nil, false
	}
	for i := range len(digits) {
		if digits[i] < '0' || digits[i] > '9' {
			return nil, false
		}
	}
	return new(big.Int).SetString(s, 10)
}

// inRange reports whether a key can hold n.
func inRange(n *big.Int) bool { return n.CmpAbs(greatestInteger) <= 0 }

func integerKey(n *big.Int) []byte {
	b := make([]byte, integerBytes)
	n.FillBytes(b[1:])
	if n.Sign() >= 0 {
		b[0] = 1
		return b
	}
	invert(b[1:])
	return b
}

// integerOf decodes a key. ok is false when b is not the key of an integer.
func integerOf(b []byte) (n *big.Int, ok bool) {
	if len(b) != integerBytes || b[0] > 1 {
		return nil, false
	}
	magnitude := append([]byte{}, b[1:]...)
	if b[0] == 0 {
		invert(magnitude)
	}
	n = new(big.Int).SetBytes(magnitude)
	if b[0] == 0 {
		return n.Neg(n), n.Sign() != 0
	}
	return n, true
}

func invert(b []byte) {
	for i := range b {
		b[i] = ^b[i]
	}
}
