package encoding

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/ledgerd/ledger/internal/base"
)

// Builtin returns the encoding with the given id, also for arrays. The Go types of values:
//
//	boolean byte short int long        bool int8 int16 int32 int64
//	char float double                  uint16 float32 float64
//	Boolean, Byte, ... Void            the same, or nil
//	String Pattern URI File ZoneId     string
//	InternetAddress                    string
//	boolean[] byte[] short[] int[]     []bool []byte []int16 []int32
//	long[] char[] float[] double[]     []int64 []uint16 []float32 []float64
//	BigInteger BigDecimal BitSet       *big.Int Decimal BitSet
//	Date Instant                       time.Time, in UTC
//	UUID                               UUID
//	Inet4Address Inet6Address          netip.Addr
//	InetAddress                        netip.Addr
//	Duration LocalDate LocalTime ...   the types of this package with these names
//	other arrays                       []any
//
// Errors: base.ErrUnsupported.
func Builtin(id string) (*Encoding, error) {
	name, ok := strings.CutPrefix(id, Prefix)
	dims := 0
	for strings.HasSuffix(name, "[]") && builtin[name] == nil {
		name = strings.TrimSuffix(name, "[]")
		dims++
	}
	e := builtin[name]
	if !ok || e == nil || dims > 0 && e.wrapper || dims > MaxDimensions {
		return nil, fmt.Errorf("no encoding %.200q: %w", id, base.ErrUnsupported)
	}
	for range dims {
		e = e.array()
	}
	return e, nil
}

// Names returns the sorted names, without Prefix, of all built-in encodings but arrays of objects.
func Names() []string {
	var names []string
	for name := range builtin {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

var builtin = builtins()

func builtins() map[string]*Encoding {
	all := map[string]*Encoding{}
	add := func(name string, e *Encoding) { all[name] = e }
	addPrimitives(add)
	addArrays(add)
	addTimes(add)
	for _, name := range []string{"String", "Pattern", "URI", "File", "ZoneId", "InternetAddress"} {
		add(name, textCodec().nullable(name))
	}
	add("Void", codec(func([]byte, struct{}) ([]byte, error) {
		return nil, fmt.Errorf("encode a value of Void: %w", base.ErrInvalid)
	}, func([]byte) (struct{}, int, error) { return struct{}{}, 0, errFirst }).nullable("Void"))
	all["Void"].wrapper = true
	add("BigInteger", codec(appendBigInt, bigInt).nullable("BigInteger"))
	add("BigDecimal", codec(appendDecimal, decimal).by(decimalLen).nullable("BigDecimal"))
	add("BitSet", codec(appendBitSet, bitSet).starts(true, false).nullable("BitSet"))
	add("UUID", codec(appendUUID, uuid).starts(true, true).by(fixed(16)).nullable("UUID"))
	for name, sizes := range map[string][]int{"Inet4Address": {4}, "Inet6Address": {16}, "InetAddress": {4, 16}} {
		one := len(sizes) == 1
		add(name, codec(appendAddr(sizes), addr(sizes)).starts(one, one).nullable(name))
	}
	return all
}

func textCodec() *Encoding { return codec(appendText, text).starts(true, false).by(textLen) }

func addPrimitives(add func(string, *Encoding)) {
	pair := func(name, wrapper string, make func() *Encoding, zero any) {
		add(name, make().primitive(name, zero))
		w := make().nullable(wrapper)
		w.wrapper = true
		add(wrapper, w)
	}
	pair("boolean", "Boolean", boolean, false)
	pair("byte", "Byte", integer[int8], int8(0))
	pair("short", "Short", integer[int16], int16(0))
	pair("int", "Integer", integer[int32], int32(0))
	pair("long", "Long", integer[int64], int64(0))
	pair("char", "Character", char, uint16(0))
	pair("float", "Float", float, float32(0))
	pair("double", "Double", double, float64(0))
}

// fixed returns a length function for values of n bytes that are all canonical.
func fixed(n int) func([]byte) (int, error) {
	return func(b []byte) (int, error) {
		if len(b) < n {
			return 0, errShort
		}
		return n, nil
	}
}

func boolean() *Encoding {
	put := func(dst []byte, v bool) ([]byte, error) {
		if v {
			return append(dst, 1), nil
		}
		return append(dst, 0), nil
	}
	get := func(b []byte) (bool, int, error) {
		switch {
		case len(b) == 0:
			return false, 0, errShort
		case b[0] > 1:
			return false, 0, errFirst
		}
		return b[0] == 1, 1, nil
	}
	return codec(put, get).starts(true, false)
}

type signed interface{ int8 | int16 | int32 | int64 }

func integer[T signed]() *Encoding {
	put := func(dst []byte, v T) ([]byte, error) { return AppendInt(dst, int64(v)), nil }
	get := func(b []byte) (T, int, error) { return narrow[T](Int(b)) }
	return codec(put, get).by(func(b []byte) (int, error) {
		_, n, err := narrow[T](StrictInt(b))
		return n, err
	})
}

func narrow[T signed](v int64, n int, err error) (T, int, error) {
	if err == nil && int64(T(v)) != v {
		err = errRange
	}
	if err != nil {
		return 0, 0, err
	}
	return T(v), n, nil
}

func char() *Encoding {
	put := func(dst []byte, v uint16) ([]byte, error) { return append(dst, byte(v>>8), byte(v)), nil }
	get := func(b []byte) (uint16, int, error) {
		if len(b) < 2 {
			return 0, 0, errShort
		}
		return uint16(b[0])<<8 | uint16(b[1]), 2, nil
	}
	return codec(put, get).starts(true, true).by(fixed(2))
}

// UUID is the bytes of a UUID. They sort in Java's order: each half as a signed number.
type UUID [16]byte

func flip(u UUID) UUID {
	u[0] ^= 0x80
	u[8] ^= 0x80
	return u
}

func appendUUID(dst []byte, u UUID) ([]byte, error) {
	u = flip(u)
	return append(dst, u[:]...), nil
}

func uuid(b []byte) (UUID, int, error) {
	if len(b) < 16 {
		return UUID{}, 0, errShort
	}
	return flip(UUID(b[:16])), 16, nil
}

func appendAddr(sizes []int) func([]byte, netip.Addr) ([]byte, error) {
	return func(dst []byte, a netip.Addr) ([]byte, error) {
		b := a.AsSlice()
		if !slices.Contains(sizes, len(b)) || a.Zone() != "" {
			return nil, fmt.Errorf("encode the address %v: %w", a, base.ErrInvalid)
		}
		if len(sizes) > 1 {
			dst = append(dst, addrHead(len(b)))
		}
		return append(dst, b...), nil
	}
}

func addrHead(size int) byte {
	if size == 4 {
		return 4
	}
	return 6
}

func addr(sizes []int) func([]byte) (netip.Addr, int, error) {
	return func(b []byte) (netip.Addr, int, error) {
		head, size := 0, sizes[0]
		if len(sizes) > 1 {
			if len(b) == 0 {
				return netip.Addr{}, 0, errShort
			}
			i := slices.IndexFunc(sizes, func(s int) bool { return addrHead(s) == b[0] })
			if i < 0 {
				return netip.Addr{}, 0, errFirst
			}
			head, size = 1, sizes[i]
		}
		if len(b) < head+size {
			return netip.Addr{}, 0, errShort
		}
		a, _ := netip.AddrFromSlice(b[head : head+size])
		return a, head + size, nil
	}
}
