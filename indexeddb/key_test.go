package indexeddb_test

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/indexeddb"
	"github.com/ledgerd/ledger/internal/base"
)

// keys draws keys of all types, with values at the edges.
func keys() *rapid.Generator[indexeddb.Key] { return keysOfDepth(3) }

func keysOfDepth(depth int) *rapid.Generator[indexeddb.Key] {
	return rapid.Custom(func(t *rapid.T) indexeddb.Key {
		number := rapid.OneOf(rapid.SampledFrom([]float64{0, math.Copysign(0, -1), 1, -1, math.Inf(1), math.Inf(-1), 5e-324, -5e-324, math.MaxFloat64}),
			rapid.Float64().Filter(func(f float64) bool { return !math.IsNaN(f) }))
		must := func(k indexeddb.Key, err error) indexeddb.Key {
			if err != nil {
				t.Fatal(err)
			}
			return k
		}
		switch rapid.IntRange(0, 4+min(depth, 1)).Draw(t, "type") {
		case 0:
			return must(indexeddb.NumberKey(number.Draw(t, "number")))
		case 1:
			return must(indexeddb.DateKey(number.Draw(t, "date")))
		case 2:
			return indexeddb.StringKey(rapid.OneOf(rapid.String(), texts()).Draw(t, "string"))
		case 3, 4:
			return indexeddb.BinaryKey(rapid.SliceOfN(rapid.OneOf(rapid.Byte(), rapid.SampledFrom([]byte{0, 1, 8, 9, 0xff})), 0, 18).Draw(t, "binary"))
		}
		return must(indexeddb.ArrayKey(rapid.SliceOfN(keysOfDepth(depth-1), 0, 3).Draw(t, "array")...))
	})
}

// texts draws strings of code units that meet at the edges of surrogates.
func texts() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		units := rapid.SliceOfN(rapid.SampledFrom([]uint16{0, 'a', 0x7e, 0x7f, 0x80, 0xff, 0x100, 0x3fff, 0x4000, 0xd7ff, 0xd800, 0xd83d, 0xde00, 0xdfff, 0xe000, 0xffff}), 0, 4).Draw(t, "units")
		var b []byte
		for _, u := range units {
			b = append(b, byte(u>>8), byte(u))
		}
		s, err := indexeddb.DecodeString(b)
		if err != nil {
			t.Fatal(err)
		}
		if again := indexeddb.AppendString(nil, s); !bytes.Equal(again, b) {
			t.Fatalf("%x becomes %q and %x", b, s, again)
		}
		return s
	})
}

// TestKeyLaws: the order is total, and that of the sortable form; both forms decode to what was
// encoded.
func TestKeyLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := keys().Draw(t, "a"), keys().Draw(t, "b"), keys().Draw(t, "c")
		if a.Compare(b) != -b.Compare(a) || a.Compare(a) != 0 || (a.Compare(b) == 0) != (a == b) {
			t.Fatalf("%s and %s compare as %d and %d", a, b, a.Compare(b), b.Compare(a))
		}
		if a.Compare(b) <= 0 && b.Compare(c) <= 0 && a.Compare(c) > 0 {
			t.Fatalf("%s <= %s <= %s", a, b, c)
		}
		sa, sb := a.AppendSortable(nil), b.AppendSortable(nil)
		if got := bytes.Compare(sa, sb); got != a.Compare(b) {
			t.Fatalf("%s and %s: keys compare as %d, their sortable forms as %d", a, b, a.Compare(b), got)
		}
		if a != b && bytes.HasPrefix(sa, sb) {
			t.Fatalf("the sortable form of %s begins that of %s", b, a)
		}
		for name, back := range map[string]func([]byte) (indexeddb.Key, []byte, error){"key": indexeddb.DecodeKey, "sortable": indexeddb.DecodeSortable} {
			enc := append(map[string][]byte{"key": a.Append(nil), "sortable": sa}[name], 7)
			if k, rest, err := back(enc); err != nil || k != a || !bytes.Equal(rest, []byte{7}) {
				t.Fatalf("%s: %s becomes %s, error %v", name, a, k, err)
			}
		}
	})
}

// TestSortableKeys has keys as Chromium writes them into SQLite files.
func TestSortableKeys(t *testing.T) {
	must := func(k indexeddb.Key, err error) indexeddb.Key {
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	binary := func(n int) indexeddb.Key { return indexeddb.BinaryKey(bytes.Repeat([]byte{0xee}, n)) }
	for want, k := range map[string]indexeddb.Key{
		"10bff0000000000000": must(indexeddb.NumberKey(1)), "20400fffffffffffff": must(indexeddb.DateKey(-1)), "3000": indexeddb.StringKey(""), "306200": indexeddb.StringKey("a"),
		"300100": indexeddb.StringKey("\x00"), "307f00": indexeddb.StringKey("\x7e"), "30807f00": indexeddb.StringKey("\x7f"), "30bfff00": indexeddb.StringKey("\u3fff"),
		"30ff400000": indexeddb.StringKey("\u4000"), "30ffffff00": indexeddb.StringKey("\uffff"), "30ffd83dffde0000": indexeddb.StringKey("\U0001F600"),
		"4000": binary(0), "4009ee0000000000000001": binary(1), "4009eeeeeeeeeeeeeeee08": binary(8), "4009eeeeeeeeeeeeeeee09ee0000000000000001": binary(9),
		"5000": must(indexeddb.ArrayKey()), "50306200400900000000000000000900000000000000000100": must(indexeddb.ArrayKey(indexeddb.StringKey("a"), indexeddb.BinaryKey(make([]byte, 9)))),
	} {
		if got := hex.EncodeToString(k.AppendSortable(nil)); got != want {
			t.Errorf("%s is %s, want %s", k, got, want)
		}
		b, err := hex.DecodeString(want)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := indexeddb.DecodeWholeSortable(b); err != nil || back != k {
			t.Errorf("%s is %s, error %v", want, back, err)
		}
	}
}

// TestSortableKeysThatAreRefused are bytes that AppendSortable does not write, though some of them
// sort between those that it does write.
func TestSortableKeysThatAreRefused(t *testing.T) {
	for name, b := range map[string]string{
		"empty": "", "cut number": "\x10\xbf", "NaN": "\x10\xff\xf8\x00\x00\x00\x00\x00\x00", "-0": "\x10\x7f\xff\xff\xff\xff\xff\xff\xff", "unknown type": "\x60\x00",
		"string without end": "\x30b", "pair without end": "\x30\x80\x7f", "pair that is cut": "\x30\x80", "long unit that is cut": "\x30\xff\x40", "pair of a short unit": "\x30\x80\x7e\x00",
		"pair of a long unit": "\x30\xc0\x00\x00", "long unit of a pair": "\x30\xff\x3f\xff\x00", "binary without end": "\x40\x09\xee\x00\x00\x00\x00\x00\x00\x00",
		"binary without its count": "\x40\x09\xee\xee\xee\xee\xee\xee\xee\xee", "count of 0": "\x40\x09\xee\x00\x00\x00\x00\x00\x00\x00\x00", "count without a group": "\x40\x01",
		"count of 10": "\x40\x09\xee\xee\xee\xee\xee\xee\xee\xee\x0a", "filled with 1": "\x40\x09\xee\x00\x00\x00\x00\x00\x00\x01\x01", "array without end": "\x50\x30\x00", "end alone": "\x00",
		"bytes behind it": "\x30\x00\x00",
	} {
		if k, err := indexeddb.DecodeWholeSortable([]byte(b)); !errors.Is(err, base.ErrCorrupt) {
			t.Errorf("%s: %v, error %v", name, k, err)
		}
	}
}

// TestOrderOfTypes has keys in the order that the specification of IndexedDB gives.
func TestOrderOfTypes(t *testing.T) {
	must := func(k indexeddb.Key, err error) indexeddb.Key {
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	sorted := []indexeddb.Key{
		must(indexeddb.NumberKey(math.Inf(-1))), must(indexeddb.NumberKey(-1)), must(indexeddb.NumberKey(0)), must(indexeddb.NumberKey(math.Inf(1))),
		must(indexeddb.DateKey(-1)), must(indexeddb.DateKey(0)),
		indexeddb.StringKey(""), indexeddb.StringKey("a"), indexeddb.StringKey("a\x00"), indexeddb.StringKey("b"),
		indexeddb.StringKey("\xed\xa0\x80"), indexeddb.StringKey("\U0001F600"), indexeddb.StringKey("\uffff"),
		indexeddb.BinaryKey(nil), indexeddb.BinaryKey([]byte{0}), indexeddb.BinaryKey([]byte{0, 1}), indexeddb.BinaryKey([]byte{0xff}),
		must(indexeddb.ArrayKey()), must(indexeddb.ArrayKey(indexeddb.StringKey("a"))), must(indexeddb.ArrayKey(indexeddb.StringKey("a"), indexeddb.StringKey(""))),
		must(indexeddb.ArrayKey(must(indexeddb.ArrayKey()))),
	}
	for i, a := range sorted {
		for j, b := range sorted {
			if got := a.Compare(b); got != cmp.Compare(i, j) {
				t.Errorf("%s and %s compare as %d", a, b, got)
			}
		}
	}
}

// TestDepthOfArrays: 2000 arrays may stand in each other.
func TestDepthOfArrays(t *testing.T) {
	nested := func(n int) []byte { return append(bytes.Repeat([]byte{4, 1}, n-1), 4, 0) }
	if _, _, err := indexeddb.DecodeKey(nested(2000)); err != nil {
		t.Error(err)
	}
	for _, n := range []int{2001, 10_000, 1_000_000} {
		if _, _, err := indexeddb.DecodeKey(nested(n)); !errors.Is(err, base.ErrCorrupt) {
			t.Errorf("%d arrays: %v", n, err)
		}
		if indexeddb.CompareRows(append([]byte{0, 1, 1, 1}, nested(n)...), append([]byte{0, 1, 1, 1}, nested(n)...)) != 0 {
			t.Errorf("%d arrays do not equal themselves", n)
		}
		if _, _, err := indexeddb.DecodeSortable(bytes.Repeat([]byte{0x50}, n)); !errors.Is(err, base.ErrCorrupt) {
			t.Errorf("%d arrays in sortable form: %v", n, err)
		}
	}
}

// TestKeysThatAreRefused are bytes that no encoder writes.
func TestKeysThatAreRefused(t *testing.T) {
	for name, b := range map[string]string{
		"empty": "", "null": "\x00", "minimum": "\x05", "unknown type": "\x07", "cut number": "\x03\x00", "NaN": "\x03\x00\x00\x00\x00\x00\x00\xf8\x7f",
		"NaN date": "\x02\x01\x00\x00\x00\x00\x00\xf0\xff", "cut string": "\x01\x02\x00a", "claimed string": "\x01\xff\xff\xff\xff\xff\xff\xff\xff\x3f",
		"claimed array": "\x04\xff\xff\xff\xff\xff\xff\xff\xff\x3f", "cut array": "\x04\x02\x01\x00", "long count": "\x01\x80\x00", "overflow": "\x06\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
	} {
		if k, _, err := indexeddb.DecodeKey([]byte(b)); !errors.Is(err, base.ErrCorrupt) {
			t.Errorf("%s: %v, error %v", name, k, err)
		}
	}
}

// TestLongKeysOnPages: keys of any length have rows of a page, which give the whole key back (X4),
// and sort as their keys do where they differ early.
func TestLongKeysOnPages(t *testing.T) {
	a, b := indexeddb.StringKey(strings.Repeat("a", 1<<20)), indexeddb.StringKey("b"+strings.Repeat("a", 1<<20))
	half := indexeddb.StringKey(strings.Repeat("a", 600))
	rows := []indexeddb.Row{
		{Kind: indexeddb.KindDatabaseName, Origin: strings.Repeat("o", 3000), Name: strings.Repeat("n", 3000)},
		{Kind: indexeddb.KindRecord, Database: math.MaxInt64 - 1, Store: math.MaxInt64 - 1, Primary: half},
		{Kind: indexeddb.KindRecord, Database: math.MaxInt64 - 1, Store: math.MaxInt64 - 1, Primary: a},
		{Kind: indexeddb.KindRecord, Database: math.MaxInt64 - 1, Store: math.MaxInt64 - 1, Primary: b},
		{Kind: indexeddb.KindIndexRow, Database: math.MaxInt64 - 1, Store: math.MaxInt64 - 1, Index: math.MaxInt32 - 1, Key: a, Primary: b},
		{Kind: indexeddb.KindIndexRow, Database: math.MaxInt64 - 1, Store: math.MaxInt64 - 1, Index: math.MaxInt32 - 1, Key: b, Primary: a},
	}
	var last []byte
	for _, r := range rows {
		var in []byte
		if r.Kind != indexeddb.KindIndexRow {
			in = []byte("value")
		}
		key, value := indexeddb.PageRow(r, in)
		if len(key) > 4096 {
			t.Errorf("%s: %d bytes", r.Describe(), len(key))
		}
		if bytes.Compare(last, key) >= 0 {
			t.Errorf("%s stands before the row before", r.Describe())
		}
		last = key
		back, out, err := indexeddb.DecodePageRow(key, value)
		if err != nil || !bytes.Equal(back.Append(nil), r.Append(nil)) || !bytes.Equal(in, out) {
			t.Errorf("%s comes back as %s, error %v", r.Describe(), back.Describe(), err)
		}
	}
	record, err := indexeddb.RowGroup(pageKey(rows[2]))
	if err != nil {
		t.Fatal(err)
	}
	index, err := indexeddb.RowGroup(pageKey(rows[5]))
	if err != nil || !bytes.Equal(record, index) || !bytes.Equal(record, pageKey(rows[2])) {
		t.Errorf("a record and its index row are in two groups, error %v", err)
	}
}

func pageKey(r indexeddb.Row) []byte {
	key, _ := indexeddb.PageKey(nil, r)
	return key
}

// TestElements gives the elements of an array, in order.
func TestElements(t *testing.T) {
	inner, err := indexeddb.ArrayKey(indexeddb.StringKey("a"))
	if err != nil {
		t.Fatal(err)
	}
	elements := []indexeddb.Key{inner, indexeddb.BinaryKey([]byte{1}), indexeddb.StringKey("é")}
	array, err := indexeddb.ArrayKey(elements...)
	if err != nil {
		t.Fatal(err)
	}
	if got := slices.Collect(array.Elements()); !slices.Equal(got, elements) {
		t.Errorf("%v", got)
	}
	if got, want := array.String(), `[["a"], 0x01, "é"]`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
