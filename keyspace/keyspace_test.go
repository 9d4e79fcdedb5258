package keyspace_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/keyspace"
)

var schemes = map[string]keyspace.Scheme{
	"hex":     keyspace.Hex{},
	"escaped": keyspace.Escaped{},
	"length1": keyspace.LengthPrefixed{Width: 1, Depth: 2},
	"length2": keyspace.LengthPrefixed{Width: 2, Depth: 3},
	"length4": keyspace.LengthPrefixed{},
	"length8": keyspace.LengthPrefixed{Width: 8, Depth: 1},
}

// each runs a law for each scheme that claims it.
func each(t *testing.T, claims func(keyspace.Properties) bool, law func(rt *rapid.T, s keyspace.Scheme)) {
	for name, s := range schemes {
		if claims(s.Properties()) {
			t.Run(name, rapid.MakeCheck(func(rt *rapid.T) { law(rt, s) }))
		}
	}
}

func always(keyspace.Properties) bool { return true }

// text draws bytes that collide easily.
var text = rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 2, 3, 0xfe, 0xff, '0', 'a'}), 0, 4)

var anyText = rapid.OneOf(text, rapid.SliceOfN(rapid.Byte(), 0, 60))

type pair struct {
	ns  [][]byte
	key []byte
}

// draw draws namespaces as deep as the scheme wants and a key.
func draw(rt *rapid.T, s keyspace.Scheme, label string) pair {
	depth := 1
	if s.Properties().MixedDepth {
		depth = rapid.IntRange(1, 3).Draw(rt, label+" depth")
	} else {
		depth = max(s.(keyspace.LengthPrefixed).Depth, 1)
	}
	p := pair{key: anyText.Draw(rt, label+" key")}
	for range depth {
		p.ns = append(p.ns, anyText.Draw(rt, label+" name"))
	}
	return p
}

func encode(t interface {
	Helper()
	Fatal(...any)
}, s keyspace.Scheme, p pair) []byte {
	t.Helper()
	row, err := s.Encode(p.ns, p.key)
	if err != nil {
		t.Fatal(err)
	}
	return row
}

func equal(a, b pair) bool {
	return slices.EqualFunc(a.ns, b.ns, bytes.Equal) && bytes.Equal(a.key, b.key)
}

// TestAnyBytes is K1: what goes in comes out, and Append gives the same as Encode.
func TestAnyBytes(t *testing.T) {
	each(t, always, func(rt *rapid.T, s keyspace.Scheme) {
		p := draw(rt, s, "p")
		row := encode(rt, s, p)
		ns, key, err := s.Decode(row)
		if err != nil || !equal(pair{ns, key}, p) {
			rt.Fatalf("decode %x: %x %x %v", row, ns, key, err)
		}
		dst, err := s.Append([]byte("before"), p.ns, p.key)
		if err != nil || string(dst) != "before"+string(row) {
			rt.Fatalf("append %x, encode %x, %v", dst, row, err)
		}
	})
	for name, s := range schemes { // long names
		p := pair{ns: slices.Repeat([][]byte{bytes.Repeat([]byte{0, 0xff}, 40_000)}, 3), key: []byte("k")}
		if lp, ok := s.(keyspace.LengthPrefixed); ok {
			p.ns = p.ns[:max(lp.Depth, 1)]
		}
		row, err := s.Encode(p.ns, p.key)
		if narrow := name == "length1" || name == "length2"; narrow {
			if s.Properties().AnyBytes || !errors.Is(err, base.ErrTooLarge) {
				t.Errorf("%s: long name: %v", name, err)
			}
			continue
		}
		ns, key, err := s.Decode(row)
		if err != nil || !equal(pair{ns, key}, p) {
			t.Errorf("%s: long name: %v", name, err)
		}
	}
}

// TestInjective is K2, and that Prefix and In find exactly the rows of a namespace.
func TestInjective(t *testing.T) {
	each(t, func(p keyspace.Properties) bool { return p.Injective }, func(rt *rapid.T, s keyspace.Scheme) {
		a, b := draw(rt, s, "a"), draw(rt, s, "b")
		rowA, rowB := encode(rt, s, a), encode(rt, s, b)
		if bytes.Equal(rowA, rowB) != equal(a, b) {
			rt.Fatalf("%x and %x are both %x", a, b, rowA)
		}
		prefix, err := s.Prefix(b.ns)
		if err != nil {
			rt.Fatal(err)
		}
		direct := slices.EqualFunc(a.ns, b.ns, bytes.Equal)
		inRange := bytes.HasPrefix(rowA, prefix)
		if s.Properties().DirectRange && inRange != direct || direct && !inRange {
			rt.Fatalf("row %x of %x begins with %x of %x", rowA, a.ns, prefix, b.ns)
		}
		end := keyspace.PrefixEnd(prefix)
		if between := bytes.Compare(rowA, prefix) >= 0 && (end == nil || bytes.Compare(rowA, end) < 0); between != inRange {
			rt.Fatalf("row %x between %x and %x: %v", rowA, prefix, end, between)
		}
		if keyspace.In(s, b.ns, rowA) != direct {
			rt.Fatalf("row %x in %x: %v", rowA, b.ns, !direct)
		}
	})
}

// TestKeyOrder is K3.
func TestKeyOrder(t *testing.T) {
	each(t, func(p keyspace.Properties) bool { return p.KeyOrder }, func(rt *rapid.T, s keyspace.Scheme) {
		p := draw(rt, s, "p")
		q := pair{ns: p.ns, key: anyText.Draw(rt, "other key")}
		if got, want := bytes.Compare(encode(rt, s, p), encode(rt, s, q)), bytes.Compare(p.key, q.key); got != want {
			rt.Fatalf("keys %x and %x: %d, want %d", p.key, q.key, got, want)
		}
	})
}

// TestNamespaceOrder is K4.
func TestNamespaceOrder(t *testing.T) {
	each(t, func(p keyspace.Properties) bool { return p.NamespaceOrder }, func(rt *rapid.T, s keyspace.Scheme) {
		a, b := draw(rt, s, "a"), draw(rt, s, "b")
		if rapid.Bool().Draw(rt, "same parent") {
			b.ns = append(slices.Clone(a.ns[:len(a.ns)-1]), anyText.Draw(rt, "sibling"))
		}
		n := min(len(a.ns), len(b.ns))
		want := slices.CompareFunc(a.ns[:n], b.ns[:n], bytes.Compare)
		if want == 0 {
			return // one is in the other: K5
		}
		if got := bytes.Compare(encode(rt, s, a), encode(rt, s, b)); got != want {
			rt.Fatalf("%x and %x: %d, want %d", a, b, got, want)
		}
	})
}

// TestNesting is K5.
func TestNesting(t *testing.T) {
	each(t, func(p keyspace.Properties) bool { return p.Nesting }, func(rt *rapid.T, s keyspace.Scheme) {
		a, b := draw(rt, s, "a"), draw(rt, s, "b")
		b.ns = b.ns[:rapid.IntRange(1, len(b.ns)).Draw(rt, "levels")]
		if rapid.Bool().Draw(rt, "related") {
			n := min(len(a.ns), len(b.ns))
			copy(b.ns, a.ns[:n])
		}
		from, to, err := s.Subtree(b.ns)
		if err != nil {
			rt.Fatal(err)
		}
		row := encode(rt, s, a)
		within := bytes.Compare(row, from) >= 0 && (to == nil || bytes.Compare(row, to) < 0)
		below := len(a.ns) >= len(b.ns) && slices.EqualFunc(a.ns[:len(b.ns)], b.ns, bytes.Equal)
		if within != below {
			rt.Fatalf("row %x of %x in the range of %x: %v", row, a.ns, b.ns, within)
		}
	})
}

// TestWitnesses shows that what a scheme does not claim it does not have.
func TestWitnesses(t *testing.T) {
	naive := func(ns, key string) string { return ns + key }
	if naive("foo", "bar") != naive("fo", "obar") {
		t.Error("the naive scheme has K2")
	}
	one := keyspace.LengthPrefixed{}
	a, b := encode(t, one, pair{[][]byte{[]byte("b")}, nil}), encode(t, one, pair{[][]byte{[]byte("aa")}, nil})
	if bytes.Compare(a, b) > 0 {
		t.Error("length-prefixed has K4: b stands after aa")
	}
	two := keyspace.LengthPrefixed{Depth: 2}
	deep := encode(t, two, pair{[][]byte{[]byte("a"), []byte("b")}, []byte("k")})
	shallow := encode(t, one, pair{[][]byte{[]byte("a")}, []byte("\x00\x00\x00\x01bk")})
	if !bytes.Equal(deep, shallow) {
		t.Error("length-prefixed has K2 with mixed depth")
	}
	child := encode(t, keyspace.Hex{}, pair{[][]byte{[]byte("a"), []byte("b")}, []byte("k")})
	prefix, _ := keyspace.Hex{}.Prefix([][]byte{[]byte("a")})
	if !bytes.HasPrefix(child, prefix) {
		t.Error("hex has direct ranges")
	}
	// The example of the length-prefixed scheme, which the naive one gets wrong.
	w1 := keyspace.LengthPrefixed{Width: 1}
	if got := encode(t, w1, pair{[][]byte{[]byte("foo")}, []byte("bar")}); string(got) != "\x03foobar" {
		t.Errorf("%q", got)
	}
	if got := encode(t, w1, pair{[][]byte{[]byte("fo")}, []byte("obar")}); string(got) != "\x02foobar" {
		t.Errorf("%q", got)
	}
}

func TestHexVectors(t *testing.T) {
	for _, c := range []struct {
		parts []string // the last is the key
		row   string
	}{
		{[]string{"", ""}, "\x00"},
		{[]string{"", "", ""}, "\x00\x00"},
		{[]string{"\x00", ""}, "00\x00"},
		{[]string{"\x1b", "\xff"}, "1b\x00ff"},
		{[]string{"\x12\x34", ""}, "1234\x00"},
		{[]string{"\x11", "\x11"}, "11\x0011"},
		{[]string{"\x11\x22", "\x33\x44", "\x55\x66"}, "1122\x003344\x005566"},
		{[]string{"fo", "obar"}, "666f\x006f626172"},
		{[]string{"foo", "bar"}, "666f6f\x00626172"},
	} {
		p := pair{key: []byte(c.parts[len(c.parts)-1])}
		for _, name := range c.parts[:len(c.parts)-1] {
			p.ns = append(p.ns, []byte(name))
		}
		if got := encode(t, keyspace.Hex{}, p); string(got) != c.row {
			t.Errorf("%q: %q, want %q", c.parts, got, c.row)
		}
		ns, key, err := keyspace.Hex{}.Decode([]byte(c.row))
		if err != nil || !equal(pair{ns, key}, p) {
			t.Errorf("decode %q: %q %q %v", c.row, ns, key, err)
		}
	}
}

// TestTupleOrder: rows of the schemes that keep order sort as tuples do.
func TestTupleOrder(t *testing.T) {
	names := []string{"", "\x00", "\x00\xff", "\x01", "\x01\x00", "\x01\xff", "\xfe", "\xff", "\xff\x00", "\xff\xff"}
	for _, s := range []keyspace.Scheme{keyspace.Hex{}, keyspace.Escaped{}} {
		var rows [][]byte
		for _, n := range names {
			for _, k := range names {
				rows = append(rows, encode(t, s, pair{[][]byte{[]byte(n)}, []byte(k)}))
			}
		}
		if !slices.IsSortedFunc(rows, bytes.Compare) {
			t.Errorf("%T: rows are not sorted", s)
		}
	}
}

func TestMalformed(t *testing.T) {
	for _, c := range []struct {
		s    keyspace.Scheme
		rows []string
	}{
		{keyspace.Hex{}, []string{"", "11", "1\x00", "111\x00", "1/\x00", "1:\x00", "1`\x00", "1g\x00", "1A\x00", "AB\x00", "\x001", "\x00\x01", "11\xff11"}},
		{keyspace.Escaped{}, []string{"", "a", "a\x00", "a\x00\x03k", "\x00\x00", "a\x00\xff", "a\x00\xff\x00", "a\x00\x01", "a\x00\x01b", "a\x00\x01b\x00"}},
		{keyspace.LengthPrefixed{}, []string{"", "\x00\x00\x00", "\x00\x00\x00\x01", "\xff\xff\xff\xffabc"}},
		{keyspace.LengthPrefixed{Width: 8}, []string{"\xff\xff\xff\xff\xff\xff\xff\xffabc"}},
		{keyspace.LengthPrefixed{Width: 1, Depth: 2}, []string{"\x01a", "\x01a\x02b", "\x00"}},
	} {
		for _, row := range c.rows {
			ns, key, err := c.s.Decode([]byte(row))
			if ce := new(base.CorruptError); !errors.As(err, &ce) || ns != nil || key != nil {
				t.Errorf("%T: decode %q: %q %q %v", c.s, row, ns, key, err)
			}
			if keyspace.In(c.s, [][]byte{[]byte("a")}, []byte(row)) {
				t.Errorf("%T: %q is in a namespace", c.s, row)
			}
		}
	}
}

func TestInvalid(t *testing.T) {
	a := []byte("a")
	for name, c := range map[string]struct {
		s  keyspace.Scheme
		ns [][]byte
	}{
		"no namespace, hex":     {keyspace.Hex{}, nil},
		"no namespace, escaped": {keyspace.Escaped{}, nil},
		"no namespace, length":  {keyspace.LengthPrefixed{}, nil},
		"too deep":              {keyspace.LengthPrefixed{}, [][]byte{a, a}},
		"bad width":             {keyspace.LengthPrefixed{Width: 3}, [][]byte{a}},
		"bad depth":             {keyspace.LengthPrefixed{Depth: -1}, [][]byte{a}},
	} {
		_, err1 := c.s.Encode(c.ns, a)
		dst, err2 := c.s.Append(a, c.ns, a)
		_, err3 := c.s.Prefix(c.ns)
		_, _, err4 := c.s.Subtree(c.ns)
		for _, err := range []error{err1, err2, err3, err4} {
			if !errors.Is(err, base.ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if !bytes.Equal(dst, a) {
			t.Errorf("%s: append changed dst to %q", name, dst)
		}
	}
	if _, _, err := (keyspace.LengthPrefixed{Width: 3}).Decode(a); !errors.Is(err, base.ErrInvalid) {
		t.Errorf("decode with a bad width: %v", err)
	}
	if _, err := (keyspace.LengthPrefixed{Depth: 2}).Prefix([][]byte{a}); !errors.Is(err, base.ErrInvalid) {
		t.Errorf("prefix of a namespace without keys: %v", err)
	}
}

func TestPrefixEnd(t *testing.T) {
	for _, c := range []struct{ prefix, end string }{
		{"a", "b"}, {"a\xff", "b"}, {"a\x00", "a\x01"}, {"a\xfe\xff\xff", "a\xff"}, {"", ""}, {"\xff\xff", ""},
	} {
		got := keyspace.PrefixEnd([]byte(c.prefix))
		if string(got) != c.end || (c.end == "") != (got == nil) {
			t.Errorf("%q: %q, want %q", c.prefix, got, c.end)
		}
	}
}

// TestSize holds the figures of the package comment.
func TestSize(t *testing.T) {
	p := pair{ns: [][]byte{[]byte("users"), []byte("mail\x00box")}, key: bytes.Repeat([]byte{0, 7}, 8)}
	bare := len(p.ns[0]) + len(p.ns[1]) + len(p.key)
	for _, c := range []struct {
		s    keyspace.Scheme
		want int
	}{
		{keyspace.LengthPrefixed{Depth: 2}, bare + 2*4},
		{keyspace.LengthPrefixed{Depth: 2, Width: 1}, bare + 2},
		{keyspace.Hex{}, 2*bare + 2},
		{keyspace.Escaped{}, bare + 2*2 + 1},
	} {
		row := encode(t, c.s, p)
		if len(row) != c.want || cap(row) != c.want {
			t.Errorf("%T: %d bytes in %d, want %d", c.s, len(row), cap(row), c.want)
		}
	}
}

func TestAppendDoesNotAllocate(t *testing.T) {
	ns, key, dst := [][]byte{[]byte("users"), []byte("mail\x00box")}, []byte("key"), make([]byte, 0, 200)
	for _, s := range []keyspace.Scheme{keyspace.Hex{}, keyspace.Escaped{}, keyspace.LengthPrefixed{Depth: 2}} {
		if n := testing.AllocsPerRun(100, func() { dst, _ = s.Append(dst[:0], ns, key) }); n != 0 {
			t.Errorf("%T: %v allocations", s, n)
		}
	}
}

// fuzz checks that what decodes encodes to the same bytes: rows are canonical.
func fuzz(t *testing.T, s keyspace.Scheme, row []byte) {
	ns, key, err := s.Decode(row)
	if err != nil {
		if !errors.Is(err, base.ErrCorrupt) {
			t.Fatalf("decode: %v", err)
		}
		return
	}
	again, err := s.Encode(ns, key)
	if err != nil || !bytes.Equal(again, row) {
		t.Fatalf("%x decodes to %x %x, which encodes to %x, %v", row, ns, key, again, err)
	}
}

func FuzzDecodeKeyHex(f *testing.F) {
	for _, row := range []string{"", "\x00", "1122\x003344\x005566", "1A\x00", "1\x00"} {
		f.Add([]byte(row))
	}
	f.Fuzz(func(t *testing.T, row []byte) { fuzz(t, keyspace.Hex{}, row) })
}

func FuzzDecodeKeyEscaped(f *testing.F) {
	for _, row := range []string{"", "a\x00\x02k", "a\x00\xffb\x00\x01c\x00\x02\x00", "a\x00\x03", "a\x00\xff"} {
		f.Add([]byte(row))
	}
	f.Fuzz(func(t *testing.T, row []byte) { fuzz(t, keyspace.Escaped{}, row) })
}

func FuzzDecodeKeyLengthPrefixed(f *testing.F) {
	f.Add(uint8(0), uint8(1), []byte("\x03foobar"))
	f.Add(uint8(2), uint8(2), []byte("\x00\x00\x00\x01a\x00\x00\x00\x00k"))
	f.Add(uint8(3), uint8(1), []byte("\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, width, depth uint8, row []byte) {
		fuzz(t, keyspace.LengthPrefixed{Width: 1 << (width % 4), Depth: int(depth)}, row)
	})
}

func BenchmarkAppend(b *testing.B) {
	ns, key, dst := [][]byte{[]byte("objects"), []byte("by-name")}, []byte("0123456789abcdef"), make([]byte, 0, 200)
	for _, s := range []keyspace.Scheme{keyspace.LengthPrefixed{Depth: 2}, keyspace.Hex{}, keyspace.Escaped{}} {
		b.Run(fmt.Sprintf("%T", s), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				dst, _ = s.Append(dst[:0], ns, key)
			}
			b.ReportMetric(float64(len(dst)), "B/row")
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	ns, key := [][]byte{[]byte("objects"), []byte("by-name")}, []byte("0123456789abcdef")
	for _, s := range []keyspace.Scheme{keyspace.LengthPrefixed{Depth: 2}, keyspace.Hex{}, keyspace.Escaped{}} {
		b.Run(fmt.Sprintf("%T", s), func(b *testing.B) {
			row, _ := s.Encode(ns, key)
			b.ReportAllocs()
			for b.Loop() {
				_, _, _ = s.Decode(row)
			}
		})
	}
}
