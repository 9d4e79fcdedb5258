package encoding

import (
	"fmt"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/ledgerd/ledger/internal/base"
)

// A string is a sequence of UTF-16 code units, ended by 00. 0x0000 is 01 00 and 0x0001 is 01 01;
// other units are encoded by AppendUint. Go strings are UTF-8. A lone surrogate has the three bytes
// of WTF-8 in Go, so every Java string has exactly one Go form.

var errText = fmt.Errorf("string is not UTF-8: %w", base.ErrInvalid)

func appendUnit(dst []byte, u uint16) []byte {
	if u <= 1 {
		dst = append(dst, 1)
	}
	return AppendUint(dst, uint32(u))
}

// unit decodes a code unit. n is 0 at the end of the string.
func unit(b []byte, strict bool) (u uint16, n int, err error) {
	switch {
	case len(b) == 0:
		return 0, 0, errShort
	case b[0] == 0:
		return 0, 0, nil
	case b[0] == 1:
		if len(b) < 2 {
			return 0, 0, errShort
		}
		if b[1] > 1 {
			return 0, 0, fmt.Errorf("string has an unknown escape: %w", base.ErrCorrupt)
		}
		return uint16(b[1]), 2, nil
	case b[0] < uintDirect:
		return uint16(b[0]), 1, nil
	}
	v, n, err := Uint(b)
	if err == nil && strict {
		v, n, err = StrictUint(b)
	}
	if err == nil && v > 0xffff {
		err = errRange
	}
	return uint16(v), n, err
}

func appendText(dst []byte, s string) ([]byte, error) {
	high := false // the last unit was a lone high surrogate
	for i := 0; i < len(s); {
		if c := s[i]; c < utf8.RuneSelf {
			dst, high = appendUnit(dst, uint16(c)), false
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 {
			u, ok := surrogate(s[i:])
			if !ok || high && u >= 0xdc00 {
				return nil, errText
			}
			dst, high = appendUnit(dst, u), u < 0xdc00
			i += 3
			continue
		}
		high = false
		if r >= 0x10000 {
			a, b := utf16.EncodeRune(r)
			dst = appendUnit(appendUnit(dst, uint16(a)), uint16(b))
		} else {
			dst = appendUnit(dst, uint16(r))
		}
		i += n
	}
	return append(dst, 0), nil
}

// surrogate decodes the three bytes of a lone surrogate.
func surrogate(s string) (uint16, bool) {
	if len(s) < 3 || s[0] != 0xed || s[1] < 0xa0 || s[1] > 0xbf || s[2] < 0x80 || s[2] > 0xbf {
		return 0, false
	}
	return 0xd000 | uint16(s[1]&0x3f)<<6 | uint16(s[2]&0x3f), true
}

func text(b []byte) (string, int, error) {
	var out []byte // more values may follow, so len(b) says nothing
	for i := 0; ; {
		u, n, err := unit(b[i:], false)
		if err != nil {
			return "", 0, err
		}
		if n == 0 {
			return string(out), i + 1, nil
		}
		i += n
		if u >= 0xd800 && u < 0xdc00 {
			if low, m, err := unit(b[i:], false); err == nil && m > 0 && low >= 0xdc00 && low < 0xe000 {
				out = utf8.AppendRune(out, utf16.DecodeRune(rune(u), rune(low)))
				i += m
				continue
			}
		}
		if u >= 0xd800 && u < 0xe000 {
			out = append(out, 0xed, 0x80|byte(u>>6)&0x3f, 0x80|byte(u)&0x3f)
			continue
		}
		out = utf8.AppendRune(out, rune(u))
	}
}

func textLen(b []byte) (int, error) {
	for i := 0; ; {
		_, n, err := unit(b[i:], true)
		if err != nil {
			return 0, err
		}
		if n == 0 {
			return i + 1, nil
		}
		i += n
	}
}

func appendChars(dst []byte, units []uint16) ([]byte, error) {
	for _, u := range units {
		dst = appendUnit(dst, u)
	}
	return append(dst, 0), nil
}

func chars(b []byte) ([]uint16, int, error) {
	units := []uint16{}
	for i := 0; ; {
		u, n, err := unit(b[i:], false)
		if err != nil {
			return nil, 0, err
		}
		if n == 0 {
			return units, i + 1, nil
		}
		units = append(units, u)
		i += n
	}
}
