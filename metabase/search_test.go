package metabase_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/metabase"
	"github.com/ledgerd/ledger/metabase/metabasetest"
	"github.com/ledgerd/ledger/ordered"
)

// thing is an object of the model of a search.
type thing struct {
	id         metabase.ID
	attributes map[string][]string
}

var (
	testKeys   = []string{"", "A", "AB", "N"}
	testValues = []string{"0", "1", "-1", "7", "007", "+5", "-0", "a", "ab", "abc", "b", "10", "99999999999999999999", "-" + tooGreat, greatest, " 1", "1e3"}
	greatest   = new(big.Int).Sub(new(big.Int).Lsh(big.NewInt(1), 256), big.NewInt(1)).String()
	tooGreat   = new(big.Int).Lsh(big.NewInt(1), 256).String()
)

// integer is what the package documents as one.
func integer(s string) (*big.Int, bool) {
	if strings.Trim(s, "+-0123456789") != "" || strings.ContainsAny(s[min(1, len(s)):], "+-") {
		return nil, false
	}
	n, ok := new(big.Int).SetString(s, 10)
	return n, ok && n.BitLen() <= 256
}

func (o *thing) matches(filters []metabase.Filter) bool {
	keys := map[string][]metabase.Filter{}
	for _, f := range filters {
		keys[f.Key] = append(keys[f.Key], f)
	}
	for key, all := range keys {
		absent := slices.ContainsFunc(all, func(f metabase.Filter) bool { return f.Op == metabase.Absent })
		if absent {
			if len(o.attributes[key]) > 0 || slices.ContainsFunc(all, func(f metabase.Filter) bool { return f.Op != metabase.Absent }) {
				return false
			}
			continue
		}
		if !slices.ContainsFunc(o.attributes[key], func(v string) bool {
			return !slices.ContainsFunc(all, func(f metabase.Filter) bool { return !valueMatches(f, v) })
		}) {
			return false
		}
	}
	return true
}

func valueMatches(f metabase.Filter, v string) bool {
	switch f.Op {
	case metabase.Equal:
		return v == f.Value
	case metabase.NotEqual:
		return v != f.Value
	case metabase.Prefix:
		return strings.HasPrefix(v, f.Value)
	}
	a, ok := integer(v)
	b, wantOK := integer(f.Value)
	if !ok || !wantOK {
		return false
	}
	c := a.Cmp(b)
	return map[metabase.Op]bool{metabase.Greater: c > 0, metabase.GreaterOrEqual: c >= 0, metabase.Less: c < 0, metabase.LessOrEqual: c <= 0}[f.Op]
}

// TestSearchesFindWhatMatches compares searches, page by page, with a model: filters on one
// attribute in every order, prefixes, duplicate attributes, and all that a node gets wrong are
// among them.
func TestSearchesFindWhatMatches(t *testing.T) {
	container := metabasetest.Container(1)
	rapid.Check(t, func(rt *rapid.T) {
		m, err := metabase.Write(t.Context(), ordered.NewMemory(), 10)
		must(t, err)
		var things []*thing
		for i := range rapid.IntRange(0, 12).Draw(rt, "objects") {
			x := &thing{attributes: map[string][]string{"Unique": {fmt.Sprint("u", i)}}}
			pairs := []string{"Unique", fmt.Sprint("u", i)}
			for range rapid.IntRange(0, 4).Draw(rt, "attributes") {
				k, v := rapid.SampledFrom(testKeys).Draw(rt, "key"), rapid.SampledFrom(testValues).Draw(rt, "value")
				x.attributes[k], pairs = append(x.attributes[k], v), append(pairs, k, v)
			}
			a, b := metabasetest.Object(t, container, metabase.Regular, 1, pairs...)
			_, err := m.Put(t.Context(), b, nil)
			must(t, err)
			x.id = a.Object
			things = append(things, x)
		}
		q := metabase.Query{Container: container, Count: rapid.IntRange(1, 4).Draw(rt, "count")}
		for range rapid.IntRange(0, 4).Draw(rt, "filters") {
			f := metabase.Filter{Key: rapid.SampledFrom(testKeys).Draw(rt, "key"), Op: metabase.Op(rapid.IntRange(1, 8).Draw(rt, "op"))}
			if f.Op != metabase.Absent {
				f.Value = rapid.SampledFrom(append([]string{""}, testValues...)).Draw(rt, "value")
			}
			q.Filters = append(q.Filters, f)
		}
		if len(q.Filters) > 0 && rapid.Bool().Draw(rt, "by attribute") {
			q.Attributes = []string{q.Filters[0].Key, "Unique"}
		}
		var want []string
		for _, x := range things {
			if x.matches(q.Filters) {
				want = append(want, x.id.String())
			}
		}
		got := searchAll(t, rt, &m.View, q)
		if diff := cmp.Diff(sorted(want), slices.Compact(sorted(got))); diff != "" {
			rt.Fatalf("%+v (-want +got):\n%s", q, diff)
		}
	})
}

// searchAll returns the ids of all pages, and checks their order.
func searchAll(t *testing.T, rt *rapid.T, v *metabase.View, q metabase.Query) (ids []string) {
	t.Helper()
	var last metabase.Found
	for {
		found, cursor, err := v.Search(t.Context(), q)
		if err != nil {
			rt.Fatalf("%+v: %v", q, err)
		}
		for _, f := range found {
			if len(ids) > 0 && !inOrder(q, last, f) {
				rt.Fatalf("%+v: %v comes before %v", q, last, f)
			}
			ids, last = append(ids, f.ID.String()), f
		}
		if cursor == "" {
			return ids
		}
		if len(found) != q.Count {
			rt.Fatalf("%+v: %d objects and a cursor", q, len(found))
		}
		q.Cursor = cursor
	}
}

func inOrder(q metabase.Query, a, b metabase.Found) bool {
	byID := bytes.Compare(a.ID[:], b.ID[:])
	if len(q.Attributes) == 0 || q.Filters[0].Op == metabase.Absent {
		return byID < 0
	}
	c := strings.Compare(a.Attributes[0], b.Attributes[0])
	if op := q.Filters[0].Op; op >= metabase.Greater {
		x, _ := integer(a.Attributes[0])
		y, _ := integer(b.Attributes[0])
		c = x.Cmp(y)
		if c == 0 { // 7 and 007 of one object are one integer, so they can come once only
			return byID < 0
		}
	}
	return c < 0 || c == 0 && byID < 0
}

// TestSearchesThatANodeGetsWrong has each class of them.
func TestSearchesThatANodeGetsWrong(t *testing.T) {
	inBoth(t, func(t *testing.T, ctx context.Context, m *metabase.Tx) {
		container := metabasetest.Container(1)
		count := func(attributes []string, filters ...metabase.Filter) int {
			t.Helper()
			found, _, err := m.Search(ctx, metabase.Query{Container: container, Filters: filters, Attributes: attributes, Count: 1000})
			must(t, err)
			return len(found)
		}
		want := func(what string, got, want int) {
			t.Helper()
			if got != want {
				t.Errorf("%s: %d objects, want %d", what, got, want)
			}
		}
		var all []metabase.Address
		for i := -10; i <= 10; i++ {
			all = append(all, put(t, m, metabase.Regular, "Idx", fmt.Sprint(i)))
		}
		dup := put(t, m, metabase.Regular, "Dup", "1", "Dup", "2", "Idx", "100")
		le, ge := metabase.Filter{Key: "Idx", Op: metabase.LessOrEqual, Value: "5"}, metabase.Filter{Key: "Idx", Op: metabase.GreaterOrEqual, Value: "-5"}
		for _, attributes := range [][]string{nil, {"Idx"}} {
			want("LE, GE", count(attributes, le, ge), 11)
			want("GE, LE", count(attributes, ge, le), 11)
			want("PREFIX, EQ", count(attributes, metabase.Filter{Key: "Idx", Op: metabase.Prefix}, metabase.Filter{Key: "Idx", Op: metabase.Equal, Value: "3"}), 1)
			for _, value := range []string{"1", "2"} {
				want("duplicate", count(attributes, ge, metabase.Filter{Key: "Dup", Op: metabase.Equal, Value: value}), 1)
			}
		}
		owner := metabase.NewOwner([20]byte{1}).String()
		for n := range len(owner) + 1 {
			want("owner prefix "+owner[:n], count([]string{"$Object:ownerID"}, metabase.Filter{Key: "$Object:ownerID", Op: metabase.Prefix, Value: owner[:n]}), 22)
		}
		want("wrong owner", count(nil, metabase.Filter{Key: "$Object:ownerID", Op: metabase.Prefix, Value: "NNNN"}), 0)
		_, err := m.Delete(ctx, append(all, dup)...)
		must(t, err)
		want("nothing", count(nil), 0)
	})
}

// TestCursorsStayGood: pages go on behind the cursor whatever objects come and go.
func TestCursorsStayGood(t *testing.T) {
	inBoth(t, func(t *testing.T, ctx context.Context, m *metabase.Tx) {
		for i := range 30 {
			put(t, m, metabase.Regular, "N", fmt.Sprint(i))
		}
		for _, q := range []metabase.Query{
			{Filters: []metabase.Filter{{Key: "N", Op: metabase.GreaterOrEqual, Value: "5"}}, Attributes: []string{"N"}},
			{Filters: []metabase.Filter{{Key: "N", Op: metabase.GreaterOrEqual, Value: "5"}}},
			{},
		} {
			q.Container, q.Count = metabasetest.Container(1), 5
			first, cursor, err := m.Search(ctx, q)
			must(t, err)
			for _, f := range first {
				_, err := m.Delete(ctx, metabase.Address{Container: q.Container, Object: f.ID})
				must(t, err)
			}
			put(t, m, metabase.Regular, "N", "2000")
			q.Cursor, q.Count = cursor, 1000
			rest, _, err := m.Search(ctx, q)
			must(t, err)
			for _, f := range rest {
				if slices.ContainsFunc(first, func(g metabase.Found) bool { return g.ID == f.ID }) {
					t.Errorf("%s came twice", f.ID)
				}
			}
			if len(rest) < 10 {
				t.Errorf("%d objects behind the cursor", len(rest))
			}
		}
	})
}

func TestQueriesThatAreRefused(t *testing.T) {
	inBoth(t, func(t *testing.T, ctx context.Context, m *metabase.Tx) {
		for i := range 3 {
			put(t, m, metabase.Regular, "N", fmt.Sprint(i), "M", "x")
		}
		c := metabasetest.Container(1)
		n := []metabase.Filter{{Key: "N", Op: metabase.Greater, Value: "0"}}
		_, cursor, err := m.Search(ctx, metabase.Query{Container: c, Filters: n, Attributes: []string{"N"}, Count: 1})
		must(t, err)
		many := slices.Repeat(n, 9)
		for name, q := range map[string]metabase.Query{
			"no count":        {Container: c},
			"large count":     {Container: c, Count: 1001},
			"no container":    {Count: 1},
			"many filters":    {Container: c, Count: 1, Filters: many},
			"many attributes": {Container: c, Count: 1, Filters: n, Attributes: strings.Split("N,2,3,4,5,6,7,8,9", ",")},
			"other attribute": {Container: c, Count: 1, Filters: n, Attributes: []string{"M"}},
			"no filter":       {Container: c, Count: 1, Attributes: []string{"M"}},
			"operation":       {Container: c, Count: 1, Filters: []metabase.Filter{{Key: "N", Op: 99}}},
			"zero in key":     {Container: c, Count: 1, Filters: []metabase.Filter{{Key: "N\x001", Op: metabase.Equal}}},
			"flag":            {Container: c, Count: 1, Filters: []metabase.Filter{{Key: "N", Op: metabase.Flag}}},
			"no flag":         {Container: c, Count: 1, Filters: []metabase.Filter{{Key: "$Object:PHY", Op: metabase.Equal, Value: "1"}}},
			"id":              {Container: c, Count: 1, Filters: []metabase.Filter{{Key: "$Object:objectID", Op: metabase.Equal, Value: "1"}}},
			"owner":           {Container: c, Count: 1, Filters: []metabase.Filter{{Key: "$Object:ownerID", Op: metabase.Equal, Value: "0"}}},
			"hash":            {Container: c, Count: 1, Filters: []metabase.Filter{{Key: "$Object:payloadHash", Op: metabase.Prefix, Value: "0g"}}},
		} {
			_, _, err := m.Search(ctx, q)
			if bad := new(metabase.QueryError); !errors.As(err, &bad) || !errors.Is(err, base.ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
		other := base64.StdEncoding.EncodeToString(append([]byte("M\x00x\x00"), make([]byte, 32)...))
		for name, q := range map[string]metabase.Query{
			"no base64":       {Filters: n, Attributes: []string{"N"}, Cursor: "!"},
			"short":           {Filters: n, Attributes: []string{"N"}, Cursor: cursor[:8]},
			"of another key":  {Filters: n, Attributes: []string{"N"}, Cursor: other},
			"of another op":   {Filters: []metabase.Filter{{Key: "N", Op: metabase.Prefix}}, Attributes: []string{"N"}, Cursor: cursor},
			"by id":           {Filters: n, Cursor: cursor},
			"outside of span": {Filters: []metabase.Filter{{Key: "N", Op: metabase.Less, Value: "-5"}}, Attributes: []string{"N"}, Cursor: cursor},
		} {
			q.Container, q.Count = c, 1
			if _, _, err := m.Search(ctx, q); !errors.Is(err, metabase.ErrInvalidCursor) || !errors.Is(err, base.ErrInvalid) {
				t.Errorf("cursor %s: %v", name, err)
			}
		}
	})
}
