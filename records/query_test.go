package records_test

import (
	"bytes"
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/records"
)

// TestQueriesSelect compares queries, whose limits may contradict each other, with a model.
func TestQueriesSelect(t *testing.T) {
	type row struct{ key, id string }
	c := open(t, page(t))
	ids := []string{"a", "a\x00", "a\x00b", "ab", "b", "\xff", "\xff\xff"}
	var byID, byTitle []row
	for _, id := range ids {
		must(t, c.Put(t.Context(), id, &note{Title: id[:1]}))
		byID, byTitle = append(byID, row{id, id}), append(byTitle, row{string(records.Key(id[:1])), id})
	}
	rapid.Check(t, func(rt *rapid.T) {
		q := records.Query{Index: rapid.SampledFrom([]string{"", "title"}).Draw(rt, "index"), Reverse: rapid.Bool().Draw(rt, "reverse"), Limit: rapid.IntRange(0, 3).Draw(rt, "limit")}
		rows := byID
		if q.Index != "" {
			rows = byTitle
		}
		key := func(label string) []byte {
			if rapid.Bool().Draw(rt, label+" is set") {
				return []byte(rapid.SampledFrom(rows).Draw(rt, label).key)
			}
			return nil
		}
		q.Equal, q.Prefix, q.From, q.To = key("equal"), key("prefix"), key("from"), key("to")
		var want []string
		rows = slices.Clone(rows)
		slices.SortFunc(rows, func(a, b row) int { return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.id, b.id)) })
		if q.Reverse {
			slices.Reverse(rows)
		}
		for _, r := range rows {
			k := []byte(r.key)
			if (q.Equal == nil || bytes.Equal(k, q.Equal)) && bytes.HasPrefix(k, q.Prefix) && bytes.Compare(k, q.From) >= 0 &&
				(q.To == nil || bytes.Compare(k, q.To) < 0) && (q.Limit == 0 || len(want) < q.Limit) {
				want = append(want, r.id)
			}
		}
		if got := found(t, c, q); !slices.Equal(got, want) {
			rt.Fatalf("%+v: %q, want %q", q, got, want)
		}
	})
}
