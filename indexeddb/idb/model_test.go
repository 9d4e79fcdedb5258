package idb_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/indexeddb"
	"github.com/ledgerd/ledger/indexeddb/idb"
	"github.com/ledgerd/ledger/indexeddb/value"
)

// entry is a record of an object store or index as a model has it.
type entry struct{ key, primary indexeddb.Key }

// model is an object store with the indexes i, not unique, m of several entries, and u, unique.
type model struct {
	values    map[indexeddb.Key]*value.Object
	generator int
}

func (m *model) clone() *model { return &model{maps.Clone(m.values), m.generator} }

// key returns the key of a property of a value.
func property(v *value.Object, name string) []indexeddb.Key {
	p, ok := v.Get(name)
	if !ok {
		return nil
	}
	if a, ok := p.(*value.Array); ok && name == "m" {
		var keys []indexeddb.Key
		for _, e := range a.Elements {
			if k, err := idb.Key(e); err == nil && !slices.Contains(keys, k) {
				keys = append(keys, k)
			}
		}
		return keys
	}
	k, err := idb.Key(p)
	if err != nil {
		return nil
	}
	return []indexeddb.Key{k}
}

// entries returns the entries of an index, or of the object store when name is empty, in a range
// and direction.
func (m *model) entries(name string, rg idb.KeyRange, d idb.Direction) (all []entry) {
	for k, v := range m.values {
		keys := []indexeddb.Key{k}
		if name != "" {
			keys = property(v, name)
		}
		for _, x := range keys {
			if rg.Includes(x) {
				all = append(all, entry{x, k})
			}
		}
	}
	slices.SortFunc(all, func(a, b entry) int {
		if c := a.key.Compare(b.key); c != 0 {
			return c
		}
		return a.primary.Compare(b.primary)
	})
	if d == idb.NextUnique || d == idb.PrevUnique {
		all = slices.CompactFunc(all, func(a, b entry) bool { return a.key == b.key })
	}
	if d == idb.Prev || d == idb.PrevUnique {
		slices.Reverse(all)
	}
	return all
}

// put changes the model, and returns the key, and whether that may be.
func (m *model) put(v *value.Object, key indexeddb.Key, add bool) (indexeddb.Key, bool) {
	next := m.generator
	switch {
	case key.IsZero():
		key, _ = indexeddb.NumberKey(float64(m.generator))
		next++
	case key.Type() == indexeddb.KeyNumber:
		next = max(next, int(key.Number())+1)
	}
	if _, there := m.values[key]; there && add {
		return key, false
	}
	for other, w := range m.values {
		if other != key && slices.ContainsFunc(property(w, "u"), func(k indexeddb.Key) bool { return slices.Contains(property(v, "u"), k) }) {
			return key, false
		}
	}
	m.values[key], m.generator = v, next
	return key, true
}

var modelKeys = rapid.SampledFrom([]any{0, 1, 2, 3, 5, 8, "a", "b", "ä", "", []byte{1}, []any{1, "a"}, []any{}, strings.Repeat("k", 3000), strings.Repeat("k", 3000) + "1"})

func modelRange(t *rapid.T) idb.KeyRange {
	for {
		r := idb.KeyRange{}
		switch rapid.IntRange(0, 4).Draw(t, "range") {
		case 1:
			r = idb.Only(modelKeys.Draw(t, "only"))
		case 2:
			r = idb.LowerBound(modelKeys.Draw(t, "lower"), rapid.Bool().Draw(t, "open"))
		case 3:
			r = idb.UpperBound(modelKeys.Draw(t, "upper"), rapid.Bool().Draw(t, "open"))
		case 4:
			r = idb.Bound(modelKeys.Draw(t, "lower"), modelKeys.Draw(t, "upper"), rapid.Bool().Draw(t, "lower open"), rapid.Bool().Draw(t, "upper open"))
		}
		if r.Err() == nil {
			return r
		}
	}
}

func modelValue(t *rapid.T) *value.Object {
	v := &value.Object{}
	for _, name := range []string{"i", "m", "u"} {
		switch rapid.IntRange(0, 3).Draw(t, name) {
		case 0:
			if k, ok := modelKeys.Draw(t, name).(string); ok {
				v.Set(name, k)
			} else {
				v.Set(name, rapid.SampledFrom([]float64{1, 2, 3}).Draw(t, name))
			}
		case 1:
			v.Set(name, value.NewArray("a", "b", value.Null{}, "a", float64(rapid.IntRange(0, 5).Draw(t, name))))
		case 2:
			v.Set(name, value.Null{})
		}
	}
	if rapid.IntRange(0, 20).Draw(t, "long") == 0 {
		v.Set("long", strings.Repeat("x", 70_000))
	}
	return v
}

// TestModel: random requests have the results that a model has, in all directions and ranges,
// transactions that are aborted leave nothing behind, and index rows are always those of the
// records.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rows, db := opened(t, func(ctx context.Context, u *idb.Upgrade) {
			s := have[*idb.ObjectStore](t)(u.CreateObjectStore("store", &idb.StoreOptions{AutoIncrement: true}))
			have[*idb.Index](t)(s.CreateIndex(ctx, "i", idb.Path("i"), nil))
			have[*idb.Index](t)(s.CreateIndex(ctx, "m", idb.Path("m"), &idb.IndexOptions{MultiEntry: true}))
			have[*idb.Index](t)(s.CreateIndex(ctx, "u", idb.Path("u"), &idb.IndexOptions{Unique: true}))
		})
		stored := &model{map[indexeddb.Key]*value.Object{}, 1}
		for range rapid.IntRange(1, 4).Draw(t, "transactions") {
			m := stored.clone()
			s := begin(t, db, idb.ReadWrite, "store")
			for range rapid.IntRange(0, 12).Draw(t, "requests") {
				m.request(t, s)
			}
			if rapid.IntRange(0, 3).Draw(t, "abort") == 0 {
				must(t, s.Tx().Abort())
			} else {
				commit(t, s)
				stored = m
			}
			s = begin(t, db, idb.ReadOnly, "store")
			stored.compare(t, s)
			commit(t, s)
		}
		clean(t, rows)
	})
}

// request does something to both.
func (m *model) request(t *rapid.T, s *idb.ObjectStore) {
	ctx := t.Context()
	switch rapid.IntRange(0, 9).Draw(t, "request") {
	case 0, 1, 2, 3, 4, 5:
		v, key, add := modelValue(t), any(nil), rapid.Bool().Draw(t, "add")
		want := indexeddb.Key{}
		if rapid.Bool().Draw(t, "with key") {
			key = modelKeys.Draw(t, "key")
			want = have[indexeddb.Key](t)(idb.Key(key))
		}
		do := s.Put
		if add {
			do = s.Add
		}
		want, ok := m.put(v, want, add)
		got, err := do(ctx, v, key)
		if !ok {
			is(t, "put", err, idb.ErrConstraint)
			s.Tx().PreventDefault()
			return
		}
		must(t, err)
		if got != want {
			t.Fatalf("key %v, want %v", got, want)
		}
	case 6:
		rg := modelRange(t)
		for _, e := range m.entries("", rg, idb.Next) {
			delete(m.values, e.key)
		}
		must(t, s.Delete(ctx, rg))
	case 7:
		name := rapid.SampledFrom([]string{"", "i", "m"}).Draw(t, "cursor over")
		rg := modelRange(t)
		all := m.entries(name, rg, idb.Next)
		var c *idb.Cursor
		var err error
		if name == "" {
			c, err = s.OpenCursor(ctx, rg, idb.Next)
		} else {
			c, err = have[*idb.Index](t)(s.Index(name)).OpenCursor(ctx, rg, idb.Next)
		}
		must(t, err)
		if len(all) > 0 && all[0].primary.Compare(c.PrimaryKey()) == 0 {
			must(t, c.Delete(ctx))
			delete(m.values, all[0].primary)
		}
		c.Close()
	case 8:
		if rapid.IntRange(0, 4).Draw(t, "clear") == 0 {
			clear(m.values)
			must(t, s.Clear(ctx))
		}
	case 9:
		m.compare(t, s)
	}
}

// compare wants the same of both, read in all ways. Keys that are so long that they are shortened
// in rows stand in another order, so that there only the same records are wanted. Of those with one
// key a unique direction may then give another.
func (m *model) compare(t *rapid.T, s *idb.ObjectStore) {
	ctx := t.Context()
	rg, d := modelRange(t), idb.Direction(rapid.IntRange(0, 3).Draw(t, "direction"))
	for _, name := range []string{"", "i", "m", "u"} {
		want := m.entries(name, rg, d)
		open, count, all := s.OpenKeyCursor, s.Count, s.GetAllRecords
		if name != "" {
			x := have[*idb.Index](t)(s.Index(name))
			open, count, all = x.OpenKeyCursor, x.Count, x.GetAllRecords
		}
		texts := make([]string, len(want))
		for i, e := range want {
			texts[i] = fmt.Sprintf("%v:%v", e.key, e.primary)
		}
		c, err := open(ctx, rg, d)
		got := walk(t, c, err)
		records := have[[]*idb.Record](t)(all(ctx, rg, 0, d))
		for i, r := range records {
			if i >= len(got) || got[i] != fmt.Sprintf("%v:%v", r.Key, r.PrimaryKey) || text(r.Value) != text(m.values[r.PrimaryKey]) {
				t.Fatalf("%q: record %d is %s", name, i, text(r))
			}
		}
		if len(records) != len(got) {
			t.Fatalf("%q: %d records, %d keys", name, len(records), len(got))
		}
		if d == idb.NextUnique || d == idb.PrevUnique { // which record is the first depends on the order
			for _, ts := range [][]string{texts, got} {
				for i, text := range ts {
					ts[i] = text[:min(len(text), 1900)]
				}
			}
		}
		slices.Sort(texts)
		slices.Sort(got)
		equal(t, fmt.Sprintf("%q in direction %d of %v", name, d, rg), got, texts)
		if n := have[int64](t)(count(ctx, rg)); n != int64(len(m.entries(name, rg, idb.Next))) {
			t.Fatalf("%q: %d records", name, n)
		}
	}
}

// TestModelOrder is the order in TestModel, for keys that are not shortened.
func TestModelOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{map[indexeddb.Key]*value.Object{}, 1}
		short := modelKeys.Filter(func(k any) bool { s, ok := k.(string); return !ok || len(s) < 100 })
		_, db := opened(t, func(ctx context.Context, u *idb.Upgrade) {
			s := have[*idb.ObjectStore](t)(u.CreateObjectStore("store", nil))
			for range rapid.IntRange(0, 30).Draw(t, "records") {
				k, v := short.Draw(t, "key"), object("i", rapid.IntRange(0, 3).Draw(t, "i"))
				m.values[have[indexeddb.Key](t)(s.Put(ctx, v, k))] = v
			}
			have[*idb.Index](t)(s.CreateIndex(ctx, "i", idb.Path("i"), nil))
		})
		s := begin(t, db, idb.ReadOnly, "store")
		x := have[*idb.Index](t)(s.Index("i"))
		for d := range idb.PrevUnique + 1 {
			for name, open := range map[string]func(context.Context, any, idb.Direction) (*idb.Cursor, error){"": s.OpenCursor, "i": x.OpenCursor} {
				want := m.entries(name, idb.KeyRange{}, d)
				c, err := open(t.Context(), nil, d)
				must(t, err)
				for i := 0; i < len(want); {
					if c.Key() != want[i].key || c.PrimaryKey() != want[i].primary {
						t.Fatalf("%q in direction %d: %v %v, want %v", name, d, c.Key(), c.PrimaryKey(), want[i])
					}
					to := i + rapid.IntRange(1, 4).Draw(t, "step")
					end := to >= len(want)
					switch way := rapid.IntRange(0, 2).Draw(t, "way"); {
					case way == 0 || end:
						must(t, c.Advance(t.Context(), int64(to-i)))
					case way == 1 && name == "i" && (d == idb.Next || d == idb.Prev):
						must(t, c.ContinuePrimaryKey(t.Context(), want[to].key, want[to].primary))
					default: // to the first that has the key
						err := c.Continue(t.Context(), want[to].key)
						if want[to].key == want[i].key {
							is(t, "continue to the same key", err, idb.ErrData)
							to = i + 1
							must(t, c.Continue(t.Context(), nil))
							break
						}
						must(t, err)
						for to > 0 && want[to-1].key == want[to].key {
							to--
						}
					}
					if i = to; end != c.Done() {
						t.Fatalf("%q in direction %d: done %t", name, d, c.Done())
					}
				}
				c.Close()
			}
		}
		commit(t, s)
	})
}
