package encoding

import (
	"bytes"
	"fmt"
	"math"
	stdbig "math/big"

	"github.com/ledgerd/ledger/internal/base"
)

// Decimal is Unscaled / 10^Scale. 1 and 1.0 are different values, as in Java.
type Decimal struct {
	Unscaled *stdbig.Int
	Scale    int32
}

// BitSet has the bits of a set in big-endian order, without leading zero bytes.
type BitSet []byte

// maxNumberBytes bounds big integers, whose length is a 32-bit integer.
const maxNumberBytes = math.MaxInt32

func appendBigInt(dst []byte, v *stdbig.Int) ([]byte, error) {
	if v == nil {
		return nil, fmt.Errorf("encode a nil *big.Int: %w", base.ErrInvalid)
	}
	if v.Sign() == 0 {
		return AppendInt(dst, 0), nil
	}
	if v.Sign() > 0 {
		b := v.Bytes()
		if b[0] >= 0x80 {
			b = append([]byte{0}, b...)
		}
		return append(AppendInt(dst, int64(len(b))), b...), nil
	}
	b := new(stdbig.Int).Not(v).Bytes() // -v-1
	if len(b) == 0 || b[0] >= 0x80 {
		b = append([]byte{0}, b...)
	}
	for i := range b {
		b[i] = ^b[i]
	}
	return append(AppendInt(dst, -int64(len(b))), b...), nil
}

func bigInt(b []byte) (*stdbig.Int, int, error) {
	size, n, err := Int(b)
	if err != nil {
		return nil, 0, err
	}
	if size == 0 {
		return new(stdbig.Int), n, nil
	}
	count := max(size, -size)
	if count < 0 || count > maxNumberBytes || int64(len(b)-n) < count {
		return nil, 0, errShort
	}
	digits := bytes.Clone(b[n : n+int(count)])
	if (digits[0] >= 0x80) != (size < 0) {
		return nil, 0, fmt.Errorf("number has another sign than its length: %w", base.ErrCorrupt)
	}
	n += int(count)
	if size > 0 {
		return new(stdbig.Int).SetBytes(digits), n, nil
	}
	for i := range digits {
		digits[i] = ^digits[i]
	}
	v := new(stdbig.Int).SetBytes(digits)
	return v.Not(v), n, nil
}

const (
	signMinus = 1
	signZero  = 2
	signPlus  = 3
)

func appendDecimal(dst []byte, d Decimal) ([]byte, error) {
	if d.Unscaled == nil || d.Unscaled.Sign() == 0 {
		if d.Scale < 0 {
			return nil, fmt.Errorf("encode zero with a negative scale: %w", base.ErrInvalid)
		}
		return AppendUint(append(dst, signZero), uint32(d.Scale)), nil
	}
	digits := new(stdbig.Int).Abs(d.Unscaled).String()
	exponent := int64(len(digits)) - 1 - int64(d.Scale)
	sign, invert := byte(signPlus), byte(0)
	if d.Unscaled.Sign() < 0 {
		sign, invert, exponent = signMinus, 0xff, -exponent
	}
	dst = AppendInt(append(dst, sign), exponent)
	for i := 0; i <= len(digits); i += 2 {
		dst = append(dst, (nibble(digits, i)<<4|nibble(digits, i+1))^invert)
	}
	return dst, nil
}

func nibble(digits string, i int) byte {
	if i >= len(digits) {
		return 0
	}
	return digits[i] - '0' + 1
}

// digits calls f for each decimal digit after the sign and exponent of a number, and returns the
// number of bytes read.
func digits(b []byte, invert byte, f func(digit byte)) (int, error) {
	for n, c := range b {
		high, low := (c^invert)>>4, (c^invert)&15
		if high > 10 || low > 10 || high == 0 && low != 0 {
			return 0, errRange
		}
		if high > 0 {
			f('0' + high - 1)
		}
		if low > 0 {
			f('0' + low - 1)
		}
		if low == 0 {
			return n + 1, nil
		}
	}
	return 0, errShort
}

// decimalParts reads the sign and exponent of a number, and verifies them and the digits. scale is
// the scale of the number; n and end delimit the digits.
func decimalParts(b []byte, integer func([]byte) (int64, int, error)) (invert byte, scale int32, n, end int, err error) {
	if b[0] != signMinus && b[0] != signPlus {
		return 0, 0, 0, 0, errFirst
	}
	exponent, n, err := integer(b[1:])
	if err != nil {
		return 0, 0, 0, 0, err
	}
	if b[0] == signMinus {
		invert, exponent = 0xff, -exponent
	}
	count, first := int64(0), byte(0)
	size, err := digits(b[n+1:], invert, func(d byte) {
		if count++; count == 1 {
			first = d
		}
	})
	if err != nil {
		return 0, 0, 0, 0, err
	}
	s := count - 1 - exponent
	if count == 0 || first == '0' || exponent > 2*math.MaxInt32 || exponent < -2*math.MaxInt32 || int64(int32(s)) != s {
		return 0, 0, 0, 0, errRange
	}
	return invert, int32(s), n + 1, n + 1 + size, nil
}

func decimal(b []byte) (Decimal, int, error) {
	if len(b) == 0 {
		return Decimal{}, 0, errShort
	}
	if b[0] == signZero {
		scale, n, err := Uint(b[1:])
		return Decimal{new(stdbig.Int), int32(scale)}, n + 1, err
	}
	invert, scale, n, end, err := decimalParts(b, Int)
	if err != nil {
		return Decimal{}, 0, err
	}
	text := []byte{}
	if b[0] == signMinus {
		text = append(text, '-')
	}
	if _, err := digits(b[n:end], invert, func(d byte) { text = append(text, d) }); err != nil {
		return Decimal{}, 0, err
	}
	v, ok := new(stdbig.Int).SetString(string(text), 10)
	if !ok {
		return Decimal{}, 0, errRange
	}
	return Decimal{v, scale}, end, nil
}

// decimalLen does not convert the digits, because conversion is slow for many digits.
func decimalLen(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, errShort
	}
	if b[0] == signZero {
		_, n, err := StrictUint(b[1:])
		return n + 1, err
	}
	_, _, _, end, err := decimalParts(b, StrictInt)
	return end, err
}

func appendBitSet(dst []byte, s BitSet) ([]byte, error) {
	s = bytes.TrimLeft(s, "\x00")
	if len(s) > MaxUint {
		return nil, fmt.Errorf("encode a set of %d bytes: %w", len(s), base.ErrInvalid)
	}
	return append(AppendUint(dst, uint32(len(s))), s...), nil
}

func bitSet(b []byte) (BitSet, int, error) {
	size, n, err := Uint(b)
	if err != nil {
		return nil, 0, err
	}
	if uint64(len(b)-n) < uint64(size) {
		return nil, 0, errShort
	}
	n += int(size)
	return BitSet(append([]byte{}, bytes.TrimLeft(b[n-int(size):n], "\x00")...)), n, nil
}
