package idb_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"
	"testing"

	"github.com/ledgerd/ledger/indexeddb"
	"github.com/ledgerd/ledger/indexeddb/idb"
	"github.com/ledgerd/ledger/indexeddb/value"
	"github.com/ledgerd/ledger/internal/base"
)

// TestQueries: wpt idbobjectstore_get, _getKey, _getAll, _getAllKeys, _getAllRecords, _count, and
// the same of idbindex.
func TestQueries(t *testing.T) {
	ctx := t.Context()
	_, db := opened(t, func(ctx context.Context, u *idb.Upgrade) {
		s := have[*idb.ObjectStore](t)(u.CreateObjectStore("out-of-line", nil))
		have[*idb.Index](t)(s.CreateIndex(ctx, "test_idx", idb.Path("upper"), nil))
		for _, k := range "abcd" {
			have[indexeddb.Key](t)(s.Put(ctx, object("ch", string(k), "upper", strings.ToUpper(string(k))), string(k)))
		}
		have[indexeddb.Key](t)(s.Put(ctx, object("ch", "d2", "upper", "D"), "d2"))
		have[*idb.ObjectStore](t)(u.CreateObjectStore("empty", nil))
	})
	tx := have[*idb.Tx](t)(db.Begin(ctx, idb.ReadOnly, "out-of-line", "empty"))
	s, e := have[*idb.ObjectStore](t)(tx.ObjectStore("out-of-line")), have[*idb.ObjectStore](t)(tx.ObjectStore("empty"))
	x := have[*idb.Index](t)(s.Index("test_idx"))
	record := func(k string) string { return fmt.Sprintf("{ch:%s upper:%s}", k, strings.ToUpper(k[:1])) }
	for _, c := range []struct {
		name      string
		got, want any
	}{
		{"get: Key is a string", have[value.Value](t)(s.Get(ctx, "b")), record("b")},
		{"get: attempts to retrieve a record that does not exist", have[value.Value](t)(s.Get(ctx, "zz")), "<nil>"},
		{"get: Returns the record with the first key in the range", have[value.Value](t)(s.Get(ctx, idb.LowerBound("b", true))), record("c")},
		{"get: on empty object store", have[value.Value](t)(e.Get(ctx, idb.KeyRange{})), "<nil>"},
		{"getKey: basic key", have[indexeddb.Key](t)(s.GetKey(ctx, "b")), `"b"`},
		{"getKey: key range", have[indexeddb.Key](t)(s.GetKey(ctx, idb.LowerBound("bb", false))), `"c"`},
		{"getKey: no match", have[indexeddb.Key](t)(s.GetKey(ctx, "zz")), "no key"},
		{"getAll: Single item get", have[[]value.Value](t)(s.GetAll(ctx, "c", 0)), "[" + record("c") + "]"},
		{"getAll: on empty object store", have[[]value.Value](t)(e.GetAll(ctx, nil, 0)), "[]"},
		{"getAll: Test maxCount", have[[]value.Value](t)(s.GetAll(ctx, nil, 2)), "[" + record("a") + " " + record("b") + "]"},
		{"getAll: Get bound range with maxCount", have[[]value.Value](t)(s.GetAll(ctx, idb.Bound("b", "d", false, true), 9)), "[" + record("b") + " " + record("c") + "]"},
		{"getAll: Non existent key", have[[]value.Value](t)(s.GetAll(ctx, "zz", 0)), "[]"},
		{"getAll: Query with empty range where first key < upperBound", have[[]value.Value](t)(s.GetAll(ctx, idb.UpperBound("0", false), 0)), "[]"},
		{"getAll: Query with empty range where lowerBound < last key", have[[]value.Value](t)(s.GetAll(ctx, idb.LowerBound("zz", false), 0)), "[]"},
		{"getAllKeys: zero maxCount", have[[]indexeddb.Key](t)(s.GetAllKeys(ctx, nil, 0)), `["a" "b" "c" "d" "d2"]`},
		{"getAllRecords: Direction, query and count", have[[]*idb.Record](t)(s.GetAllRecords(ctx, idb.UpperBound("d", true), 2, idb.Prev)), `["c"/"c"/` + record("c") + ` "b"/"b"/` + record("b") + "]"},
		{"count: all", have[int64](t)(s.Count(ctx, nil)), "5"},
		{"count: within the range", have[int64](t)(s.Count(ctx, idb.Bound("b", "d", false, false))), "3"},
		{"count: with the key", have[int64](t)(s.Count(ctx, "a")), "1"},
		{"count: none", have[int64](t)(e.Count(ctx, nil)), "0"},
		{"index get: returns the record", have[value.Value](t)(x.Get(ctx, "B")), record("b")},
		{"index get: where the index contains duplicate values", have[value.Value](t)(x.Get(ctx, "D")), record("d")},
		{"index get: a record that does not exist", have[value.Value](t)(x.Get(ctx, "Z")), "<nil>"},
		{"index get: the first key in the range", have[value.Value](t)(x.Get(ctx, idb.Bound("AA", "CC", false, false))), record("b")},
		{"index getKey: of the first record within the range", have[indexeddb.Key](t)(x.GetKey(ctx, idb.LowerBound("BB", false))), `"c"`},
		{"index getKey: no match", have[indexeddb.Key](t)(x.GetKey(ctx, "Z")), "no key"},
		{"index getAll: Retrieve one key multiple values", have[[]value.Value](t)(x.GetAll(ctx, "D", 0)), "[" + record("d") + " " + record("d2") + "]"},
		{"index getAllKeys: maxCount", have[[]indexeddb.Key](t)(x.GetAllKeys(ctx, nil, 4)), `["a" "b" "c" "d"]`},
		{"index getAllRecords: nextunique", have[[]*idb.Record](t)(x.GetAllRecords(ctx, idb.LowerBound("C", false), 0, idb.NextUnique)), `["C"/"c"/` + record("c") + ` "D"/"d"/` + record("d") + "]"},
		{"index getAllRecords: prevunique", have[[]*idb.Record](t)(x.GetAllRecords(ctx, nil, 2, idb.PrevUnique)), `["D"/"d"/` + record("d") + ` "C"/"c"/` + record("c") + "]"},
		{"index count: records", have[int64](t)(x.Count(ctx, nil)), "5"},
		{"index count: with the key", have[int64](t)(x.Count(ctx, "D")), "2"},
	} {
		wants(t, c.name, c.got, c.want.(string))
	}
	_, err := s.GetAll(ctx, nil, -1)
	is(t, "enforcerange", err, idb.ErrType)
	commit(t, s)
}

// TestAddAndPut: wpt idbobjectstore_add, _put, and -add-put-exception-order.
func TestAddAndPut(t *testing.T) {
	ctx := t.Context()
	rows, db := opened(t, func(ctx context.Context, u *idb.Upgrade) {
		inline := have[*idb.ObjectStore](t)(u.CreateObjectStore("inline", &idb.StoreOptions{KeyPath: idb.Path("key")}))
		have[*idb.Index](t)(inline.CreateIndex(ctx, "unique", idb.Path("u"), &idb.IndexOptions{Unique: true}))
		have[*idb.ObjectStore](t)(u.CreateObjectStore("outline", nil))
		have[*idb.ObjectStore](t)(u.CreateObjectStore("generated", &idb.StoreOptions{AutoIncrement: true}))
	})
	tx := have[*idb.Tx](t)(db.Begin(ctx, idb.ReadWrite, "inline", "outline", "generated"))
	inline, outline, generated := have[*idb.ObjectStore](t)(tx.ObjectStore("inline")), have[*idb.ObjectStore](t)(tx.ObjectStore("outline")), have[*idb.ObjectStore](t)(tx.ObjectStore("generated"))
	for name, put := range map[string]func(*idb.ObjectStore, value.Value, any) (indexeddb.Key, error){
		"add": func(s *idb.ObjectStore, v value.Value, k any) (indexeddb.Key, error) { return s.Add(ctx, v, k) },
		"put": func(s *idb.ObjectStore, v value.Value, k any) (indexeddb.Key, error) { return s.Put(ctx, v, k) },
	} {
		for _, c := range []struct {
			name string
			s    *idb.ObjectStore
			v    value.Value
			k    any
			want error
		}{
			{"Attempt to use a key where the object store uses in-line keys", inline, object("key", 1), 1, idb.ErrData},
			{"Attempt to use no key where the object store uses out-of-line keys", outline, object("key", 1), nil, idb.ErrData},
			{"in-line key is invalid", inline, object("key", true), nil, idb.ErrData},
			{"in-line key is missing", inline, object("other", 1), nil, idb.ErrData},
			{"in-line key of what is no object", inline, 5.0, nil, idb.ErrData},
			{"out-of-line key is invalid", outline, 5.0, math.NaN(), idb.ErrData},
			{"value is none", outline, nil, 1, idb.ErrDataClone},
			{"value has what is none", outline, value.NewArray(make(chan int)), 1, idb.ErrDataClone},
			{"value refers to a blob that is not given", outline, &value.Blob{}, 1, idb.ErrDataClone},
			{"value is what stands for one elsewhere", outline, &value.Wrapped{}, 1, idb.ErrDataClone},
			{"autoIncrement and out-of-line keys", generated, 5.0, nil, nil},
			{"undefined", generated, value.Undefined{}, nil, nil},
		} {
			_, err := put(c.s, c.v, c.k)
			is(t, name+": "+c.name, err, c.want)
		}
	}
	wants(t, "add() with an inline key", have[indexeddb.Key](t)(inline.Add(ctx, object("key", 1, "u", "a"), nil)), "1")
	_, err := inline.Add(ctx, object("key", 1, "u", "b"), nil)
	is(t, "add() record with same key already exists", err, idb.ErrConstraint)
	is(t, "the same", err, base.ErrConflict)
	tx.PreventDefault()
	for name, v := range map[string]value.Value{"add": object("key", 2, "u", "a"), "put": object("key", 3, "u", "a")} {
		_, err := inline.Put(ctx, v, nil)
		is(t, name+"() where an index has unique:true specified", err, idb.ErrConstraint)
		tx.PreventDefault()
	}
	wants(t, "nothing of them is stored", have[[]indexeddb.Key](t)(inline.GetAllKeys(ctx, nil, 0)), "[1]")
	wants(t, "put() record with key already exists", have[indexeddb.Key](t)(inline.Put(ctx, object("key", 1, "u", "a", "new", 1), nil)), "1")
	have[indexeddb.Key](t)(inline.Put(ctx, object("key", 1, "u", "c"), nil))
	wants(t, "its old key in the unique index is free", have[indexeddb.Key](t)(inline.Put(ctx, object("key", 2, "u", "a"), nil)), "2")
	must(t, tx.Commit(ctx))
	clean(t, rows)
	s := begin(t, db, idb.ReadOnly, "outline")
	for name, call := range map[string]func() error{
		"add": func() error { _, err := s.Add(ctx, nil, nil); return err }, "put": func() error { _, err := s.Put(ctx, nil, nil); return err },
		"delete": func() error { return s.Delete(ctx, nil) }, "clear": func() error { return s.Clear(ctx) },
	} {
		is(t, name+": ReadOnlyError vs. DataError", call(), idb.ErrReadOnly)
		is(t, name+": ReadOnlyError", call(), base.ErrReadOnly)
		defer func() { is(t, name+": TransactionInactiveError vs. ReadOnlyError", call(), idb.ErrTransactionInactive) }()
	}
	commit(t, s)
}

// TestDeleteAndClear: wpt idbobjectstore_delete, _clear, delete-range.
func TestDeleteAndClear(t *testing.T) {
	ctx := t.Context()
	for name, c := range map[string]struct {
		query any
		want  string
	}{
		"delete(10)": {10, "[1 2 3 4 5 6 7 8 9]"}, "no record": {11, "[1 2 3 4 5 6 7 8 9 10]"}, "bound (closed)": {idb.Bound(3, 8, false, false), "[1 2 9 10]"},
		"lowerOpen": {idb.Bound(3, 8, true, false), "[1 2 3 9 10]"}, "upperOpen": {idb.Bound(3, 8, false, true), "[1 2 8 9 10]"},
		"open": {idb.Bound(3, 8, true, true), "[1 2 3 8 9 10]"}, "all": {idb.KeyRange{}, "[]"},
	} {
		rows, db := opened(t, func(ctx context.Context, u *idb.Upgrade) {
			s := have[*idb.ObjectStore](t)(u.CreateObjectStore("store", nil))
			have[*idb.Index](t)(s.CreateIndex(ctx, "index", idb.Path("i"), &idb.IndexOptions{MultiEntry: true}))
			for i := range 10 {
				have[indexeddb.Key](t)(s.Put(ctx, object("i", array(i, i%2, "x")), i+1))
			}
		})
		s := begin(t, db, idb.ReadWrite, "store")
		must(t, s.Delete(ctx, c.query))
		wants(t, name, have[[]indexeddb.Key](t)(s.GetAllKeys(ctx, nil, 0)), c.want)
		commit(t, s)
		clean(t, rows)
		s = begin(t, db, idb.ReadWrite, "store")
		must(t, s.Clear(ctx))
		x := have[*idb.Index](t)(s.Index("index"))
		wants(t, "Clear removes all records from an index", have[int64](t)(x.Count(ctx, nil)), "0")
		commit(t, s)
		if r := clean(t, rows); r.Records+r.IndexRows != 0 {
			t.Errorf("%+v", r)
		}
	}
}

// TestMultiEntry: wpt idbindex-multientry.
func TestMultiEntry(t *testing.T) {
	ctx := t.Context()
	many := []any{}
	for i := range 1000 {
		many = append(many, fmt.Sprint("index_no_", i))
	}
	rows, db := opened(t, func(ctx context.Context, u *idb.Upgrade) {
		s := have[*idb.ObjectStore](t)(u.CreateObjectStore("store", nil))
		x := have[*idb.Index](t)(s.CreateIndex(ctx, "actors", idb.Path("name"), &idb.IndexOptions{MultiEntry: true}))
		if !x.MultiEntry() || x.Unique() {
			t.Error("index")
		}
		_, err := s.CreateIndex(ctx, "both", idb.Paths("name"), &idb.IndexOptions{MultiEntry: true})
		is(t, "Array keyPath with multiEntry", err, idb.ErrInvalidAccess)
		for i, name := range []any{"Odin", array("Rita", "Scheeta", object("Bobby", "Bobby"), "Rita"), array(object("s", "Robert"), "Neil", "Bobby"), array(), array(many...)} {
			have[indexeddb.Key](t)(s.Add(ctx, object("name", name), i+1))
		}
	})
	s := begin(t, db, idb.ReadWrite, "store")
	x := have[*idb.Index](t)(s.Index("actors"))
	got := ""
	for _, name := range []string{"Odin", "Rita", "Scheeta", "Neil", "Bobby", "index_no_0", "index_no_999"} {
		got += have[indexeddb.Key](t)(x.GetKey(ctx, name)).String()
	}
	wants(t, "Adding keys", got, "1223355")
	wants(t, "A 1000 entry multiEntry array", have[int64](t)(x.Count(ctx, nil)), "1005")
	have[indexeddb.Key](t)(s.Put(ctx, object("name", array("Rita", "Odin")), 2))
	wants(t, "changed", have[[]indexeddb.Key](t)(x.GetAllKeys(ctx, idb.UpperBound("S", false), 0)), "[3 3 1 2 2]")
	sparse := &value.Array{Length: 9, Properties: value.Properties{{Name: "1", Value: "first"}, {Name: "7", Value: "last"}, {Name: "x", Value: "none"}}}
	inner := &value.Array{Length: 2, Elements: []value.Value{"Rita", "Odin"}, Sparse: true} // as V8 writes it when a script has read it
	read := &value.Array{Length: 2, Elements: []value.Value{"Rita", inner}, Sparse: true}
	have[indexeddb.Key](t)(s.Put(ctx, object("name", sparse), 7))
	have[indexeddb.Key](t)(s.Put(ctx, object("name", read), 8))
	got = ""
	for _, key := range []any{"first", "last", "none", "Rita", []any{"Rita", "Odin"}} {
		got += fmt.Sprint(have[[]indexeddb.Key](t)(x.GetAllKeys(ctx, key, 0)))
	}
	wants(t, "sparse arrays", got, "[7][7][][2 8][8]")
	commit(t, s)
	clean(t, rows)
}

// TestUniqueMultiEntry: a record may have a key twice, and two records may not.
func TestUniqueMultiEntry(t *testing.T) {
	ctx := t.Context()
	rows, db := opened(t, func(ctx context.Context, u *idb.Upgrade) {
		s := have[*idb.ObjectStore](t)(u.CreateObjectStore("store", nil))
		have[*idb.Index](t)(s.CreateIndex(ctx, "index", idb.Path(""), &idb.IndexOptions{MultiEntry: true, Unique: true}))
	})
	s := begin(t, db, idb.ReadWrite, "store")
	have[indexeddb.Key](t)(s.Put(ctx, array("a", "a", "b"), 1))
	_, err := s.Put(ctx, array("c", "b"), 2)
	is(t, "put", err, idb.ErrConstraint)
	s.Tx().PreventDefault()
	have[indexeddb.Key](t)(s.Put(ctx, array("b"), 1))
	have[indexeddb.Key](t)(s.Put(ctx, array("c", "a"), 2))
	commit(t, s)
	clean(t, rows)
}

// TestStructuredClone: wpt structured-clone, value, value_recursive, bigint_value, nested-cloning.
func TestStructuredClone(t *testing.T) {
	ctx := t.Context()
	cycle := &value.Object{}
	cycle.Set("self", cycle)
	shared := &value.Buffer{Bytes: []byte{1, 2, 3, 4}, MaxLength: -1}
	long := object("text", strings.Repeat("long", 40_000), "buffer", &value.Buffer{Bytes: make([]byte, 200_000), MaxLength: -1})
	values := map[string]value.Value{
		"undefined": value.Undefined{}, "null": value.Null{}, "true": true, "-0": math.Copysign(0, -1), "NaN": math.NaN(), "Infinity": math.Inf(1),
		"Number.MAX_SAFE_INTEGER": float64(1<<53 - 1), "0x1fffffffffffffn": big.NewInt(1 << 60), "-12345678901234567890n": new(big.Int).Neg(new(big.Int).Lsh(big.NewInt(1), 100)),
		"": "", "this is a sample string": "this is a sample string", "null\x00": "null\x00", "lone surrogate": "\xed\xa0\x80", "new Boolean(false)": &value.Boxed{Value: false},
		"new Date(2015, 5, 2)": &value.Date{Milliseconds: 1.4332e12}, "new Date(NaN)": &value.Date{Milliseconds: math.NaN()},
		"/abc/gi": &value.RegExp{Pattern: "abc", Flags: "gi"}, "[]": array(), "sparse": &value.Array{Length: 1000, Properties: value.Properties{{Name: "12", Value: 1.0}}},
		"new Map()": &value.Map{Entries: [][2]value.Value{{1.0, "a"}, {object(), value.Null{}}}}, "new Set()": &value.Set{Elements: []value.Value{"a", 2.0}},
		"ArrayBuffer": shared, "Uint8Array": &value.View{Kind: "Uint8Array", Buffer: shared, Offset: 1, Length: 2},
		"TypeError": &value.Error{Name: "TypeError", Message: "message"}, "DOMRect": &value.Shape{Kind: "DOMRect", Numbers: []float64{1, 2, 3, 4}},
		"ImageData": &value.ImageData{Width: 1, Height: 1, Bytes: []byte{0, 1, 2, 3}}, "recursive": cycle, "nested cloning, large": long,
		"nested cloning, large multiple": array(long, object("again", long)),
	}
	rows, db := opened(t, func(_ context.Context, u *idb.Upgrade) {
		have[*idb.ObjectStore](t)(u.CreateObjectStore("store", nil))
	})
	s := begin(t, db, idb.ReadWrite, "store")
	for name, v := range values {
		have[indexeddb.Key](t)(s.Put(ctx, v, name))
	}
	commit(t, s)
	clean(t, rows)
	s = begin(t, db, idb.ReadOnly, "store")
	for name, v := range values {
		want, got := have[[]byte](t)(value.Encode(v)), have[[]byte](t)(value.Encode(have[value.Value](t)(s.Get(ctx, name))))
		if string(got) != string(want) {
			t.Errorf("%.40s: %.100x, want %.100x", name, got, want)
		}
		rec := have[*idb.Record](t)(s.Record(ctx, name))
		if len(rec.Objects) > 0 {
			t.Errorf("%.40s: objects %v", name, rec.Objects)
		}
	}
	again := have[value.Value](t)(s.Get(ctx, "recursive")).(*value.Object)
	if self, _ := again.Get("self"); self != again {
		t.Error("a cycle is none any more")
	}
	commit(t, s)
	// What is long stands in an external object, which goes with the record.
	s = begin(t, db, idb.ReadWrite, "store")
	have[indexeddb.Key](t)(s.Put(ctx, "short", "nested cloning, large"))
	must(t, s.Delete(ctx, "nested cloning, large multiple"))
	commit(t, s)
	if r := clean(t, rows); r.Blobs != 0 {
		t.Errorf("%+v", r)
	}
}

// TestLongKeys: keys that do not fit into keys of rows are kept whole.
func TestLongKeys(t *testing.T) {
	ctx := t.Context()
	long := strings.Repeat("k", 5000)
	rows, db := opened(t, func(ctx context.Context, u *idb.Upgrade) {
		s := have[*idb.ObjectStore](t)(u.CreateObjectStore("store", nil))
		have[*idb.Index](t)(s.CreateIndex(ctx, "index", idb.Path(""), nil))
		have[*idb.Index](t)(s.CreateIndex(ctx, "unique", idb.Path(""), &idb.IndexOptions{Unique: true}))
	})
	s := begin(t, db, idb.ReadWrite, "store")
	for i := range 4 {
		have[indexeddb.Key](t)(s.Put(ctx, fmt.Sprint(long, "v", i), fmt.Sprint(long, i)))
	}
	have[indexeddb.Key](t)(s.Put(ctx, "short", "a"))
	have[indexeddb.Key](t)(s.Put(ctx, "behind", "l"))
	_, err := s.Put(ctx, long+"v1", "other")
	is(t, "unique", err, idb.ErrConstraint)
	s.Tx().PreventDefault()
	x := have[*idb.Index](t)(s.Index("index"))
	for i := range 4 {
		k := fmt.Sprint(long, i)
		wants(t, "get", have[value.Value](t)(s.Get(ctx, k)), fmt.Sprint(long, "v", i))
		wants(t, "key", have[indexeddb.Key](t)(s.GetKey(ctx, k)), fmt.Sprintf("%q", k))
		wants(t, "index", have[indexeddb.Key](t)(x.GetKey(ctx, fmt.Sprint(long, "v", i))), fmt.Sprintf("%q", k))
		wants(t, "range", have[int64](t)(s.Count(ctx, idb.Bound(fmt.Sprint(long, i), "l", true, true))), fmt.Sprint(3-i))
		wants(t, "range", have[int64](t)(s.Count(ctx, idb.UpperBound(k, false))), fmt.Sprint(i+2))
	}
	c := have[*idb.Cursor](t)(s.OpenCursor(ctx, nil, idb.Next))
	must(t, c.Continue(ctx, long+"2"))
	n := 0
	for ; !c.Done() && c.Key().Text() != "l"; n++ {
		must(t, c.Continue(ctx, nil))
	}
	c.Close()
	wants(t, "continue", n, "2")
	must(t, s.Delete(ctx, long+"3"))
	wants(t, "count", have[int64](t)(x.Count(ctx, nil)), "5")
	commit(t, s)
	clean(t, rows)
}

// TestOpaque: a record whose value is of a form that is not known can be replaced and deleted, and
// its index rows with it.
func TestOpaque(t *testing.T) {
	ctx := t.Context()
	rows, db := opened(t, func(ctx context.Context, u *idb.Upgrade) {
		s := have[*idb.ObjectStore](t)(u.CreateObjectStore("store", nil))
		have[*idb.Index](t)(s.CreateIndex(ctx, "index", idb.Path("i"), nil))
		for k := range 3 {
			have[indexeddb.Key](t)(s.Put(ctx, object("i", k), k))
		}
	})
	w := have[idb.RowsTx](t)(rows.Begin(ctx))
	for k := range 2 {
		key, v := indexeddb.PageRow(indexeddb.Row{Kind: indexeddb.KindRecord, Database: 1, Store: 1, Primary: have[indexeddb.Key](t)(idb.Key(k))},
			indexeddb.AppendRecord(nil, 9, []byte("\xff\x15\xfe\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\xff\x10\\K\x01")))
		must(t, w.Put(ctx, key, v))
	}
	must(t, w.Commit(ctx))
	s := begin(t, db, idb.ReadWrite, "store")
	_, err := s.Get(ctx, 0)
	is(t, "get", err, idb.ErrDataClone)
	is(t, "get", err, base.ErrUnsupported)
	s.Tx().PreventDefault()
	c := have[*idb.Cursor](t)(have[*idb.Index](t)(s.Index("index")).OpenCursor(ctx, 1, idb.Next))
	if b := have[[]byte](t)(c.Serialized(ctx)); !bytes.HasSuffix(b, []byte("\\K\x01")) {
		t.Errorf("the cursor has the bytes %x", b)
	}
	c.Close()
	have[indexeddb.Key](t)(s.Put(ctx, object("i", "new"), 0))
	must(t, s.Delete(ctx, 1))
	x := have[*idb.Index](t)(s.Index("index"))
	wants(t, "index", have[[]*idb.Record](t)(x.GetAllRecords(ctx, nil, 0, idb.Next)), `[2/2/{i:2} "new"/0/{i:new}]`)
	commit(t, s)
	clean(t, rows)
}

// TestErrors: an error knows its name, its sentinel and its cause.
func TestErrors(t *testing.T) {
	_, err := idb.Key(nil)
	var e *idb.Error
	if !errors.As(err, &e) || e.Name != "DataError" || !errors.Is(err, idb.ErrData) || !errors.Is(err, base.ErrInvalid) || errors.Is(err, idb.ErrConstraint) {
		t.Error(err)
	}
	if s := err.Error(); s != "make a key: DataError: a value of the type <nil> that is no key" {
		t.Error(s)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, db := opened(t, func(_ context.Context, u *idb.Upgrade) {
		have[*idb.ObjectStore](t)(u.CreateObjectStore("store", nil))
	})
	s := begin(t, db, idb.ReadWrite, "store")
	have[indexeddb.Key](t)(s.Put(ctx, 1.0, 1))
	cancel()
	_, err = s.Get(ctx, 1)
	is(t, "get", err, idb.ErrUnknown)
	is(t, "get", err, context.Canceled)
	is(t, "commit", s.Tx().Commit(t.Context()), idb.ErrAbort)
}
