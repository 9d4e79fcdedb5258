package wtf8

import (
	"encoding/binary"
	"slices"
	"unicode/utf16"
	"unicode/utf8"
)

// surrogates are the code points of UTF-16 surrogates.
const (
	surrogateMin, surrogateLow, surrogateMax = 0xd800, 0xdc00, 0xdfff
)

// FromUTF16 converts UTF-16 code units in the given byte order to a string. It ignores an odd last
// byte.
func FromUTF16(b []byte, order binary.ByteOrder) string {
	out := make([]byte, 0, len(b))
	for i := 0; i+1 < len(b); i += 2 {
		r := rune(order.Uint16(b[i:]))
		if r >= surrogateMin && r < surrogateLow && i+3 < len(b) {
			if pair := utf16.DecodeRune(r, rune(order.Uint16(b[i+2:]))); pair != utf8.RuneError {
				out = utf8.AppendRune(out, pair)
				i += 2
				continue
			}
		}
		if r >= surrogateMin && r <= surrogateMax {
			out = append(out, byte(0xe0|r>>12), byte(0x80|r>>6&0x3f), byte(0x80|r&0x3f))
			continue
		}
		out = utf8.AppendRune(out, r)
	}
	return string(out)
}

// FromLatin1 converts Latin-1 bytes to a string.
func FromLatin1(b []byte) string {
	if IsASCII(b) {
		return string(b)
	}
	out := make([]byte, 0, len(b))
	for _, c := range b {
		out = utf8.AppendRune(out, rune(c))
	}
	return string(out)
}

// IsASCII reports whether all bytes of b are ASCII, so that b is valid Latin-1, UTF-8 and WTF-8.
func IsASCII(b []byte) bool {
	for ; len(b) >= 8; b = b[8:] {
		if binary.LittleEndian.Uint64(b)&0x8080808080808080 != 0 {
			return false
		}
	}
	for _, c := range b {
		if c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// AppendUTF16 appends the code units of s in big-endian order. An invalid byte becomes U+FFFD.
func AppendUTF16(dst []byte, s string) []byte {
	for i := 0; i < len(s); {
		if n := asciiLen(s[i:]); n > 0 {
			at := len(dst)
			dst = slices.Grow(dst, 2*n)[:at+2*n]
			for _, c := range []byte(s[i : i+n]) {
				dst[at], dst[at+1] = 0, c
				at += 2
			}
			i += n
			continue
		}
		r, n := decode(s[i:])
		i += n
		if r > 0xffff {
			high, low := utf16.EncodeRune(r)
			dst = binary.BigEndian.AppendUint16(dst, uint16(high))
			r = low
		}
		dst = binary.BigEndian.AppendUint16(dst, uint16(r))
	}
	return dst
}

// asciiLen returns the number of ASCII bytes at the beginning of s.
func asciiLen(s string) int {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return i
		}
	}
	return len(s)
}

// decode returns the first code point of s and its length in bytes. s must not be empty.
func decode(s string) (rune, int) {
	r, n := utf8.DecodeRuneInString(s)
	if r == utf8.RuneError && n == 1 && len(s) >= 3 && s[0] == 0xed && s[1] >= 0xa0 && s[1] <= 0xbf && s[2]&0xc0 == 0x80 {
		return 0xd000 | rune(s[1]&0x3f)<<6 | rune(s[2]&0x3f), 3
	}
	return r, n
}

// Len returns the number of code units of s.
func Len(s string) (units int) {
	units = asciiLen(s)
	for s = s[units:]; s != ""; units++ {
		r, n := decode(s)
		s = s[n:]
		if r > 0xffff {
			units++
		}
	}
	return units
}
