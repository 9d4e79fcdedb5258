package encoding

import (
	"fmt"
	"math"

	"github.com/ledgerd/ledger/internal/base"
)

// MaxUint is the greatest value that AppendUint encodes.
const MaxUint = math.MaxInt32

var (
	errShort     = fmt.Errorf("value ends early: %w", base.ErrCorrupt)
	errLong      = fmt.Errorf("integer has more bytes than it needs: %w", base.ErrCorrupt)
	errRange     = fmt.Errorf("number is out of range: %w", base.ErrCorrupt)
	errFirst     = fmt.Errorf("value begins with a byte that none begins with: %w", base.ErrCorrupt)
	errCanonical = fmt.Errorf("value is not in its canonical form: %w", base.ErrCorrupt)
)

const (
	uintDirect = 0xfb // the least first byte that gives the number of following bytes
	intLow     = -118 // the least and greatest values of one byte
	intHigh    = 119
	intZero    = 0x7f
	intPlus    = 0xf6 // plus the number of bytes that follow
	intMinus   = 0x09 // minus the number of bytes that follow
)

// AppendUint appends an unsigned integer, at most MaxUint, in 1 to 5 bytes. It encodes greater
// values modulo 2^31 without a panic, so callers check first.
func AppendUint(dst []byte, v uint32) []byte {
	v &= MaxUint
	if v < uintDirect {
		return append(dst, byte(v))
	}
	v -= uintDirect
	n := bytesOf(uint64(v))
	return appendBig(append(dst, byte(uintDirect+n-1)), uint64(v), n)
}

// Uint decodes an unsigned integer at the start of b and returns its length in bytes. It accepts
// leading zero bytes. Errors: base.ErrCorrupt.
func Uint(b []byte) (v uint32, n int, err error) {
	switch {
	case len(b) == 0:
		return 0, 0, errShort
	case b[0] < uintDirect:
		return uint32(b[0]), 1, nil
	case b[0] == 0xff:
		return 0, 0, errFirst
	}
	n = int(b[0]) - uintDirect + 2
	if len(b) < n {
		return 0, 0, errShort
	}
	x := big(b[1:n])
	if x > MaxUint-uintDirect {
		return 0, 0, errRange
	}
	return uint32(x) + uintDirect, n, nil
}

// StrictUint is Uint for canonical forms only. Errors: base.ErrCorrupt.
func StrictUint(b []byte) (v uint32, n int, err error) {
	v, n, err = Uint(b)
	if err == nil && n > 2 && b[1] == 0 {
		return 0, 0, errLong
	}
	return v, n, err
}

// AppendInt appends a signed integer in 1 to 9 bytes.
func AppendInt(dst []byte, v int64) []byte {
	switch {
	case v > intHigh:
		x := uint64(v) - intHigh - 1
		n := bytesOf(x)
		return appendBig(append(dst, byte(intPlus+n)), x, n)
	case v < intLow:
		x := uint64(v - intLow)
		n := bytesOf(^x)
		return appendBig(append(dst, byte(intMinus-n)), x, n)
	}
	return append(dst, byte(v+intZero))
}

// Int decodes a signed integer at the start of b and returns its length in bytes. It accepts forms
// with more bytes than needed. Errors: base.ErrCorrupt.
func Int(b []byte) (v int64, n int, err error) {
	switch {
	case len(b) == 0:
		return 0, 0, errShort
	case b[0] == 0 || b[0] == 0xff:
		return 0, 0, errFirst
	case b[0] >= intMinus && b[0] <= intPlus:
		return int64(b[0]) - intZero, 1, nil
	case b[0] > intPlus:
		n = int(b[0]) - intPlus
	default:
		n = intMinus - int(b[0])
	}
	if len(b) < n+1 {
		return 0, 0, errShort
	}
	x := big(b[1 : n+1])
	if b[0] > intPlus {
		if x > math.MaxInt64-intHigh-1 {
			return 0, 0, errRange
		}
		return int64(x) + intHigh + 1, n + 1, nil
	}
	if n < 8 {
		x |= ^uint64(0) << (8 * n)
	}
	s := int64(x)
	if s >= 0 || s < math.MinInt64-intLow {
		return 0, 0, errRange
	}
	return s + intLow, n + 1, nil
}

// StrictInt is Int for canonical forms only. Errors: base.ErrCorrupt.
func StrictInt(b []byte) (v int64, n int, err error) {
	v, n, err = Int(b)
	if err == nil && n > 2 && (b[0] > intPlus && b[1] == 0 || b[0] < intMinus && b[1] == 0xff) {
		return 0, 0, errLong
	}
	return v, n, err
}

// bytesOf returns the number of bytes that x needs, at least 1.
func bytesOf(x uint64) int {
	n := 1
	for x >>= 8; x > 0; x >>= 8 {
		n++
	}
	return n
}

func appendBig(dst []byte, x uint64, n int) []byte {
	for n--; n >= 0; n-- {
		dst = append(dst, byte(x>>(8*n)))
	}
	return dst
}

func big(b []byte) (x uint64) {
	for _, c := range b {
		x = x<<8 | uint64(c)
	}
	return x
}
