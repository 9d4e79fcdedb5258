package idb_test

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/ledgerd/ledger/indexeddb"
	"github.com/ledgerd/ledger/indexeddb/idb"
	"github.com/ledgerd/ledger/indexeddb/value"
)

var directions = map[string]idb.Direction{"next": idb.Next, "prev": idb.Prev, "nextunique": idb.NextUnique, "prevunique": idb.PrevUnique}

// TestCursorDirection: wpt idbcursor-direction-index, -objectstore, and both with keyrange.
func TestCursorDirection(t *testing.T) {
	names := []any{1337, "Alice", "Bob", "Bob", "Greg", "Åke", []any{"Anne"}}
	_, db := opened(t, func(ctx context.Context, u *idb.Upgrade) {
		s := have[*idb.ObjectStore](t)(u.CreateObjectStore("store", nil))
		have[*idb.Index](t)(s.CreateIndex(ctx, "idx", idb.Path("name"), nil))
		for i, name := range names {
			have[indexeddb.Key](t)(s.Add(ctx, object("name", js(name)), i))
		}
	})
	s := begin(t, db, idb.ReadOnly, "store")
	x := have[*idb.Index](t)(s.Index("idx"))
	ag := idb.Bound("AA", "ZZ", false, false)
	for _, c := range []struct {
		name, d string
		query   any
		want    []string
	}{
		{"index", "next", nil, []string{`1337:0`, `"Alice":1`, `"Bob":2`, `"Bob":3`, `"Greg":4`, `"Åke":5`, `["Anne"]:6`}},
		{"index", "prev", nil, []string{`["Anne"]:6`, `"Åke":5`, `"Greg":4`, `"Bob":3`, `"Bob":2`, `"Alice":1`, `1337:0`}},
		{"index", "nextunique", nil, []string{`1337:0`, `"Alice":1`, `"Bob":2`, `"Greg":4`, `"Åke":5`, `["Anne"]:6`}},
		{"index", "prevunique", nil, []string{`["Anne"]:6`, `"Åke":5`, `"Greg":4`, `"Bob":2`, `"Alice":1`, `1337:0`}},
		{"index with keyrange", "next", ag, []string{`"Alice":1`, `"Bob":2`, `"Bob":3`, `"Greg":4`}},
		{"index with keyrange", "prev", ag, []string{`"Greg":4`, `"Bob":3`, `"Bob":2`, `"Alice":1`}},
		{"index with keyrange", "nextunique", ag, []string{`"Alice":1`, `"Bob":2`, `"Greg":4`}},
		{"index with keyrange", "prevunique", ag, []string{`"Greg":4`, `"Bob":2`, `"Alice":1`}},
		{"index with one key", "prevunique", "Bob", []string{`"Bob":2`}},
		{"index with one key", "prev", "Bob", []string{`"Bob":3`, `"Bob":2`}},
		{"index with an open range", "prevunique", idb.Bound("Alice", "Greg", true, true), []string{`"Bob":2`}},
		{"index with nothing", "next", "Carl", nil},
	} {
		for name, open := range map[string]func(context.Context, any, idb.Direction) (*idb.Cursor, error){"openCursor": x.OpenCursor, "openKeyCursor": x.OpenKeyCursor} {
			cursor, err := open(t.Context(), c.query, directions[c.d])
			equal(t, fmt.Sprintf("%s, %s - %s", name, c.name, c.d), walk(t, cursor, err), c.want)
		}
	}
	for name, d := range directions {
		want := []string{"2:2", "3:3", "4:4"}
		if d == idb.Prev || d == idb.PrevUnique {
			slices.Reverse(want)
		}
		for what, open := range map[string]func(context.Context, any, idb.Direction) (*idb.Cursor, error){"openCursor": s.OpenCursor, "openKeyCursor": s.OpenKeyCursor} {
			cursor, err := open(t.Context(), idb.Bound(1, 4, true, false), d)
			equal(t, what+", object store with keyrange - "+name, walk(t, cursor, err), want)
		}
	}
	_, err := s.OpenCursor(t.Context(), nil, 4)
	is(t, "IDBObjectStore.openCursor() - invalid", err, idb.ErrType)
	commit(t, s)
}

// breeds are the records of wpt idbcursor-advance and idbcursor-continue.
func breeds(t *testing.T) *idb.DB {
	_, db := opened(t, func(ctx context.Context, u *idb.Upgrade) {
		s := have[*idb.ObjectStore](t)(u.CreateObjectStore("test", &idb.StoreOptions{AutoIncrement: true}))
		have[*idb.Index](t)(s.CreateIndex(ctx, "index", idb.Path(""), nil))
		for _, v := range []string{"cupcake", "pancake", "pie", "pie", "taco"} {
			have[indexeddb.Key](t)(s.Put(ctx, v, nil))
		}
	})
	return db
}

// TestCursorMoves: wpt idbcursor-advance and idbcursor-continue, idbcursor_advance_* and
// idbcursor_continue_*.
func TestCursorMoves(t *testing.T) {
	db := breeds(t)
	s := begin(t, db, idb.ReadOnly, "test")
	x := have[*idb.Index](t)(s.Index("index"))
	ctx := t.Context()
	advance := func(n int64) func(*idb.Cursor) error { return func(c *idb.Cursor) error { return c.Advance(ctx, n) } }
	to := func(k any) func(*idb.Cursor) error { return func(c *idb.Cursor) error { return c.Continue(ctx, k) } }
	type moves []func(*idb.Cursor) error
	for _, c := range []struct {
		name  string
		query any
		d     idb.Direction
		moves moves
		want  string // where it stands then
	}{
		{"advances", nil, idb.Next, moves{advance(2)}, `"pie":3`},
		{"advances", nil, idb.Next, moves{advance(2), advance(1)}, `"pie":4`},
		{"advances backwards", nil, idb.Prev, moves{advance(2), advance(2)}, `"cupcake":1`},
		{"skip far forward", nil, idb.Next, moves{advance(1<<32 - 1)}, ""},
		{"within range", idb.Bound("cupcake", "pancake", true, false), idb.Next, moves{advance(1)}, ""},
		{"within single key range", "pancake", idb.Next, moves{advance(1)}, ""},
		{"within single key range, with several results", "pie", idb.Next, moves{advance(1)}, `"pie":4`},
		{"advance, nextunique", nil, idb.NextUnique, moves{advance(3)}, `"taco":5`},
		{"advance, prevunique", nil, idb.PrevUnique, moves{advance(1)}, `"pie":3`},
		{"continues", nil, idb.Next, moves{to(nil)}, `"pancake":2`},
		{"with given key", nil, idb.Next, moves{to("pie")}, `"pie":3`},
		{"with given key that is not there", nil, idb.Next, moves{to("q")}, `"taco":5`},
		{"with given key, prev", nil, idb.Prev, moves{to("pie")}, `"pie":4`},
		{"with given key, prevunique", nil, idb.PrevUnique, moves{to("pie")}, `"pie":3`},
		{"with given key, nextunique", nil, idb.NextUnique, moves{to("pie"), to(nil)}, `"taco":5`},
		{"with given key that is not there, prev", nil, idb.Prev, moves{to("q")}, `"pie":4`},
		{"skip far forward", nil, idb.Next, moves{to([]any{})}, ""},
		{"skip far backward", nil, idb.Prev, moves{to(0)}, ""},
		{"within range", idb.LowerBound("cupcake", true), idb.Next, moves{to("pie"), to("taco"), to(nil)}, ""},
		{"continue out of the range", idb.UpperBound("pie", false), idb.Next, moves{to("taco")}, ""},
		{"continue to the open bound", idb.UpperBound("taco", true), idb.Next, moves{to("pie"), to("taco")}, ""},
		{"continue to the open bound, prev", idb.LowerBound("cupcake", true), idb.Prev, moves{to("pie"), to("cupcake")}, ""},
		{"continue out of the range, prev", idb.LowerBound("pancake", true), idb.Prev, moves{to("pancake")}, ""},
		{"within single key range, with several results", "pie", idb.Next, moves{to(nil), to(nil)}, ""},
	} {
		cursor, err := x.OpenCursor(ctx, c.query, c.d)
		must(t, err)
		for _, move := range c.moves {
			must(t, move(cursor))
		}
		got := ""
		if !cursor.Done() {
			got = fmt.Sprintf("%v:%v", cursor.Key(), cursor.PrimaryKey())
			wants(t, c.name, have[value.Value](t)(cursor.Value(ctx)), cursor.Key().Text())
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		cursor.Close()
	}
	for _, c := range []struct {
		name string
		d    idb.Direction
		move func(*idb.Cursor) error
		want error
	}{
		{"Calling advance() with count argument 0 should throw TypeError.", idb.Next, advance(0), idb.ErrType},
		{"advance() - invalid - pass negative numbers", idb.Next, advance(-1), idb.ErrType},
		{"Attempt to iterate to the previous record when the direction is set for the next record", idb.Next, to("a"), idb.ErrData},
		{"Attempt to iterate to the same record", idb.Next, to("cupcake"), idb.ErrData},
		{"Attempt to iterate to the next record when the direction is set for the previous record", idb.Prev, to("z"), idb.ErrData},
		{"Attempt to pass a key parameter that is not a valid key", idb.Next, to(value.Undefined{}), idb.ErrData},
	} {
		cursor := have[*idb.Cursor](t)(x.OpenCursor(ctx, nil, c.d))
		at := cursor.PrimaryKey()
		is(t, c.name, c.move(cursor), c.want)
		if cursor.PrimaryKey() != at || cursor.Done() {
			t.Errorf("%s: the cursor has moved", c.name)
		}
		cursor.Close()
	}
	commit(t, s)
}

// TestContinuePrimaryKey: wpt idbcursor-continuePrimaryKey and -exceptions.
func TestContinuePrimaryKey(t *testing.T) {
	_, db := opened(t, func(ctx context.Context, u *idb.Upgrade) {
		s := have[*idb.ObjectStore](t)(u.CreateObjectStore("store", nil))
		have[*idb.Index](t)(s.CreateIndex(ctx, "index", idb.Path("indexKey"), &idb.IndexOptions{MultiEntry: true}))
		for i, keys := range [][]any{{"a", "b"}, {"a", "b"}, {"a", "b"}, {"b"}} {
			have[indexeddb.Key](t)(s.Put(ctx, object("indexKey", array(keys...)), i+1))
		}
	})
	s := begin(t, db, idb.ReadOnly, "store")
	x := have[*idb.Index](t)(s.Index("index"))
	all := []string{`"a":1`, `"a":2`, `"a":3`, `"b":1`, `"b":2`, `"b":3`, `"b":4`}
	c, err := x.OpenCursor(t.Context(), nil, idb.Next)
	equal(t, "The index entry keys should reflect the object store contents", walk(t, c, err), all)
	for _, c := range []struct {
		d            idb.Direction
		key, primary any
		want         string
	}{
		{idb.Next, "a", 3, `"a":3`}, {idb.Next, "a", 4, `"b":1`}, {idb.Next, "b", 1, `"b":1`}, {idb.Next, "b", 4, `"b":4`}, {idb.Next, "b", 5, ""},
		{idb.Next, "c", 1, ""}, {idb.Next, nil, 1, "DataError"}, {idb.Next, "a", nil, "DataError"}, {idb.Next, "a", 1, "DataError"},
		{idb.Next, "a", 0, "DataError"}, {idb.Next, "0", 9, "DataError"},
		{idb.Prev, "b", 3, `"b":3`}, {idb.Prev, "b", 0, `"a":3`}, {idb.Prev, "a", 9, `"a":3`}, {idb.Prev, "a", 1, `"a":1`}, {idb.Prev, "a", 0, ""},
		{idb.Prev, "b", 4, "DataError"}, {idb.Prev, "b", 5, "DataError"}, {idb.Prev, "c", 1, "DataError"},
		{idb.NextUnique, "b", 1, "InvalidAccessError"}, {idb.PrevUnique, "a", 1, "InvalidAccessError"},
	} {
		cursor := have[*idb.Cursor](t)(x.OpenCursor(t.Context(), nil, c.d))
		err := cursor.ContinuePrimaryKey(t.Context(), c.key, c.primary)
		got := ""
		switch {
		case err != nil:
			got = err.(*idb.Error).Name
		case !cursor.Done():
			got = fmt.Sprintf("%v:%v", cursor.Key(), cursor.PrimaryKey())
		}
		if got != c.want {
			t.Errorf("%v %v %v: %s, want %s", c.d, c.key, c.primary, got, c.want)
		}
		cursor.Close()
	}
	cursor := have[*idb.Cursor](t)(s.OpenCursor(t.Context(), nil, idb.Next))
	is(t, "IDBCursor continuePrimaryKey() on object store cursor", cursor.ContinuePrimaryKey(t.Context(), 2, 2), idb.ErrInvalidAccess)
	cursor.Close()
	commit(t, s)
}

// TestCursorExceptionOrder: wpt idbcursor-*-exception-order.
func TestCursorExceptionOrder(t *testing.T) {
	ctx := t.Context()
	fill := func(u *idb.Upgrade) *idb.ObjectStore {
		s := have[*idb.ObjectStore](t)(u.CreateObjectStore("test", &idb.StoreOptions{KeyPath: idb.Path("pKey")}))
		have[*idb.Index](t)(s.CreateIndex(ctx, "idx", idb.Path("iKey"), nil))
		for i := range 3 {
			have[indexeddb.Key](t)(s.Add(ctx, object("iKey", "A", "pKey", i), nil))
		}
		return s
	}
	calls := map[string]func(*idb.Cursor) error{
		"advance": func(c *idb.Cursor) error { return c.Advance(ctx, 1) }, "continue": func(c *idb.Cursor) error { return c.Continue(ctx, -1) },
		"continuePrimaryKey": func(c *idb.Cursor) error { return c.ContinuePrimaryKey(ctx, nil, nil) },
		"update":             func(c *idb.Cursor) error { _, err := c.Update(ctx, nil); return err }, "delete": func(c *idb.Cursor) error { return c.Delete(ctx) },
	}
	for name, call := range calls {
		inUpgrade(t, func(ctx context.Context, u *idb.Upgrade) {
			s := fill(u)
			x := have[*idb.Index](t)(s.Index("idx"))
			c := have[*idb.Cursor](t)(x.OpenCursor(ctx, nil, idb.NextUnique))
			defer c.Close()
			must(t, s.DeleteIndex(ctx, "idx"))
			is(t, name+": InvalidStateError(deleted source) v.s. others", call(c), idb.ErrInvalidState)
			of := have[*idb.Cursor](t)(s.OpenCursor(ctx, nil, idb.Next))
			defer of.Close()
			must(t, u.DeleteObjectStore(ctx, "test"))
			is(t, name+": InvalidStateError(deleted object store)", call(of), idb.ErrInvalidState)
			must(t, u.Abort())
			is(t, name+": TransactionInactiveError v.s. InvalidStateError", call(c), idb.ErrTransactionInactive)
		})
		_, db := opened(t, func(_ context.Context, u *idb.Upgrade) { fill(u) })
		s := begin(t, db, idb.ReadOnly, "test")
		c := have[*idb.Cursor](t)(s.OpenCursor(ctx, nil, idb.Next))
		if name == "update" || name == "delete" {
			is(t, name+": ReadOnlyError", call(c), idb.ErrReadOnly)
		}
		must(t, c.Advance(ctx, 9))
		want := idb.ErrInvalidState
		switch name {
		case "update", "delete":
			want = idb.ErrReadOnly
		case "continuePrimaryKey":
			want = idb.ErrInvalidAccess
		}
		is(t, name+": behind the last", call(c), want)
		commit(t, s)
		is(t, name+": TransactionInactiveError", call(c), idb.ErrTransactionInactive)
	}
	_, db := opened(t, func(_ context.Context, u *idb.Upgrade) { fill(u) })
	s := begin(t, db, idb.ReadWrite, "test")
	c := have[*idb.Cursor](t)(s.OpenKeyCursor(ctx, nil, idb.Next))
	is(t, "update of a key cursor", calls["update"](c), idb.ErrInvalidState)
	is(t, "delete of a key cursor", calls["delete"](c), idb.ErrInvalidState)
	_, err := c.Value(ctx)
	is(t, "value of a key cursor", err, idb.ErrInvalidState)
	c.Close()
	is(t, "advance: TypeError vs. others", c.Advance(ctx, 0), idb.ErrType)
	commit(t, s)
}

// TestCursorUpdateAndDelete: wpt idbcursor_update_*, idbcursor_delete_*,
// idbcursor-iterating-update, idbcursor_iterating.
func TestCursorUpdateAndDelete(t *testing.T) {
	ctx := t.Context()
	rows, db := opened(t, func(ctx context.Context, u *idb.Upgrade) {
		s := have[*idb.ObjectStore](t)(u.CreateObjectStore("test", &idb.StoreOptions{KeyPath: idb.Path("pKey")}))
		have[*idb.Index](t)(s.CreateIndex(ctx, "index", idb.Path("iKey"), nil))
		for i := range 4 {
			have[indexeddb.Key](t)(s.Add(ctx, object("pKey", fmt.Sprint("primaryKey_", i), "iKey", fmt.Sprint("indexKey_", i)), nil))
		}
	})
	s := begin(t, db, idb.ReadWrite, "test")
	x := have[*idb.Index](t)(s.Index("index"))
	c := have[*idb.Cursor](t)(x.OpenCursor(ctx, nil, idb.Next))
	for name, v := range map[string]value.Value{"another key": object("pKey", "other"), "no key": object("iKey", 1), "no valid key": object("pKey", true)} {
		_, err := c.Update(ctx, v)
		is(t, "Throw DataError: "+name, err, idb.ErrData)
	}
	_, err := c.Update(ctx, object("pKey", "primaryKey_0", "bad", 1.0, "worse", struct{}{}))
	is(t, "Throw DataCloneError", err, idb.ErrDataClone)
	k := have[indexeddb.Key](t)(c.Update(ctx, object("pKey", "primaryKey_0", "iKey", "indexKey_0", "New", "information!")))
	wants(t, "Modify a record in the object store", k, `"primaryKey_0"`)
	wants(t, "get", have[value.Value](t)(s.Get(ctx, "primaryKey_0")), "{pKey:primaryKey_0 iKey:indexKey_0 New:information!}")
	must(t, c.Continue(ctx, nil))
	must(t, c.Delete(ctx))
	wants(t, "Remove a record from the object store", have[int64](t)(s.Count(ctx, nil)), "3")
	must(t, c.Delete(ctx)) // there is none any more
	must(t, c.Continue(ctx, nil))
	wants(t, "behind it", c.Key(), `"indexKey_2"`)
	// Its new key is ahead, so that it comes again; the next one is deleted, and a new one added.
	have[indexeddb.Key](t)(c.Update(ctx, object("pKey", "primaryKey_2", "iKey", "indexKey_5")))
	must(t, s.Delete(ctx, "primaryKey_3"))
	have[indexeddb.Key](t)(s.Add(ctx, object("pKey", "primaryKey_4", "iKey", "indexKey_4"), nil))
	must(t, c.Continue(ctx, nil))
	wants(t, "Delete next element, add next element, and iterate to it", c.Key(), `"indexKey_4"`)
	must(t, c.Continue(ctx, nil))
	wants(t, "an updated record ahead", c.PrimaryKey(), `"primaryKey_2"`)
	must(t, c.Continue(ctx, nil))
	if !c.Done() {
		t.Error("not done")
	}
	commit(t, s)
	clean(t, rows)
	s = begin(t, db, idb.ReadWrite, "test")
	c = have[*idb.Cursor](t)(s.OpenCursor(ctx, nil, idb.Prev))
	for !c.Done() {
		must(t, c.Delete(ctx))
		must(t, c.Continue(ctx, nil))
	}
	wants(t, "Iterate and Delete elements", have[int64](t)(s.Count(ctx, nil)), "0")
	commit(t, s)
	if r := clean(t, rows); r.Records+r.IndexRows != 0 {
		t.Errorf("%+v", r)
	}
}

// TestReverseCursorSeesUpdate: wpt idbindex_reverse_cursor, idbindex_tombstones.
func TestReverseCursorSeesUpdate(t *testing.T) {
	ctx := t.Context()
	_, db := opened(t, func(ctx context.Context, u *idb.Upgrade) {
		s := have[*idb.ObjectStore](t)(u.CreateObjectStore("store", &idb.StoreOptions{KeyPath: idb.Path("key")}))
		have[*idb.Index](t)(s.CreateIndex(ctx, "index", idb.Path("indexedOn"), nil))
		have[indexeddb.Key](t)(s.Add(ctx, object("key", "1", "indexedOn", 2), nil))
		have[indexeddb.Key](t)(s.Put(ctx, object("key", "1", "indexedOn", -1), nil))
		have[indexeddb.Key](t)(s.Add(ctx, object("key", "2", "indexedOn", 1), nil))
	})
	s := begin(t, db, idb.ReadOnly, "store")
	x := have[*idb.Index](t)(s.Index("index"))
	for name, d := range directions {
		wants(t, name, have[[]*idb.Record](t)(x.GetAllRecords(ctx, idb.Bound(0, 10, false, false), 0, d)), `[1/"2"/{key:2 indexedOn:1}]`)
	}
	commit(t, s)
}
