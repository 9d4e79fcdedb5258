package value_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/big"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/snappy"
	"go.uber.org/goleak"

	"github.com/ledgerd/ledger/indexeddb/value"
	"github.com/ledgerd/ledger/internal/base"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is a record of a real profile, with the value that a script in the browser reads. Long
// values are cut.
type fixture struct {
	Store, Hex, Ext string
	Key             any
	Expected        any
}

func fixtures(t testing.TB) (all []fixture) {
	t.Helper()
	f, err := os.Open("testdata/values-hex-and-expected.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewDecoder(z).Decode(&all); err != nil {
		t.Fatal(err)
	}
	return all
}

// serialized returns the bytes of a fixture, and whether they are all there.
func (f fixture) serialized(t testing.TB) ([]byte, bool) {
	t.Helper()
	text, cut := f.Hex, strings.Contains(f.Hex, "...")
	if i := strings.IndexByte(text, '.'); i >= 0 {
		text = text[:i]
	}
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b, !cut
}

// TestValuesOfChromium decodes what the browser wrote to what the browser reads.
func TestValuesOfChromium(t *testing.T) {
	whole := 0
	for _, f := range fixtures(t) {
		b, ok := f.serialized(t)
		if !ok {
			continue
		}
		whole++
		v, err := value.Decode(b)
		if err != nil {
			t.Errorf("%s %v %x: %v", f.Store, f.Key, b, err)
			continue
		}
		got := tagger{}.tag(v)
		if f.Store == "people" { // the browser injects keys into values of this store
			delete(got.(map[string]any)["object"].(map[string]any), "id")
			delete(f.Expected.(map[string]any)["object"].(map[string]any), "id")
		}
		if diff := cmp.Diff(loosen(f.Expected), got); diff != "" {
			t.Errorf("%s %v %x:\n%s", f.Store, f.Key, b, diff)
		}
	}
	if whole < 100 {
		t.Errorf("only %d values", whole)
	}
}

// loosen takes from what the browser says what a value alone does not: the content of external
// objects.
func loosen(v any) any {
	switch v := v.(type) {
	case []any:
		out := []any{}
		for _, e := range v {
			out = append(out, loosen(e))
		}
		return out
	case map[string]any:
		switch {
		case v["blob"] != nil:
			return map[string]any{"blob": true}
		case v["file"] != nil:
			return map[string]any{"file": true}
		case v["unknown"] == "[object BigInt]":
			return map[string]any{"boxed": "bigint", "v": "7"}
		case v["object"] != nil && v["object"].(map[string]any)["rnd"] != nil: // the whole value is in one
			return map[string]any{"wrapped": true}
		}
		out := map[string]any{}
		for k, e := range v {
			out[k] = loosen(e)
		}
		return out
	}
	return v
}

// tagger writes a value in the form of the fixtures.
type tagger struct{ seen *[]value.Value }

func (g tagger) tag(v value.Value) any {
	if g.seen == nil {
		g.seen = &[]value.Value{}
	}
	switch v := v.(type) {
	case value.Undefined:
		return map[string]any{"undef": true}
	case value.Null:
		return map[string]any{"null": true}
	case value.Hole:
		return map[string]any{"hole": true}
	case bool:
		return map[string]any{"bool": v}
	case float64:
		return map[string]any{"num": script(v)}
	case *big.Int:
		return map[string]any{"bigint": v.String()}
	case string:
		return map[string]any{"str": v}
	}
	if i := slices.IndexFunc(*g.seen, func(s value.Value) bool { return s == v }); i >= 0 {
		return map[string]any{"ref": float64(i)}
	}
	*g.seen = append(*g.seen, v)
	return g.object(v)
}

func (g tagger) object(v value.Value) any {
	switch v := v.(type) {
	case *value.Object:
		out := map[string]any{}
		for _, p := range v.Properties {
			out[p.Name] = g.tag(p.Value)
		}
		return map[string]any{"object": out}
	case *value.Array:
		out := []any{}
		for i := range v.Length {
			e, ok := v.Get(strconv.Itoa(int(i)))
			switch {
			case int(i) < len(v.Elements):
				e = v.Elements[i]
			case !ok:
				e = value.Hole{}
			}
			out = append(out, g.tag(e))
		}
		return map[string]any{"array": out}
	case *value.Map:
		out := []any{}
		for _, e := range v.Entries {
			out = append(out, []any{g.tag(e[0]), g.tag(e[1])})
		}
		return map[string]any{"map": out}
	case *value.Set:
		out := []any{}
		for _, e := range v.Elements {
			out = append(out, g.tag(e))
		}
		return map[string]any{"set": out}
	}
	return plain(v)
}

// plain writes objects that have no values in them.
func plain(v value.Value) any {
	switch v := v.(type) {
	case *value.Date:
		return map[string]any{"date": script(v.Milliseconds)}
	case *value.Boxed:
		switch b := v.Value.(type) {
		case bool:
			return map[string]any{"boxed": "boolean", "v": strconv.FormatBool(b)}
		case float64:
			return map[string]any{"boxed": "number", "v": script(b)}
		case *big.Int:
			return map[string]any{"boxed": "bigint", "v": b.String()}
		}
		return map[string]any{"boxed": "string", "v": v.Value}
	case *value.RegExp:
		return map[string]any{"regexp": v.Pattern, "flags": v.Flags}
	case *value.Buffer:
		return map[string]any{"arraybuffer": hex.EncodeToString(v.Bytes), "len": float64(len(v.Bytes))}
	case *value.View:
		return map[string]any{"view": v.Kind, "offset": float64(v.Offset), "len": float64(v.Length), "hex": hex.EncodeToString(v.Bytes())}
	case *value.Error:
		return map[string]any{"error": v.Name, "message": v.Message}
	case *value.ImageData:
		return map[string]any{"imagedata": []any{float64(v.Width), float64(v.Height)}, "hex": hex.EncodeToString(v.Bytes)}
	case *value.Shape:
		out := []any{}
		for _, n := range v.Numbers {
			out = append(out, n)
		}
		return map[string]any{strings.ToLower(v.Kind): out}
	case *value.Blob:
		return map[string]any{map[bool]string{true: "file", false: "blob"}[v.File]: true}
	case *value.Wrapped:
		return map[string]any{"wrapped": true}
	}
	return "unknown"
}

// script writes a number as a script does.
func script(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	case f == 0 && math.Signbit(f):
		return "-0"
	}
	return value.NumberText(f)
}

// envelope is what the browser writes before a value.
const envelope = "\xff\x15\xfe\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\x10"

// TestCompressedValue is decoded as if it were not compressed.
func TestCompressedValue(t *testing.T) {
	raw := []byte(envelope + "\"\xd0\x0f" + strings.Repeat("y", 2000))
	v, err := value.Decode(append([]byte("\xff\x11\x02"), snappy.Encode(nil, raw)...))
	if err != nil || v != strings.Repeat("y", 2000) {
		t.Errorf("%v, error %v", v, err)
	}
	bomb := append([]byte("\xff\x11\x02"), binary.AppendUvarint(nil, 1<<31)...)
	if _, err := value.Decode(append(bomb, 0, 0)); !errors.Is(err, base.ErrCorrupt) {
		t.Errorf("claimed length: %v", err)
	}
	if _, err := value.DecodeBounded(append([]byte("\xff\x11\x02"), snappy.Encode(nil, raw)...), 1000); !errors.Is(err, base.ErrTooLarge) {
		t.Errorf("length beyond the bound: %v", err)
	}
}

// TestValuesThatAreRefused are no values, or such that are not known.
func TestValuesThatAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		b    string
		want error
	}{
		"empty":              {"", base.ErrCorrupt},
		"newer Blink":        {"\xff\x16\xfe\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\x10_", base.ErrUnsupported},
		"newer V8":           {envelope[:len(envelope)-1] + "\x11_", base.ErrUnsupported},
		"very old":           {"\xff\x0f_", base.ErrUnsupported},
		"no envelope":        {"o{\x00", base.ErrUnsupported},
		"unknown tag":        {envelope + "?", base.ErrUnsupported},
		"unknown host":       {envelope + "\\K\x01", base.ErrUnsupported},
		"behind it":          {envelope + "__", base.ErrCorrupt},
		"cut":                {envelope + "\"\x05abc", base.ErrCorrupt},
		"claimed string":     {envelope + "\"\xff\xff\xff\xff\x0f", base.ErrCorrupt},
		"claimed array":      {envelope + "A\xff\xff\xff\xff\x0f", base.ErrCorrupt},
		"reference to none":  {envelope + "^\x00", base.ErrCorrupt},
		"wrong count":        {envelope + "o\"\x01aI\x02{\x02", base.ErrCorrupt},
		"view beyond buffer": {envelope + "B\x01\x00VB\x00\x02\x00", base.ErrCorrupt},
		"nested arrays":      {envelope + strings.Repeat("A\x01", 1_000_000), base.ErrUnsupported},
		"nested names":       {envelope + strings.Repeat("o", 1_000_000), base.ErrUnsupported},
	} {
		if v, err := value.Decode([]byte(c.b)); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, error %v", name, v, err)
		}
	}
}

// TestSparseArrayOfGreatLength takes no memory for elements that are not there.
func TestSparseArrayOfGreatLength(t *testing.T) {
	v, err := value.Decode([]byte(envelope + "a\xff\xff\xff\xff\x0fI\x02\"\x01x@\x01\xff\xff\xff\xff\x0f"))
	if err != nil {
		t.Fatal(err)
	}
	if x, ok := v.(*value.Array).Get("1"); !ok || x != "x" || v.(*value.Array).Length != math.MaxUint32 {
		t.Errorf("%+v", v)
	}
}

// TestSparseArray: an array that V8 has read itself is written with its elements as properties. It
// has elements all the same, and stays what it is.
func TestSparseArray(t *testing.T) {
	for script, want := range map[string]string{
		"a\x02I\x00\"\x01aI\x02\"\x01b@\x02\x02":   "[a b] []",
		"a\x01I\x00\"\x01a\"\x01x\"\x01b@\x02\x01": "[a] [{x b}]",
		"a\x00@\x00\x00": "[] []",
		"a\x03I\x00\"\x01aI\x04\"\x01cI\x06\"\x01d@\x03\x03": "[] [{0 a} {2 c} {3 d}]",
	} {
		v, err := value.Decode([]byte(envelope + script))
		if err != nil {
			t.Fatalf("%q: %v", script, err)
		}
		a := v.(*value.Array)
		if got := fmt.Sprint(a.Elements, a.Properties); got != want || !a.Sparse {
			t.Errorf("%q is %s, sparse %t", script, got, a.Sparse)
		}
		if again, err := value.Encode(v); err != nil || string(again) != envelope+script {
			t.Errorf("%q becomes %q, %v", script, again, err)
		}
	}
	a := &value.Array{Length: 3, Properties: value.Properties{{Name: "0", Value: "a"}, {Name: "2", Value: "c"}, {Name: "3", Value: "d"}, {Name: "01", Value: "e"}}}
	if got := slices.Collect(a.All()); len(got) != 2 || got[0] != "a" || got[1] != "c" {
		t.Errorf("the elements are %v", got)
	}
	a = value.NewArray("a", value.Hole{}, "c")
	if got := slices.Collect(a.All()); len(got) != 2 || got[0] != "a" || got[1] != "c" {
		t.Errorf("the elements are %v", got)
	}
}

// TestViewsThatShareABuffer are one buffer with two views.
func TestViewsThatShareABuffer(t *testing.T) {
	v, err := value.Decode([]byte(envelope + "A\x02B\x02\x01\x02VB\x00\x01\x00^\x01VB\x01\x01\x00$\x00\x02"))
	if err != nil {
		t.Fatal(err)
	}
	a, b := v.(*value.Array).Elements[0].(*value.View), v.(*value.Array).Elements[1].(*value.View)
	if a.Buffer != b.Buffer || !bytes.Equal(a.Bytes(), []byte{1}) || !bytes.Equal(b.Bytes(), []byte{2}) {
		t.Errorf("%+v, %+v", a, b)
	}
}

// TestNestedArraysThatClaimAll decodes arrays in arrays, each with as many elements as bytes
// follow.
func TestNestedArraysThatClaimAll(t *testing.T) {
	b := []byte{0xff, 16, 0xff, 15}
	for range 2000 {
		b = binary.AppendUvarint(append(b, 'A'), 60_000)
	}
	b = append(b, bytes.Repeat([]byte{'-'}, 60_000)...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if v, err := value.Decode(b); !errors.Is(err, base.ErrCorrupt) {
		t.Errorf("%T, %v", v, err)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > uint64(50*len(b)) {
		t.Errorf("%d bytes of memory for a value of %d", n, len(b))
	}
}

func FuzzDecode(f *testing.F) {
	for _, x := range fixtures(f) {
		b, _ := x.serialized(f)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := value.DecodeBounded(b, 1<<20)
		if err != nil {
			if !errors.Is(err, base.ErrCorrupt) && !errors.Is(err, base.ErrUnsupported) && !errors.Is(err, base.ErrTooLarge) {
				t.Error(err)
			}
			return
		}
		again, err := value.Encode(v)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := value.Decode(again); err != nil {
			t.Errorf("%x: %v", again, err)
		} else if s := same(v, back); s != "" {
			t.Errorf("%x: %s", again, s)
		}
	})
}
