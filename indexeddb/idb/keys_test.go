package idb_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"testing"
	"time"

	"github.com/ledgerd/ledger/indexeddb"
	"github.com/ledgerd/ledger/indexeddb/idb"
	"github.com/ledgerd/ledger/indexeddb/value"
)

// TestKeyGenerator: wpt keygenerator. A nil is a value without key, a []any one whose key is
// refused.
func TestKeyGenerator(t *testing.T) {
	taken := func(k any) []any { return []any{"taken", k} }
	for name, c := range map[string]struct {
		keys []any
		want string
	}{
		"starts at one, and increments by one":                                 {[]any{nil, nil, nil, nil}, "[1 2 3 4]"},
		"increments by one from last set key":                                  {[]any{2, nil, 5, nil, 6.66, 7}, "[2 3 5 6 6.66 7]"},
		"don't increment when new key is not bigger than current":              {[]any{-10, nil, "6", 6.3, array(10), -2, 4, nil}, `[-10 -2 1 4 6.3 7 "6" [10]]`},
		"Keygenerator ConstraintError when using same id as already generated": {[]any{1, nil, taken(2), nil, 2.00001, 5, nil, taken(6)}, "[1 2 2.00001 3 5 6]"},
	} {
		t.Run(name, func(t *testing.T) {
			rows, db := opened(t, func(ctx context.Context, u *idb.Upgrade) {
				s := have[*idb.ObjectStore](t)(u.CreateObjectStore("store", &idb.StoreOptions{KeyPath: idb.Path("id"), AutoIncrement: true}))
				for _, k := range c.keys {
					v, want := &value.Object{}, error(nil)
					if refused, ok := k.([]any); ok {
						k, want = refused[1], idb.ErrConstraint
					}
					if k != nil {
						v.Set("id", js(k))
					}
					_, err := s.Add(ctx, v, nil)
					is(t, fmt.Sprint(k), err, want)
					u.PreventDefault()
				}
			})
			s := begin(t, db, idb.ReadOnly, "store")
			wants(t, "keys", have[[]indexeddb.Key](t)(s.GetAllKeys(t.Context(), nil, 0)), c.want)
			commit(t, s)
			clean(t, rows)
		})
	}
}

// TestKeyGeneratorVersusExplicitKey: wpt keygenerator, "Key generator vs. explicit key".
func TestKeyGeneratorVersusExplicitKey(t *testing.T) {
	for name, key := range map[string]float64{
		"53 bits": 1 << 53, "greater than 53 bits, less than 64 bits": 1 << 60, "greater than 53 bits, less than 64 bits (negative)": -1 << 60,
		"63 bits": 1 << 63, "63 bits (negative)": -1 << 63, "64 bits": 1 << 64, "64 bits (negative)": -1 << 64,
		"greater than 64 bits, but still finite": 1 << 70, "greater than 64 bits, but still finite (negative)": -1 << 70,
		"equal to Infinity": math.Inf(1), "equal to -Infinity": math.Inf(-1),
	} {
		t.Run(name, func(t *testing.T) {
			_, db := opened(t, func(_ context.Context, u *idb.Upgrade) {
				have[*idb.ObjectStore](t)(u.CreateObjectStore("store", &idb.StoreOptions{AutoIncrement: true}))
			})
			s := begin(t, db, idb.ReadWrite, "store")
			put := func(key any, want string) {
				t.Helper()
				k, err := s.Put(t.Context(), 0.0, key)
				if want == "" {
					is(t, "put", err, idb.ErrConstraint)
					s.Tx().PreventDefault()
					return
				}
				must(t, err)
				wants(t, "key", k, want)
			}
			put(nil, "1")
			put(nil, "2")
			put(1000, "1000")
			put(nil, "1001")
			put(key, have[indexeddb.Key](t)(idb.Key(key)).String())
			if key > 0 {
				put(nil, "")
			} else {
				put(nil, "1002")
			}
			put(2000, "2000")
			commit(t, s)
		})
	}
}

// TestKeyIsInjected: wpt keygenerator, reading-autoincrement-store and -indexes.
func TestKeyIsInjected(t *testing.T) {
	for name, c := range map[string]struct {
		path string
		v    value.Value
		want string // DataError when empty
	}{
		"Key is injected into value - single segment path":                     {"id", object("name", "n"), "{name:n id:1}"},
		"Key is injected into value - multi-segment path":                      {"a.b.id", object("name", "n"), "{name:n a:{b:{id:1}}}"},
		"Key is injected into value - multi-segment path, partially populated": {"a.b.id", object("a", object("name", "m")), "{a:{name:m b:{id:1}}}"},
		"put() throws if key cannot be injected - single segment path":         {"id", 123.0, ""},
		"put() throws if key cannot be injected - multi-segment path":          {"a.b.id", object("a", 123), ""},
		"put() throws if key cannot be injected - in a map":                    {"id", &value.Map{}, ""},
		"put() throws if the key is not valid":                                 {"id", object("id", true), ""},
	} {
		t.Run(name, func(t *testing.T) {
			rows, db := opened(t, func(ctx context.Context, u *idb.Upgrade) {
				s := have[*idb.ObjectStore](t)(u.CreateObjectStore("store", &idb.StoreOptions{KeyPath: idb.Path(c.path), AutoIncrement: true}))
				have[*idb.Index](t)(s.CreateIndex(ctx, "by id", idb.Path(c.path), &idb.IndexOptions{Unique: true}))
			})
			s := begin(t, db, idb.ReadWrite, "store")
			before := text(c.v)
			_, err := s.Put(t.Context(), c.v, nil)
			wants(t, "the value that was put", c.v, before)
			if c.want == "" {
				is(t, "put", err, idb.ErrData)
				commit(t, s)
				return
			}
			must(t, err)
			x := have[*idb.Index](t)(s.Index("by id"))
			wants(t, "get", have[value.Value](t)(s.Get(t.Context(), 1)), c.want)
			wants(t, "get by index", have[value.Value](t)(x.Get(t.Context(), 1)), c.want)
			cursor := have[*idb.Cursor](t)(x.OpenCursor(t.Context(), nil, idb.Prev))
			wants(t, "cursor", have[value.Value](t)(cursor.Value(t.Context())), c.want)
			cursor.Close()
			commit(t, s)
			clean(t, rows)
		})
	}
}

// TestKeyInOtherObjects: a browser gives generated keys to all objects, also to those for which the
// specification does not have it.
func TestKeyInOtherObjects(t *testing.T) {
	ctx := t.Context()
	shared := &value.Buffer{Bytes: []byte{1, 2, 3}, MaxLength: -1}
	for name, v := range map[string]value.Value{
		"Map": &value.Map{Entries: [][2]value.Value{{1.0, "a"}}}, "Set": &value.Set{}, "Date": &value.Date{Milliseconds: 5}, "RegExp": &value.RegExp{Pattern: "x"},
		"Number": &value.Boxed{Value: 1.0}, "ArrayBuffer": shared, "Uint8Array": &value.View{Kind: "Uint8Array", Buffer: shared, Length: 3}, "Error": &value.Error{Name: "Error"},
		"DOMRect": &value.Shape{Kind: "DOMRect", Numbers: []float64{1, 2, 3, 4}}, "in an object": object("a", &value.Date{Milliseconds: 5}),
	} {
		rows, db := opened(t, func(_ context.Context, u *idb.Upgrade) {
			have[*idb.ObjectStore](t)(u.CreateObjectStore("store", &idb.StoreOptions{AutoIncrement: true}))
		})
		s := begin(t, db, idb.ReadWrite, "store")
		have[indexeddb.Key](t)(s.Put(ctx, v, nil))
		commit(t, s)
		path := "id"
		if name == "in an object" {
			path = "a.id"
		}
		// An object store of a browser has a key path, and no such value is refused.
		tx := have[idb.RowsTx](t)(rows.Begin(ctx))
		for property, b := range map[byte][]byte{indexeddb.StoreKeyPath: idb.Path(path).Append(nil), indexeddb.StoreHasKeyPath: indexeddb.AppendBool(nil, true)} {
			key, b := indexeddb.PageRow(indexeddb.Row{Kind: indexeddb.KindStore, Database: 1, Store: 1, Property: property}, b)
			must(t, tx.Put(ctx, key, b))
		}
		must(t, tx.Commit(ctx))
		db = have[*idb.DB](t)(idb.New(rows, nil).Open(ctx, "db", 2, func(ctx context.Context, u *idb.Upgrade) error {
			s := have[*idb.ObjectStore](t)(u.ObjectStore("store"))
			have[*idb.Index](t)(s.CreateIndex(ctx, "id", idb.Path(path), nil))
			have[*idb.Index](t)(s.CreateIndex(ctx, "both", idb.Paths(path, path), nil))
			have[*idb.Index](t)(s.CreateIndex(ctx, "a", idb.Path("a"), nil))
			return nil
		}))
		clean(t, rows)
		s = begin(t, db, idb.ReadWrite, "store")
		got := have[value.Value](t)(s.Get(ctx, 1))
		id, there := indexeddb.At(got, path, nil)
		if !there || id != 1.0 {
			t.Errorf("%s: %#v", name, got)
		}
		x := have[*idb.Index](t)(s.Index("both"))
		wants(t, name+": index of two paths", have[indexeddb.Key](t)(x.GetKey(ctx, []any{1, 1})), "1")
		x = have[*idb.Index](t)(s.Index("a"))
		want := "no key"
		if path == "a.id" { // a date is a key, whatever was put into it
			want = "1"
		}
		wants(t, name+": index of the object", have[indexeddb.Key](t)(x.GetKey(ctx, &value.Date{Milliseconds: 5})), want)
		wants(t, name+": what was read is put again", have[indexeddb.Key](t)(s.Put(ctx, got, nil)), "1")
		commit(t, s)
		if r := clean(t, rows); r.Opaque != 0 || r.Records != 1 {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// TestKeyGeneratorIsReverted: wpt transaction-abort-generator-revert.
func TestKeyGeneratorIsReverted(t *testing.T) {
	rows, db := opened(t, func(ctx context.Context, u *idb.Upgrade) {
		s := have[*idb.ObjectStore](t)(u.CreateObjectStore("books", &idb.StoreOptions{KeyPath: idb.Path("isbn"), AutoIncrement: true}))
		have[indexeddb.Key](t)(s.Put(ctx, object("isbn", 345678), nil))
	})
	s := begin(t, db, idb.ReadWrite, "books")
	wants(t, "key", have[indexeddb.Key](t)(s.Put(t.Context(), object(), nil)), "345679")
	must(t, s.Tx().Abort())
	s = begin(t, db, idb.ReadWrite, "books")
	wants(t, "The current number of a key generator is reverted when a readwrite transaction aborts",
		have[indexeddb.Key](t)(s.Put(t.Context(), object(), nil)), "345679")
	must(t, s.Clear(t.Context()))
	wants(t, "clear() does not reset it", have[indexeddb.Key](t)(s.Put(t.Context(), object(), nil)), "345680")
	must(t, s.Tx().Abort())
	_, err := idb.New(rows, nil).Open(t.Context(), "db", 2, func(ctx context.Context, u *idb.Upgrade) error {
		s := have[*idb.ObjectStore](t)(u.ObjectStore("books"))
		wants(t, "key", have[indexeddb.Key](t)(s.Put(ctx, object(), nil)), "345679")
		return u.Abort()
	})
	is(t, "open", err, idb.ErrAbort)
	s = begin(t, db, idb.ReadWrite, "books")
	wants(t, "The current number of a key generator is reverted when a versionchange transaction aborts",
		have[indexeddb.Key](t)(s.Put(t.Context(), object(), nil)), "345679")
	commit(t, s)
}

// TestKeyPath: wpt keypath.
func TestKeyPath(t *testing.T) {
	deep := object("p", 10)
	for range 13 {
		deep = object("p", deep)
	}
	for name, c := range map[string]struct {
		path   indexeddb.KeyPath
		values []value.Value
		want   string
	}{
		"my.key":                      {idb.Path("my.key"), []value.Value{object("my", object("key", 10))}, "[10]"},
		"my.køi":                      {idb.Path("my.køi"), []value.Value{object("my", object("køi", 5))}, "[5]"},
		"public.key$ya":               {idb.Path("public.key$ya"), []value.Value{object("public", object("key$ya", 10))}, "[10]"},
		"true.$":                      {idb.Path("true.$"), []value.Value{object("true", object("$", 10))}, "[10]"},
		"my._":                        {idb.Path("my._"), []value.Value{object("my", object("_", 10))}, "[10]"},
		"delete.a7":                   {idb.Path("delete.a7"), []value.Value{object("delete", object("a7", 10))}, "[10]"},
		"p.p.p.p.p.p.p.p.p.p.p.p.p.p": {idb.Path("p.p.p.p.p.p.p.p.p.p.p.p.p.p"), []value.Value{deep}, "[10]"},
		"str.length":                  {idb.Path("str.length"), []value.Value{object("str", "pony"), object("str", "my"), object("str", "little"), object("str", "")}, "[0 2 4 6]"},
		"arr.length":                  {idb.Path("arr.length"), []value.Value{object("arr", array(0, 0, 0, 0)), object("arr", array(10, 10)), object("arr", array())}, "[0 2 4]"},
		"length":                      {idb.Path("length"), []value.Value{array(10, 10), "123", object("length", 20)}, "[2 3 20]"},
		"'' uses value as key":        {idb.Path(""), []value.Value{array("bags"), "bean", 10.0}, `[10 "bean" ["bags"]]`},
		"[''] uses value as [key]":    {idb.Paths(""), []value.Value{array("bags"), "bean", 10.0}, `[[10] ["bean"] [["bags"]]]`},
		"['x', 'y']":                  {idb.Paths("x", "y"), []value.Value{object("x", 10, "y", 20), object("y", 1.337, "x", 100)}, "[[10, 20] [100, 1.337]]"},
		"['name', 'type.name']": {idb.Paths("name", "type.name"), []value.Value{
			object("name", "orange", "type", object("name", "fruit")), object("name", "orange", "type", object("name", "telecom")),
		}, `[["orange", "fruit"] ["orange", "telecom"]]`},
		"list with 1 field": {idb.Paths("type"), []value.Value{object("type", "fruit"), object("type", "vegetable")}, `[["fruit"] ["vegetable"]]`},
	} {
		t.Run(name, func(t *testing.T) {
			rows, db := opened(t, func(ctx context.Context, u *idb.Upgrade) {
				s := have[*idb.ObjectStore](t)(u.CreateObjectStore("store", &idb.StoreOptions{KeyPath: c.path}))
				have[*idb.Index](t)(s.CreateIndex(ctx, "same", c.path, nil))
				for _, v := range c.values {
					have[indexeddb.Key](t)(s.Add(ctx, v, nil))
				}
			})
			s := begin(t, db, idb.ReadOnly, "store")
			if got := s.KeyPath(); !got.Equal(c.path) {
				t.Errorf("key path %v", got)
			}
			wants(t, "keys", have[[]indexeddb.Key](t)(s.GetAllKeys(t.Context(), nil, 0)), c.want)
			commit(t, s)
			clean(t, rows)
		})
	}
}

// TestInvalidKeyPath: wpt keypath_invalid, keypath-special-identifiers.
func TestInvalidKeyPath(t *testing.T) {
	inUpgrade(t, func(ctx context.Context, u *idb.Upgrade) {
		s := have[*idb.ObjectStore](t)(u.CreateObjectStore("store", nil))
		paths := []indexeddb.KeyPath{idb.Paths(), idb.Paths("array with space"), idb.Paths("multi_array", "a,b")}
		for _, p := range []string{
			"j a", ".yo", "yo,lo", "3m", "my.1337", "..yo", "y..o", "y.o.", "y.o..", "m.*", `"m"`, "m%", "m/", "m/a", "m&", "m!", "*", "*.*", "^m", "/m/", ".", " ", "\xff",
		} {
			paths = append(paths, idb.Path(p))
		}
		for _, p := range paths {
			_, err := u.CreateObjectStore("other", &idb.StoreOptions{KeyPath: p})
			is(t, "createObjectStore "+p.String(), err, idb.ErrSyntax)
			_, err = s.CreateIndex(ctx, "index", p, nil)
			is(t, "createIndex "+p.String(), err, idb.ErrSyntax)
		}
		for i, p := range []string{"", "a", "ä.ö", "_", "$", "a1", "a\u0301", "a\u200d", "constructor", "\u2118", "名前"} {
			_, err := u.CreateObjectStore(fmt.Sprint(i), &idb.StoreOptions{KeyPath: idb.Path(p)})
			is(t, "createObjectStore "+p, err, nil)
		}
	})
}

// TestInvalidKeys: wpt key_invalid, key-conversion-exceptions.
func TestInvalidKeys(t *testing.T) {
	recursive := &value.Array{Length: 1, Elements: []value.Value{nil}}
	recursive.Elements[0] = recursive
	deep := []any{}
	for range indexeddb.MaxDepth {
		deep = []any{deep}
	}
	invalid := map[string]any{
		"true": true, "null": value.Null{}, "NaN": math.NaN(), "undefined": value.Undefined{}, "{}": object(), "{ obj: 1 }": object("obj", 1),
		"new String()": &value.Boxed{Value: ""}, "new Number()": &value.Boxed{Value: 0.0}, "[{}]": array(object()), "[undefined]": array(value.Undefined{}),
		"[,1]": &value.Array{Length: 2, Elements: []value.Value{value.Hole{}, 1.0}}, "new Date(NaN)": &value.Date{Milliseconds: math.NaN()},
		"/foo/": &value.RegExp{Pattern: "foo"}, "sparse array": &value.Array{Length: 11}, "array directly contains self": recursive,
		"array member contains self": array(recursive), "bigint": big.NewInt(1), "zero key": indexeddb.Key{}, "too deep": deep,
		"an integer that is no number of a script": int64(1<<53 + 1), "a struct": struct{}{}, "a slice with a bool": []any{1, true}, "nil in a slice": []any{nil},
	}
	_, db := opened(t, func(ctx context.Context, u *idb.Upgrade) {
		s := have[*idb.ObjectStore](t)(u.CreateObjectStore("store", nil))
		have[*idb.Index](t)(s.CreateIndex(ctx, "index", idb.Path("x"), nil))
		have[indexeddb.Key](t)(s.Add(ctx, object("x", 1), 1))
	})
	s := begin(t, db, idb.ReadWrite, "store")
	x := have[*idb.Index](t)(s.Index("index"))
	ctx := t.Context()
	c := have[*idb.Cursor](t)(x.OpenCursor(ctx, nil, idb.Next))
	defer c.Close()
	for name, k := range invalid {
		_, err := idb.Key(k)
		is(t, name+": key", err, idb.ErrData)
		for method, call := range map[string]func() error{
			"add":    func() error { _, err := s.Add(ctx, "v", k); return err },
			"put":    func() error { _, err := s.Put(ctx, "v", k); return err },
			"delete": func() error { return s.Delete(ctx, k) },
			"get":    func() error { _, err := s.Get(ctx, k); return err }, "index get": func() error { _, err := x.Get(ctx, k); return err },
			"getKey": func() error { _, err := s.GetKey(ctx, k); return err }, "index getKey": func() error { _, err := x.GetKey(ctx, k); return err },
			"getAll": func() error { _, err := s.GetAll(ctx, k, 0); return err }, "index getAll": func() error { _, err := x.GetAll(ctx, k, 0); return err },
			"getAllKeys": func() error { _, err := s.GetAllKeys(ctx, k, 0); return err },
			"count":      func() error { _, err := s.Count(ctx, k); return err }, "index count": func() error { _, err := x.Count(ctx, k); return err },
			"openCursor":         func() error { _, err := s.OpenCursor(ctx, k, idb.Next); return err },
			"openKeyCursor":      func() error { _, err := x.OpenKeyCursor(ctx, k, idb.Next); return err },
			"continue":           func() error { return c.Continue(ctx, k) },
			"continuePrimaryKey": func() error { return c.ContinuePrimaryKey(ctx, k, 1) },
			"primary key":        func() error { return c.ContinuePrimaryKey(ctx, 1, k) },
			"range":              func() error { return idb.Only(k).Err() },
			"use of a range":     func() error { _, err := s.Get(ctx, idb.LowerBound(k, true)); return err },
		} {
			is(t, name+": "+method, call(), idb.ErrData)
		}
	}
	for name, call := range map[string]func() error{
		"get": func() error { _, err := s.Get(ctx, nil); return err }, "getKey": func() error { _, err := s.GetKey(ctx, nil); return err },
		"index get": func() error { _, err := x.Get(ctx, nil); return err }, "delete": func() error { return s.Delete(ctx, nil) },
		"add": func() error { _, err := s.Add(ctx, "v", nil); return err },
	} {
		is(t, "no key: "+name, call(), idb.ErrData)
	}
	commit(t, s)
}

// TestKeyOrder: wpt keyorder, key_valid, objectstore_keyorder, idbfactory_cmp.
func TestKeyOrder(t *testing.T) {
	now := time.UnixMilli(1_700_000_000_000)
	date := func(d time.Duration) any { return now.Add(d) }
	for name, c := range map[string]struct{ unsorted, sorted []any }{
		"String < Array":                {[]any{[]any{0}, "yo", "", []any{}}, []any{"", "yo", []any{}, []any{0}}},
		"float < String":                {[]any{math.Inf(1), "yo", 0, "", 100}, []any{0, 100, math.Inf(1), "", "yo"}},
		"float < Date":                  {[]any{date(0), 0, math.MaxFloat64, date(-time.Second), 8e15}, []any{0, 8e15, math.MaxFloat64, date(-time.Second), date(0)}},
		"float < Date < String < Array": {[]any{[]any{}, "", date(0), []any{0}, "-1", 0, 9e12}, []any{0, 9e12, date(0), "", "-1", []any{}, []any{0}}},
		"Date < String < Binary":        {[]any{[]byte{1}, "0", []byte{}, date(0), "9"}, []any{date(0), "0", "9", []byte{}, []byte{1}}},
		"[0] < [0, 0]": {[]any{[]any{0, 0}, []any{0}, []any{"a"}, []any{0, ""}, []any{}, []any{[]any{}}},
			[]any{[]any{}, []any{0}, []any{0, 0}, []any{0, ""}, []any{"a"}, []any{[]any{}}}},
		"-Infinity and fractions": {[]any{0.5, -0.5, math.Inf(-1), 5e-324, -5e-324, 0}, []any{math.Inf(-1), -0.5, -5e-324, 0, 5e-324, 0.5}},
		"code units":              {[]any{"\uffff", "😀", "a\x00", "a"}, []any{"a", "a\x00", "😀", "\uffff"}},
	} {
		t.Run(name, func(t *testing.T) {
			var want []indexeddb.Key
			for _, k := range c.sorted {
				want = append(want, have[indexeddb.Key](t)(idb.Key(k)))
			}
			rows, db := opened(t, func(ctx context.Context, u *idb.Upgrade) {
				s := have[*idb.ObjectStore](t)(u.CreateObjectStore("store", nil))
				for _, k := range c.unsorted {
					have[indexeddb.Key](t)(s.Add(ctx, "value", k))
				}
			})
			s := begin(t, db, idb.ReadOnly, "store")
			got := have[[]indexeddb.Key](t)(s.GetAllKeys(t.Context(), nil, 0))
			wants(t, "Database readback sort", got, text(want))
			slices.Reverse(want)
			var back []indexeddb.Key
			for _, r := range have[[]*idb.Record](t)(s.GetAllRecords(t.Context(), nil, 0, idb.Prev)) {
				back = append(back, r.Key)
			}
			wants(t, "backwards", back, text(want))
			commit(t, s)
			clean(t, rows)
		})
	}
}

// TestKeyRange: wpt idbkeyrange, idbkeyrange_incorrect, idbkeyrange-includes.
func TestKeyRange(t *testing.T) {
	for name, c := range map[string]struct {
		r       idb.KeyRange
		in, out []any
	}{
		"a closed range":                       {idb.Bound(5, 20, false, false), []any{7, 5.01, 19.99, 5, 20}, []any{1, 42, 4.99, 20.01}},
		"an open range":                        {idb.Bound(5, 20, true, true), []any{7, 5.01, 19.99}, []any{1, 42, 5, 20}},
		"a lower-open upper-closed range":      {idb.Bound(5, 20, true, false), []any{7, 20}, []any{5, 20.01}},
		"a lower-closed upper-open range":      {idb.Bound(5, 20, false, true), []any{7, 5}, []any{20, 4.99}},
		"an only range":                        {idb.Only(42), []any{42}, []any{1, 9000, 41, 43}},
		"an closed lower-bounded range":        {idb.LowerBound(5, false), []any{5, 6, 42, "a"}, []any{4}},
		"an open lower-bounded range":          {idb.LowerBound(5, true), []any{6, 42, []any{}}, []any{4, 5}},
		"an closed upper-bounded range":        {idb.UpperBound(5, false), []any{-42, 4, 5}, []any{6, "a"}},
		"an open upper-bounded range":          {idb.UpperBound(5, true), []any{-42, 4}, []any{5, 6}},
		"non-numeric keys: dates":              {idb.Bound(time.Unix(0, 0), time.UnixMilli(1e11), false, false), []any{time.UnixMilli(1e10)}, []any{time.UnixMilli(1e11 + 1), 5}},
		"non-numeric keys: strings":            {idb.Bound("a", "c", false, false), []any{"b"}, []any{"d"}},
		"non-numeric keys: arrays":             {idb.Bound([]any{}, []any{[]any{}, []any{}}, false, false), []any{[]any{[]any{}}}, []any{[]any{[]any{[]any{}}}}},
		"the zero range":                       {idb.KeyRange{}, []any{5, "a", []any{}}, nil},
		"IDBKeyRange.only() of an equal bound": {idb.Bound("a", "a", false, false), []any{"a"}, []any{"b"}},
	} {
		must(t, c.r.Err())
		_, db := opened(t, func(ctx context.Context, u *idb.Upgrade) {
			s := have[*idb.ObjectStore](t)(u.CreateObjectStore("store", nil))
			for _, k := range append(slices.Clone(c.in), c.out...) {
				have[indexeddb.Key](t)(s.Add(ctx, 0.0, k))
			}
		})
		s := begin(t, db, idb.ReadOnly, "store")
		got := have[[]indexeddb.Key](t)(s.GetAllKeys(t.Context(), c.r, 0))
		if len(got) != len(c.in) {
			t.Errorf("%s: %v", name, got)
		}
		commit(t, s)
		for i, k := range append(slices.Clone(c.in), c.out...) {
			if c.r.Includes(have[indexeddb.Key](t)(idb.Key(k))) != (i < len(c.in)) {
				t.Errorf("%s: includes(%v) is wrong", name, k)
			}
		}
	}
	for name, r := range map[string]idb.KeyRange{
		"only(null)": idb.Only(nil), "only({})": idb.Only(object()), "only(true)": idb.Only(true), "lowerBound(null)": idb.LowerBound(nil, false),
		"upperBound(undefined)": idb.UpperBound(value.Undefined{}, true), "bound(null, null)": idb.Bound(nil, nil, false, false),
		"bound(1, null)": idb.Bound(1, nil, false, false), "bound(null, 1)": idb.Bound(nil, 1, false, false),
		"lower is greater than upper": idb.Bound("b", "a", false, false), "bound('a', 1)": idb.Bound("a", 1, false, false),
		"bound(new Date(), 1)": idb.Bound(time.Now(), 1, false, false), "bound([1, 2], 1)": idb.Bound([]any{1, 2}, 1, false, false),
		"bound(true, 1)": idb.Bound(true, 1, false, false), "bound(1, 1, true, false)": idb.Bound(1, 1, true, false), "bound(1, 1, false, true)": idb.Bound(1, 1, false, true),
	} {
		is(t, name, r.Err(), idb.ErrData)
		var e *idb.Error
		if !errors.As(r.Err(), &e) || e.Name != "DataError" {
			t.Errorf("%s: %v", name, r.Err())
		}
	}
}
