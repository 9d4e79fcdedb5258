package encoding_test

import (
	"encoding/hex"
	"fmt"
	"math"
	"math/big"
	"net/netip"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"

	"github.com/ledgerd/ledger/permazen/encoding"
)

// javaText returns a value as the vectors have it.
func javaText(name string, v any) string {
	switch x := v.(type) {
	case nil:
		return "null"
	case string:
		if name != "String" && !strings.Contains(name, "[]") {
			return x
		}
		return escape(x)
	case uint16:
		return escape(string(utf16.Decode([]uint16{x})))
	case float32:
		return javaFloat(float64(x), 32)
	case float64:
		return javaFloat(x, 64)
	case *big.Int:
		return x.String()
	case encoding.Decimal:
		return javaDecimal(x)
	case encoding.BitSet:
		if len(x) == 0 {
			return "[]"
		}
		return "[" + hex.EncodeToString(x) + "]"
	case encoding.UUID:
		h := hex.EncodeToString(x[:])
		return strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:]}, "-")
	case netip.Addr:
		return x.String()
	case time.Time:
		return x.Format("2006-01-02T15:04:05.999999999Z07:00")
	}
	if s, ok := javaTime(v); ok {
		return s
	}
	if r := reflect.ValueOf(v); r.Kind() == reflect.Slice {
		return javaArray(name, r)
	}
	return fmt.Sprint(v)
}

func javaArray(name string, r reflect.Value) string {
	if r.Len() == 0 {
		return "[ ]"
	}
	var parts []string
	for i := range r.Len() {
		v := r.Index(i).Interface()
		if name == "byte[]" {
			v = int8(v.(byte))
		}
		if u, ok := v.(uint16); ok && name == "char[]" {
			v = string(rune(u))
		}
		if v == nil {
			parts = append(parts, "null")
			continue
		}
		parts = append(parts, strconv.Quote(javaText(strings.TrimSuffix(name, "[]"), v)))
	}
	return "[ " + strings.Join(parts, ", ") + " ]"
}

// escape returns code units as the vectors have them: what is not printable ASCII as \uXXXX.
func escape(s string) string {
	var b strings.Builder
	for _, u := range utf16.Encode([]rune(s)) {
		if u >= 0x20 && u < 0x7f {
			b.WriteByte(byte(u))
		} else {
			fmt.Fprintf(&b, `\u%04x`, u)
		}
	}
	return b.String()
}

func javaFloat(v float64, bits int) string {
	switch {
	case math.IsInf(v, 1):
		return "Infinity"
	case math.IsInf(v, -1):
		return "-Infinity"
	case v == 5e-324:
		return "4.9E-324" // Java always has two digits
	}
	s := strconv.FormatFloat(v, 'f', -1, bits)
	if !strings.Contains(s, ".") && s != "NaN" {
		s += ".0"
	}
	return s
}

func javaDecimal(d encoding.Decimal) string {
	s := d.Unscaled.String()
	if d.Scale < 0 {
		return s + "E+" + strconv.Itoa(int(-d.Scale))
	}
	sign := ""
	if s[0] == '-' {
		sign, s = "-", s[1:]
	}
	if d.Scale > 0 {
		s = strings.Repeat("0", max(0, int(d.Scale)+1-len(s))) + s
		s = s[:len(s)-int(d.Scale)] + "." + s[len(s)-int(d.Scale):]
	}
	return sign + s
}

func offset(o encoding.ZoneOffset) string {
	if o == 0 {
		return "Z"
	}
	sign := '+'
	if o < 0 {
		sign, o = '-', -o
	}
	return fmt.Sprintf("%c%02d:%02d", sign, o/3600, o/60%60)
}

func clock(t encoding.LocalTime) string {
	layout := "15:04:05.999999999"
	if int64(t)%int64(time.Minute) == 0 {
		layout = "15:04"
	}
	return time.Unix(0, int64(t)).UTC().Format(layout)
}

func local(seconds int64, nanos int32) string {
	return time.Unix(seconds, int64(nanos)).UTC().Format("2006-01-02T15:04:05.999999999")
}

func javaTime(v any) (string, bool) {
	switch x := v.(type) {
	case encoding.Duration:
		d := time.Duration(x.Seconds)*time.Second + time.Duration(x.Nanos)
		if d != 0 && d%time.Hour == 0 {
			return fmt.Sprintf("PT%dH", d/time.Hour), true
		}
		return fmt.Sprintf("PT%gS", d.Seconds()), true
	case encoding.LocalDateTime:
		return local(x.Seconds, x.Nanos), true
	case encoding.LocalDate:
		return time.Unix(int64(x)*86400, 0).UTC().Format("2006-01-02"), true
	case encoding.LocalTime:
		return clock(x), true
	case encoding.MonthDay:
		return fmt.Sprintf("--%02d-%02d", x.Month, x.Day), true
	case encoding.ZoneOffset:
		return offset(x), true
	case encoding.OffsetDateTime:
		return local(x.Seconds+int64(x.Offset), x.Nanos) + offset(x.Offset), true
	case encoding.OffsetTime:
		return clock(x.Time) + offset(x.Offset), true
	case encoding.ZonedDateTime:
		return local(x.Seconds+int64(x.Offset), x.Nanos) + offset(x.Offset) + "[" + x.Zone + "]", true
	case encoding.Period:
		s := "P"
		for _, p := range []struct {
			n int32
			u string
		}{{x.Years, "Y"}, {x.Months, "M"}, {x.Days, "D"}} {
			if p.n != 0 {
				s += fmt.Sprintf("%d%s", p.n, p.u)
			}
		}
		return s, true
	case encoding.YearMonth:
		return fmt.Sprintf("%04d-%02d", x.Year, x.Month), true
	case encoding.Year:
		if x < 0 {
			return fmt.Sprintf("-%04d", -x), true
		}
		return fmt.Sprintf("%d", x), true
	}
	return "", false
}
