package value_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/indexeddb/value"
	"github.com/ledgerd/ledger/internal/base"
)

// same says where two values differ: in a type, a content, or in what is shared. It is "" when they
// do not.
func same(a, b value.Value) string {
	return (&comparison{left: map[value.Value]value.Value{}, right: map[value.Value]value.Value{}}).values("", a, b)
}

// comparison remembers which objects of one side stand for which of the other.
type comparison struct{ left, right map[value.Value]value.Value }

func (c *comparison) values(at string, a, b value.Value) string {
	differs := fmt.Sprintf("at %s: %T %v, %T %v", at, a, a, b, b)
	switch x := a.(type) {
	case value.Undefined, value.Null, value.Hole, bool, string:
		if a != b {
			return differs
		}
		return ""
	case float64:
		y, ok := b.(float64)
		if !ok || math.Float64bits(x) != math.Float64bits(y) && !(math.IsNaN(x) && math.IsNaN(y)) {
			return differs
		}
		return ""
	case *big.Int:
		if y, ok := b.(*big.Int); !ok || x.Cmp(y) != 0 {
			return differs
		}
		return ""
	case nil:
		if b != nil {
			return differs
		}
		return ""
	}
	if fmt.Sprintf("%T", a) != fmt.Sprintf("%T", b) {
		return differs
	}
	other, seen := c.left[a]
	back, met := c.right[b]
	if seen || met {
		if other != b || back != a {
			return "at " + at + ": other things are shared"
		}
		return ""
	}
	c.left[a], c.right[b] = b, a
	return c.objects(at, a, b)
}

func (c *comparison) objects(at string, a, b value.Value) string {
	switch x := a.(type) {
	case *value.Object:
		return c.properties(at, x.Properties, b.(*value.Object).Properties)
	case *value.Array:
		y := b.(*value.Array)
		if x.Length != y.Length {
			return "at " + at + ": lengths"
		}
		if s := c.lists(at, x.Elements, y.Elements); s != "" {
			return s
		}
		return c.properties(at, x.Properties, y.Properties)
	case *value.Set:
		return c.lists(at, x.Elements, b.(*value.Set).Elements)
	case *value.Map:
		var l, r []value.Value
		for _, e := range x.Entries {
			l = append(l, e[0], e[1])
		}
		for _, e := range b.(*value.Map).Entries {
			r = append(r, e[0], e[1])
		}
		return c.lists(at, l, r)
	case *value.View:
		y := b.(*value.View)
		if x.Kind != y.Kind || x.Offset != y.Offset || x.Length != y.Length || x.Tracks != y.Tracks {
			return "at " + at + ": views"
		}
		return c.values(at+".buffer", x.Buffer, y.Buffer)
	case *value.Error:
		y := b.(*value.Error)
		if x.Name != y.Name || x.Message != y.Message || x.Stack != y.Stack || x.DOM != y.DOM {
			return fmt.Sprintf("at %s: %+v, %+v", at, x, y)
		}
		return c.values(at+".cause", x.Cause, y.Cause)
	case *value.Boxed:
		return c.values(at+".boxed", x.Value, b.(*value.Boxed).Value)
	case *value.Date:
		return c.values(at+".date", x.Milliseconds, b.(*value.Date).Milliseconds)
	case *value.Shape:
		y := b.(*value.Shape)
		var l, r []value.Value
		for _, n := range x.Numbers {
			l = append(l, n)
		}
		for _, n := range y.Numbers {
			r = append(r, n)
		}
		if x.Kind != y.Kind {
			return "at " + at + ": shapes"
		}
		return c.lists(at, l, r)
	}
	if fmt.Sprintf("%#v", a) != fmt.Sprintf("%#v", b) && fmt.Sprintf("%v", a) != fmt.Sprintf("%v", b) {
		return fmt.Sprintf("at %s: %+v, %+v", at, a, b)
	}
	return ""
}

func (c *comparison) lists(at string, a, b []value.Value) string {
	if len(a) != len(b) {
		return "at " + at + ": lengths"
	}
	for i := range a {
		if s := c.values(fmt.Sprintf("%s[%d]", at, i), a[i], b[i]); s != "" {
			return s
		}
	}
	return ""
}

func (c *comparison) properties(at string, a, b value.Properties) string {
	if len(a) != len(b) {
		return "at " + at + ": numbers of properties"
	}
	for i := range a {
		if a[i].Name != b[i].Name {
			return fmt.Sprintf("at %s: names %q, %q", at, a[i].Name, b[i].Name)
		}
		if s := c.values(at+"."+a[i].Name, a[i].Value, b[i].Value); s != "" {
			return s
		}
	}
	return ""
}

// graph draws values with shared objects and cycles.
type graph struct {
	made []value.Value // objects, of which each may be met again
}

var texts = rapid.OneOf(
	rapid.SampledFrom([]string{"", "a", "é", "ÿ", "Ā", "😀", "\xed\xa0\x80", "\xed\xb0\x80x", "\x00", strings.Repeat("z", 200), strings.Repeat("ž", 200)}),
	rapid.String())

var wholeTexts = rapid.SampledFrom([]string{"", "a", "é", "ž", "😀"})

var numbers = rapid.OneOf(rapid.SampledFrom([]float64{
	0, math.Copysign(0, -1), 1, -1, math.NaN(), math.Inf(1), math.Inf(-1), 1<<30 - 1, 1 << 30, -1 << 30, -1<<30 - 1, math.MaxInt32, math.MaxUint32, 1 << 53, 0.5, 5e-324,
}), rapid.Float64())

var bigs = rapid.Custom(func(t *rapid.T) *big.Int {
	n := new(big.Int).SetBytes(rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(t, "digits"))
	if rapid.Bool().Draw(t, "negative") {
		n.Neg(n)
	}
	return n
})

// pick draws a number up to n, each as often as the others.
func pick(t *rapid.T, n int, label string) int {
	all := make([]int, n+1)
	for i := range all {
		all[i] = i
	}
	return rapid.SampledFrom(all).Draw(t, label)
}

func (g *graph) value(t *rapid.T, depth int) value.Value {
	kinds := 9
	if depth > 0 {
		kinds = 15
	}
	switch pick(t, kinds, "kind") {
	case 0:
		return value.Undefined{}
	case 1:
		return value.Null{}
	case 2:
		return rapid.Bool().Draw(t, "bool")
	case 3:
		return numbers.Draw(t, "number")
	case 4:
		return texts.Draw(t, "text")
	case 5:
		return bigs.Draw(t, "bigint")
	case 6, 7:
		if len(g.made) > 0 {
			return rapid.SampledFrom(g.made).Draw(t, "again")
		}
		return value.Null{}
	case 8, 9:
		return g.leaf(t)
	}
	return g.container(t, depth)
}

func (g *graph) add(v value.Value) value.Value {
	g.made = append(g.made, v)
	return v
}

func (g *graph) leaf(t *rapid.T) value.Value {
	b := rapid.SliceOfN(rapid.Byte(), 0, 20)
	switch pick(t, 12, "leaf") {
	case 0:
		return g.add(&value.Date{Milliseconds: numbers.Draw(t, "date")})
	case 1:
		v := rapid.SampledFrom([]value.Value{true, false, 1.5, math.Copysign(0, -1), "x", "ž", big.NewInt(-7), new(big.Int)}).Draw(t, "boxed")
		return g.add(&value.Boxed{Value: v})
	case 2:
		return g.add(&value.RegExp{Pattern: texts.Draw(t, "pattern"), Flags: rapid.SampledFrom([]string{"", "g", "dgimsuvy", "l", "i"}).Draw(t, "flags")})
	case 3:
		return g.add(g.buffer(t))
	case 4, 5:
		buffer := g.buffer(t)
		for _, v := range g.made {
			if old, ok := v.(*value.Buffer); ok && rapid.Bool().Draw(t, "old buffer") {
				buffer = old
			}
		}
		if len(g.made) == 0 || rapid.Bool().Draw(t, "buffer first") {
			g.add(buffer)
		}
		return g.add(g.view(t, buffer))
	case 6:
		return g.add(&value.Blob{Index: rapid.IntRange(0, 300).Draw(t, "index"), File: rapid.Bool().Draw(t, "file")})
	case 7:
		return g.add(&value.FileList{Indexes: rapid.SliceOfN(rapid.IntRange(0, 300), 0, 3).Draw(t, "indexes")})
	case 8:
		return g.add(&value.Handle{Name: wholeTexts.Draw(t, "name"), Index: 1, Directory: rapid.Bool().Draw(t, "directory")})
	case 9:
		return g.add(&value.ImageData{Settings: [][2]uint32{{1, 2}, {6, 0}}, Width: 2, Height: 1, Bytes: b.Draw(t, "pixels")})
	case 10:
		n, kind := 4, rapid.SampledFrom([]string{"DOMPoint", "DOMRectReadOnly", "DOMQuad", "DOMMatrix", "DOMMatrixReadOnly"}).Draw(t, "shape")
		switch {
		case strings.HasPrefix(kind, "DOMMatrix"):
			n = rapid.SampledFrom([]int{6, 16}).Draw(t, "dimensions")
		case kind == "DOMQuad":
			n = 16
		}
		return g.add(&value.Shape{Kind: kind, Numbers: rapid.SliceOfN(numbers, n, n).Draw(t, "numbers")})
	case 11:
		return g.add(&value.Error{Name: "DataError", Message: wholeTexts.Draw(t, "message"), Stack: wholeTexts.Draw(t, "stack"), DOM: true})
	}
	return g.add(&value.Object{})
}

func (g *graph) buffer(t *rapid.T) *value.Buffer {
	b := &value.Buffer{Bytes: rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "bytes"), MaxLength: -1}
	if rapid.Bool().Draw(t, "resizable") {
		b.MaxLength = int64(len(b.Bytes)) + rapid.Int64Range(0, 10).Draw(t, "more")
	}
	return b
}

func (g *graph) view(t *rapid.T, b *value.Buffer) *value.View {
	kinds := map[string]int{"Int8Array": 1, "DataView": 1, "Uint16Array": 2, "Float32Array": 4, "BigInt64Array": 8, "Uint8ClampedArray": 1, "Float16Array": 2}
	kind := rapid.SampledFrom([]string{"Int8Array", "DataView", "Uint16Array", "Float32Array", "BigInt64Array", "Uint8ClampedArray", "Float16Array"}).Draw(t, "view")
	size := kinds[kind]
	v := &value.View{Kind: kind, Buffer: b, Tracks: rapid.Bool().Draw(t, "tracks")}
	v.Offset = rapid.IntRange(0, len(b.Bytes)/size).Draw(t, "offset") * size
	v.Length = (len(b.Bytes) - v.Offset) / size * size
	if !v.Tracks {
		v.Length = rapid.IntRange(0, v.Length/size).Draw(t, "length") * size
	}
	return v
}

func (g *graph) container(t *rapid.T, depth int) value.Value {
	n := rapid.IntRange(0, 4).Draw(t, "n")
	list := func() (out []value.Value) {
		for range n {
			out = append(out, g.value(t, depth-1))
		}
		return out
	}
	switch pick(t, 5, "container") {
	case 0:
		o := &value.Object{}
		g.add(o)
		o.Properties = g.properties(t, n, depth)
		return o
	case 1:
		a := &value.Array{Length: uint32(n)}
		g.add(a)
		a.Elements = list()
		if n > 0 && rapid.Bool().Draw(t, "hole") {
			a.Elements[0] = value.Hole{}
		}
		if a.Sparse = rapid.IntRange(0, 2).Draw(t, "sparse") == 0; a.Sparse {
			a.Elements = slices.DeleteFunc(a.Elements, func(v value.Value) bool { return v == value.Hole{} })
			a.Length = uint32(len(a.Elements))
			return a
		}
		a.Properties = g.properties(t, rapid.IntRange(0, 2).Draw(t, "properties"), depth)
		return a
	case 2:
		a := &value.Array{Length: rapid.Uint32Range(5, math.MaxUint32).Draw(t, "sparse length")}
		g.add(a)
		a.Properties = g.properties(t, n, depth)
		return a
	case 3:
		m := &value.Map{}
		g.add(m)
		for range n {
			m.Entries = append(m.Entries, [2]value.Value{g.value(t, depth-1), g.value(t, depth-1)})
		}
		return m
	case 4:
		s := &value.Set{}
		g.add(s)
		s.Elements = list()
		return s
	}
	e := &value.Error{
		Name: rapid.SampledFrom([]string{"Error", "TypeError", "RangeError", "URIError"}).Draw(t, "class"), Message: texts.Draw(t, "message"), Stack: texts.Draw(t, "stack"),
	}
	g.add(e)
	if rapid.Bool().Draw(t, "cause") {
		e.Cause = g.value(t, depth-1)
	}
	return e
}

func (g *graph) properties(t *rapid.T, n, depth int) (p value.Properties) {
	names := rapid.SliceOfNDistinct(rapid.OneOf(rapid.SampledFrom([]string{"0", "1", "4294967294", "4294967295", "01", "-1", "1073741824", "x", ""}), texts), n, n, rapid.ID[string]).Draw(t, "names")
	for _, name := range names {
		p = append(p, value.Property{Name: name, Value: g.value(t, depth-1)})
	}
	return p
}

// TestEncode: what is encoded is decoded to the same value, with the same things shared.
func TestEncode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		root, g := &value.Array{}, &graph{}
		g.add(root)
		for range rapid.IntRange(0, 12).Draw(t, "values") {
			root.Elements = append(root.Elements, g.value(t, 3))
			root.Length++
		}
		v := value.Value(root)
		if root.Length == 1 {
			v = root.Elements[0]
		}
		b, err := value.Encode(v)
		if err != nil {
			t.Fatal(err)
		}
		again, err := value.Decode(b)
		if err != nil {
			t.Fatalf("%x: %v", b, err)
		}
		if s := same(v, again); s != "" {
			t.Fatalf("%x: %s", b, s)
		}
	})
}

// TestEncodeAsChromium: values that the browser wrote are encoded to the bytes that it wrote.
func TestEncodeAsChromium(t *testing.T) {
	whole := 0
	for _, f := range fixtures(t) {
		b, ok := f.serialized(t)
		if !ok || strings.HasPrefix(string(b), "\xff\x11\x02") { // cut, or compressed
			continue
		}
		whole++
		v, err := value.Decode(b)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := value.Encode(v); err != nil || !bytes.Equal(again, b) {
			t.Errorf("%s %v:\n%x becomes\n%x, error %v", f.Store, f.Key, b, again, err)
		}
	}
	if whole < 100 {
		t.Errorf("only %d values", whole)
	}
}

// TestEncodeRefuses what is no value.
func TestEncodeRefuses(t *testing.T) {
	deep := value.Value(value.Null{})
	for range 10_001 {
		deep = value.NewArray(deep)
	}
	for name, c := range map[string]struct {
		v    value.Value
		want error
	}{
		"nil":                 {nil, base.ErrInvalid},
		"an int":              {1, base.ErrInvalid},
		"a slice":             {[]byte{1}, base.ErrInvalid},
		"nil object":          {(*value.Object)(nil), base.ErrInvalid},
		"nil bigint":          {(*big.Int)(nil), base.ErrInvalid},
		"nil view":            {(*value.View)(nil), base.ErrInvalid},
		"nil wrapped":         {(*value.Wrapped)(nil), base.ErrInvalid},
		"wrapped within":      {value.NewArray(&value.Wrapped{}), base.ErrInvalid},
		"a hole":              {value.Hole{}, base.ErrInvalid},
		"length":              {&value.Array{Elements: []value.Value{1.0}}, base.ErrInvalid},
		"within":              {value.NewObject("a", value.NewArray(1)), base.ErrInvalid},
		"boxed object":        {&value.Boxed{Value: &value.Object{}}, base.ErrInvalid},
		"flags":               {&value.RegExp{Flags: "q"}, base.ErrInvalid},
		"flags twice":         {&value.RegExp{Flags: "gg"}, base.ErrInvalid},
		"view without buffer": {&value.View{Kind: "DataView"}, base.ErrInvalid},
		"view beyond":         {&value.View{Kind: "DataView", Buffer: &value.Buffer{MaxLength: -1}, Length: 1}, base.ErrInvalid},
		"view of no class":    {&value.View{Kind: "Array", Buffer: &value.Buffer{MaxLength: -1}}, base.ErrInvalid},
		"resizable":           {&value.Buffer{Bytes: []byte{1}, MaxLength: 0}, base.ErrInvalid},
		"shape":               {&value.Shape{Kind: "DOMQuad"}, base.ErrInvalid},
		"setting":             {&value.ImageData{Settings: [][2]uint32{{0, 1}}}, base.ErrInvalid},
		"negative index":      {&value.Blob{Index: -1}, base.ErrInvalid},
		"deep":                {deep, base.ErrTooLarge},
	} {
		if b, err := value.Encode(c.v); !errors.Is(err, c.want) {
			t.Errorf("%s: %x, error %v", name, b, err)
		}
	}
}

// TestEncodeFor: references to external objects have to be there.
func TestEncodeFor(t *testing.T) {
	v := value.NewArray(&value.Blob{Index: 0}, &value.FileList{Indexes: []int{1}}, &value.Handle{Index: 2})
	b, err := value.EncodeFor(v, 3)
	if err != nil || !value.MayRefer(b) {
		t.Errorf("%x, error %v", b, err)
	}
	for n := range 3 {
		if _, err := value.EncodeFor(v, n); !errors.Is(err, base.ErrInvalid) {
			t.Errorf("of %d objects: %v", n, err)
		}
	}
	if b, err := value.Encode(1.5); err != nil || value.MayRefer(b) {
		t.Errorf("%x, error %v", b, err)
	}
}

// TestEncodeWrapped: what stands for a value in an external object.
func TestEncodeWrapped(t *testing.T) {
	b, err := value.Encode(&value.Wrapped{Size: 70000, Index: 2})
	if err != nil || string(b) != "\xff\x11\x01\xf0\xa2\x04\x02" {
		t.Fatalf("%x, error %v", b, err)
	}
	if v, err := value.Decode(b); err != nil || *v.(*value.Wrapped) != (value.Wrapped{Size: 70000, Index: 2}) {
		t.Errorf("%v, error %v", v, err)
	}
}
