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

// TestListOrdering: wpt list_ordering. Names of object stores and indexes are sorted by their code
// units, however they were created.
func TestListOrdering(t *testing.T) {
	for name, c := range map[string]struct{ created, sorted []string }{
		"numbers":               {[]string{"123456", "-12345", "-123", "123", "1234", "-1234", "0", "12345", "-123456"}, []string{"-123", "-1234", "-12345", "-123456", "0", "123", "1234", "12345", "123456"}},
		"numbers 'overflow'":    {[]string{"9", "1", "1000000000", "200000000000000000"}, []string{"1", "1000000000", "200000000000000000", "9"}},
		"lexigraphical":         {[]string{"cc", "c", "aa", "a", "bb", "b", "ab", "", "ac"}, []string{"", "a", "aa", "ab", "ac", "b", "bb", "c", "cc"}},
		"without overlap":       {[]string{"b1", "b", "a", "B", "A", "é", "e", "z"}, []string{"A", "B", "a", "b", "b1", "e", "z", "é"}},
		"surrogates and U+FFFF": {[]string{"\uffff", "😀", "\ue000", "\ud7ff", "a\x00", "a"}, []string{"a", "a\x00", "\ud7ff", "😀", "\ue000", "\uffff"}},
	} {
		rows, db := opened(t, func(ctx context.Context, u *idb.Upgrade) {
			for _, n := range c.created {
				s := have[*idb.ObjectStore](t)(u.CreateObjectStore(n, nil))
				for _, x := range c.created {
					have[*idb.Index](t)(s.CreateIndex(ctx, x, idb.Path("a"), nil))
				}
			}
			equal(t, name+", in the upgrade", u.ObjectStoreNames(), c.sorted)
		})
		equal(t, name, db.ObjectStoreNames(), c.sorted)
		tx := have[*idb.Tx](t)(db.Begin(t.Context(), idb.ReadOnly, c.created...))
		equal(t, name+", of a transaction", tx.ObjectStoreNames(), c.sorted)
		equal(t, name+", of indexes", have[*idb.ObjectStore](t)(tx.ObjectStore(c.sorted[0])).IndexNames(), c.sorted)
		must(t, tx.Commit(t.Context()))
		clean(t, rows)
	}
}

// TestIndexSortOrder: wpt index_sort_order, keyorder, idbobjectstore_createIndex ("Indexes and
// records that have no valid index key are ignored"). The index is made before the records, and
// behind them.
func TestIndexSortOrder(t *testing.T) {
	ctx := t.Context()
	for name, c := range map[string]struct {
		path indexeddb.KeyPath
		keys []any
		want []string
	}{
		"numbers before strings before arrays": {idb.Path("i"), []any{[]any{}, "b", 2, "a", 1, []any{0}}, []string{"1:4", "2:2", `"a":3`, `"b":1`, "[]:0", "[0]:5"}},
		"what is no key is left out":           {idb.Path("i"), []any{true, 1, value.Null{}, object(), []any{true}, -1}, []string{"-1:5", "1:1"}},
		"equal keys by their primary keys":     {idb.Path("i"), []any{"x", "x", "a", "x"}, []string{`"a":2`, `"x":0`, `"x":1`, `"x":3`}},
		"compound":                             {idb.Paths("i", "n"), []any{"b", "a", "a", true}, []string{`["a", 1]:1`, `["a", 2]:2`, `["b", 0]:0`}},
		"compound of the same path":            {idb.Paths("i", "i"), []any{2, 1}, []string{"[1, 1]:1", "[2, 2]:0"}},
		"compound with the primary key":        {idb.Paths("n", "i"), []any{2, 1}, []string{"[0, 2]:0", "[1, 1]:1"}},
	} {
		for _, first := range []bool{true, false} {
			var x *idb.Index
			index := func(s *idb.ObjectStore) { x = have[*idb.Index](t)(s.CreateIndex(ctx, "index", c.path, nil)) }
			rows, db := opened(t, func(_ context.Context, u *idb.Upgrade) {
				s := have[*idb.ObjectStore](t)(u.CreateObjectStore("store", &idb.StoreOptions{KeyPath: idb.Path("n")}))
				if first {
					index(s)
				}
				for n, k := range c.keys {
					have[indexeddb.Key](t)(s.Add(ctx, object("n", n, "i", k), nil))
				}
				if !first {
					index(s)
				}
				cursor, err := x.OpenCursor(ctx, nil, idb.Next)
				equal(t, name+", in the upgrade", walk(t, cursor, err), c.want)
			})
			s := begin(t, db, idb.ReadOnly, "store")
			x = have[*idb.Index](t)(s.Index("index"))
			cursor, err := x.OpenKeyCursor(ctx, nil, idb.Prev)
			back := walk(t, cursor, err)
			slices.Reverse(back)
			equal(t, name, back, c.want)
			commit(t, s)
			clean(t, rows)
		}
	}
}

// TestInterleavedCursors: wpt interleaved-cursors-small, -large, and parallel-cursors-upgrade. Many
// cursors walk side by side, each at its own place.
func TestInterleavedCursors(t *testing.T) {
	ctx := t.Context()
	const cursors, records = 20, 15
	fill := func(u *idb.Upgrade) *idb.ObjectStore {
		s := have[*idb.ObjectStore](t)(u.CreateObjectStore("store", nil))
		have[*idb.Index](t)(s.CreateIndex(ctx, "index", idb.Path("c"), nil))
		for c := range cursors {
			for n := range records {
				have[indexeddb.Key](t)(s.Add(ctx, object("c", c, "v", fmt.Sprint(c, " ", n)), []any{c, n}))
			}
		}
		return s
	}
	interleave := func(s *idb.ObjectStore) {
		var all []*idb.Cursor
		x := have[*idb.Index](t)(s.Index("index"))
		for c := range cursors {
			var cursor *idb.Cursor
			switch c % 3 {
			case 0:
				cursor = have[*idb.Cursor](t)(s.OpenCursor(ctx, idb.Bound([]any{c, 0}, []any{c, records}, false, true), idb.Next))
			case 1:
				cursor = have[*idb.Cursor](t)(x.OpenCursor(ctx, c, idb.Next))
			default:
				cursor = have[*idb.Cursor](t)(x.OpenCursor(ctx, c, idb.Prev))
			}
			defer cursor.Close()
			all = append(all, cursor)
		}
		for n := range records {
			for c, cursor := range all {
				want := n
				if c%3 == 2 {
					want = records - 1 - n
				}
				wants(t, "value", have[value.Value](t)(cursor.Value(ctx)), fmt.Sprintf("{c:%d v:%d %d}", c, c, want))
				must(t, cursor.Continue(ctx, nil))
			}
		}
		for c, cursor := range all {
			if !cursor.Done() {
				t.Errorf("cursor %d stands at %v", c, cursor.PrimaryKey())
			}
		}
	}
	_, db := opened(t, func(_ context.Context, u *idb.Upgrade) { interleave(fill(u)) })
	s := begin(t, db, idb.ReadOnly, "store")
	interleave(s)
	commit(t, s)
}
