package encoding_test

import (
	"bytes"
	"cmp"
	"math"
	"math/big"
	"slices"
	"testing"
	"time"
	"unicode/utf16"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/permazen/encoding"
)

// law says what the values of an encoding are and how they are ordered; nil when they have no
// order.
type law struct {
	draw    func(*rapid.T) any
	compare func(a, b any) int
}

func of[T any](g *rapid.Generator[T], compare func(a, b T) int) law {
	l := law{draw: func(t *rapid.T) any { return g.Draw(t, "value") }}
	if compare != nil {
		l.compare = func(a, b any) int { return compare(a.(T), b.(T)) }
	}
	return l
}

// near prefers integers around those where the number of bytes changes.
func near(low, high int64) *rapid.Generator[int64] {
	return rapid.Custom(func(t *rapid.T) int64 {
		if rapid.Bool().Draw(t, "any") {
			return rapid.Int64Range(low, high).Draw(t, "integer")
		}
		v := int64(1)<<rapid.IntRange(0, 62).Draw(t, "bit") + rapid.Int64Range(-130, 130).Draw(t, "off")
		if rapid.Bool().Draw(t, "minus") {
			v = -v
		}
		return min(max(v, low), high)
	})
}

func as[T any](low, high int64, f func(int64) T) *rapid.Generator[T] {
	return rapid.Map(near(low, high), f)
}

func seconds() *rapid.Generator[int64] { return near(-31_557_014_167_219_200, 31_556_889_864_403_199) }
func nanos() *rapid.Generator[int32]   { return rapid.Int32Range(0, 999_999_999) }

func units(s string) []uint16 { return utf16.Encode([]rune(s)) }

func compareDecimals(a, b encoding.Decimal) int {
	x, y := rat(a), rat(b)
	if c := x.Cmp(y); c != 0 {
		return c
	}
	return cmp.Compare(a.Scale, b.Scale) * max(1, -2*x.Sign()+1)
}

func rat(d encoding.Decimal) *big.Rat {
	p := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(max(d.Scale, -d.Scale))), nil)
	if d.Scale < 0 {
		return new(big.Rat).SetInt(p.Mul(p, d.Unscaled))
	}
	return new(big.Rat).SetFrac(d.Unscaled, p)
}

func compareFloats[T float32 | float64](a, b T) int {
	x, y := float64(a), float64(b)
	switch {
	case math.IsNaN(x) || math.IsNaN(y):
		return -cmp.Compare(x, y) // NaN is the greatest
	case x == 0 && y == 0:
		return cmp.Compare(-boolInt(math.Signbit(x)), -boolInt(math.Signbit(y)))
	}
	return cmp.Compare(x, y)
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

func laws() map[string]law {
	instant := rapid.Custom(func(t *rapid.T) time.Time {
		return time.Unix(seconds().Draw(t, "s"), int64(nanos().Draw(t, "n"))).UTC()
	})
	local := rapid.Custom(func(t *rapid.T) encoding.LocalDateTime {
		return encoding.LocalDateTime{Seconds: seconds().Draw(t, "s"), Nanos: nanos().Draw(t, "n")}
	})
	return map[string]law{
		"boolean": of(rapid.Bool(), func(a, b bool) int { return cmp.Compare(boolInt(a), boolInt(b)) }),
		"byte":    of(rapid.Int8(), cmp.Compare[int8]),
		"short":   of(rapid.Int16(), cmp.Compare[int16]),
		"int":     of(as(math.MinInt32, math.MaxInt32, func(v int64) int32 { return int32(v) }), cmp.Compare[int32]),
		"long":    of(near(math.MinInt64, math.MaxInt64), cmp.Compare[int64]),
		"Long":    of(near(math.MinInt64, math.MaxInt64), cmp.Compare[int64]),
		"char":    of(rapid.Uint16(), cmp.Compare[uint16]),
		"float":   of(rapid.OneOf(rapid.Float32(), rapid.Just(float32(math.Copysign(0, -1)))), compareFloats[float32]),
		"double":  of(rapid.OneOf(rapid.Float64(), rapid.Just(math.NaN()), rapid.Just(math.Copysign(0, -1))), compareFloats[float64]),
		"Double":  of(rapid.Float64(), compareFloats[float64]),
		"String": of(rapid.OneOf(rapid.String(), rapid.StringOf(rapid.SampledFrom([]rune("\x00\x01\x02a\u00fa\u00fb\u01fb\uffff\U0001f600")))),
			func(a, b string) int { return slices.Compare(units(a), units(b)) }),
		"boolean[]": of(rapid.SliceOf(rapid.Bool()), nil),
		"byte[]":    of(rapid.SliceOf(rapid.Byte()), nil),
		"int[]":     of(rapid.SliceOf(rapid.Int32()), slices.Compare[[]int32]),
		"char[]":    of(rapid.SliceOf(rapid.Uint16()), slices.Compare[[]uint16]),
		"double[]":  of(rapid.SliceOf(rapid.Float64()), nil),
		"BigInteger": of(rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 20), func(b []byte) *big.Int {
			v := new(big.Int).SetBytes(b)
			if len(b) > 0 && b[len(b)-1]&1 == 1 {
				v.Neg(v)
			}
			return v
		}), func(a, b *big.Int) int { return a.Cmp(b) }),
		"BigDecimal": of(rapid.Custom(func(t *rapid.T) encoding.Decimal {
			d := encoding.Decimal{Unscaled: big.NewInt(near(math.MinInt64, math.MaxInt64).Draw(t, "unscaled")), Scale: rapid.Int32Range(-30, 30).Draw(t, "scale")}
			if d.Unscaled.Sign() == 0 {
				d.Scale = max(d.Scale, 0)
			}
			return d
		}), compareDecimals),
		"UUID": of(rapid.Map(rapid.SliceOfN(rapid.Byte(), 16, 16), func(b []byte) encoding.UUID { return encoding.UUID(b) }), nil),
		"Date": of(as(math.MinInt64, math.MaxInt64, func(v int64) time.Time { return time.UnixMilli(v).UTC() }),
			func(a, b time.Time) int { return cmp.Compare(a.UnixMilli(), b.UnixMilli()) }),
		"Instant": of(instant, time.Time.Compare),
		"LocalDateTime": of(local, func(a, b encoding.LocalDateTime) int {
			return cmp.Or(cmp.Compare(a.Seconds, b.Seconds), cmp.Compare(a.Nanos, b.Nanos))
		}),
		"LocalTime":  of(as(0, 86400e9-1, func(v int64) encoding.LocalTime { return encoding.LocalTime(v) }), cmp.Compare[encoding.LocalTime]),
		"Year":       of(as(-999999999, 999999999, func(v int64) encoding.Year { return encoding.Year(v) }), cmp.Compare[encoding.Year]),
		"ZoneOffset": of(as(-64800, 64800, func(v int64) encoding.ZoneOffset { return encoding.ZoneOffset(v) }), func(a, b encoding.ZoneOffset) int { return cmp.Compare(b, a) }),
		"OffsetTime": of(rapid.Custom(func(t *rapid.T) encoding.OffsetTime {
			return encoding.OffsetTime{Time: encoding.LocalTime(rapid.Int64Range(0, 86400e9-1).Draw(t, "t")), Offset: encoding.ZoneOffset(rapid.Int32Range(-64800, 64800).Draw(t, "o"))}
		}), nil),
		"String[]": of(rapid.SliceOf(rapid.Map(rapid.String(), func(s string) any {
			if s == "" {
				return nil
			}
			return s
		})), nil),
	}
}

// TestLaws: E1 and E2 of the package.
func TestLaws(t *testing.T) {
	for name, l := range laws() {
		e, err := encoding.Builtin(encoding.Prefix + name)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) { checkLaws(rt, e, l) })
		})
	}
}

func checkLaws(t *rapid.T, e *encoding.Encoding, l law) {
	a, b := l.draw(t), l.draw(t)
	x, err := e.Append(nil, a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := e.Append(nil, b)
	if err != nil {
		t.Fatal(err)
	}
	for _, enc := range [][]byte{x, y} {
		tail := rapid.SliceOfN(rapid.Byte(), 0, 3).Draw(t, "tail")
		v, n, err := e.Decode(append(slices.Clone(enc), tail...))
		if err != nil || n != len(enc) {
			t.Fatalf("%x: read %d bytes, %v", enc, n, err)
		}
		again, err := e.Append(nil, v)
		if err != nil || !bytes.Equal(again, enc) {
			t.Fatalf("%x: again %x, %v", enc, again, err)
		}
		if n, err := e.Len(append(slices.Clone(enc), tail...)); err != nil || n != len(enc) {
			t.Fatalf("%x: length %d, %v", enc, n, err)
		}
	}
	if len(x) < len(y) && bytes.HasPrefix(y, x) {
		t.Fatalf("%x begins with %x", y, x)
	}
	if l.compare != nil && l.compare(a, b) != bytes.Compare(x, y) {
		t.Fatalf("%v and %v compare as %d, %x and %x as %d", a, b, l.compare(a, b), x, y, bytes.Compare(x, y))
	}
}

// FuzzDecode: E3 and E4, for all encodings.
func FuzzDecode(f *testing.F) {
	names := encoding.Names()
	for _, v := range vectors(f) {
		if i := slices.Index(names, v.Name); i >= 0 {
			for _, x := range v.Values {
				f.Add(i, unhex(f, x.Hex))
			}
		}
	}
	f.Fuzz(func(t *testing.T, i int, b []byte) {
		e, err := encoding.Builtin(encoding.Prefix + names[(i%len(names)+len(names))%len(names)])
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range []*encoding.Encoding{e, encoding.Reference, encoding.Enum([]string{"A", "B"}), encoding.Array(encoding.Enum([]string{"A"}), 2)} {
			v, n, err := e.Decode(b)
			length, strict := e.Len(b)
			if err != nil {
				if strict == nil {
					t.Fatalf("%s %x: has %d bytes, but %v", e.ID(), b, length, err)
				}
				continue
			}
			again, err := e.Append(nil, v)
			if err != nil {
				t.Fatalf("%s %x: is %v, which cannot be written: %v", e.ID(), b[:n], v, err)
			}
			if (strict == nil) != bytes.Equal(again, b[:n]) || strict == nil && length != n {
				t.Fatalf("%s %x: again %x, length %d, %v", e.ID(), b[:n], again, length, strict)
			}
			w, m, err := e.Decode(again)
			third, _ := e.Append(nil, w)
			if err != nil || m != len(again) || !bytes.Equal(third, again) {
				t.Fatalf("%s %x: is not a fixed point: %x, %v", e.ID(), again, third, err)
			}
		}
	})
}
