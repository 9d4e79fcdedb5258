package encoding

import "math"

// The bits of floating point numbers sort like the numbers after a change: positive numbers get the
// sign bit, negative ones are inverted. There is one NaN, which sorts last.

func float() *Encoding  { return codec(appendFloat, getFloat).starts(true, true).by(floatLen) }
func double() *Encoding { return codec(appendDouble, getDouble).starts(true, true).by(doubleLen) }

func appendFloat(dst []byte, v float32) ([]byte, error) {
	u := math.Float32bits(v)
	switch {
	case v != v:
		u = 0x7fc00000 | 1<<31
	case u>>31 == 1:
		u = ^u
	default:
		u |= 1 << 31
	}
	return appendBig(dst, uint64(u), 4), nil
}

func getFloat(b []byte) (float32, int, error) {
	if len(b) < 4 {
		return 0, 0, errShort
	}
	u := uint32(big(b[:4]))
	if u>>31 == 1 {
		return math.Float32frombits(u &^ (1 << 31)), 4, nil
	}
	return math.Float32frombits(^u), 4, nil
}

func floatLen(b []byte) (int, error) {
	v, n, err := getFloat(b)
	if err == nil && v != v && big(b[:4]) != 0xffc00000 {
		err = errCanonical
	}
	return n, err
}

func appendDouble(dst []byte, v float64) ([]byte, error) {
	u := math.Float64bits(v)
	switch {
	case v != v:
		u = 0x7ff8<<48 | 1<<63
	case u>>63 == 1:
		u = ^u
	default:
		u |= 1 << 63
	}
	return appendBig(dst, u, 8), nil
}

func getDouble(b []byte) (float64, int, error) {
	if len(b) < 8 {
		return 0, 0, errShort
	}
	u := big(b[:8])
	if u>>63 == 1 {
		return math.Float64frombits(u &^ (1 << 63)), 8, nil
	}
	return math.Float64frombits(^u), 8, nil
}

func doubleLen(b []byte) (int, error) {
	v, n, err := getDouble(b)
	if err == nil && v != v && big(b[:8]) != 0xfff8<<48 {
		err = errCanonical
	}
	return n, err
}
