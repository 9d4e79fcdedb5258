package records_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledger/records"
)

// TestMergeRuleOfTheRepository opens a page with two heads by a repository that has the rule of its
// collection: they are merged field by field before the collection is opened.
func TestMergeRuleOfTheRepository(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	open := func(o *ledger.Options) (*ledger.Repository, *ledger.Page) {
		r, err := ledger.Open(ctx, dir, o)
		must(t, err)
		t.Cleanup(func() { _ = r.Close() })
		p, err := r.Page(ctx, "app", "page")
		must(t, err)
		return r, p
	}
	r, p := open(&ledger.Options{ManualMerge: true})
	c, err := records.Open(ctx, p, "notes", options())
	must(t, err)
	must(t, c.Put(ctx, "a", &note{Views: 10}))
	tx, err := p.Begin(ctx, nil)
	must(t, err)
	must(t, c.In(tx).Put(ctx, "a", &note{Views: 15, Tags: []string{"x"}}))
	must(t, c.Put(ctx, "a", &note{Views: 12, Tags: []string{"y"}}))
	_, err = tx.Commit(ctx)
	must(t, err)
	must(t, r.Close())

	rule, err := records.MergeRule("notes", options())
	must(t, err)
	_, p = open(&ledger.Options{MergeRules: func(string, ledger.PageID) []ledger.MergeRule { return []ledger.MergeRule{rule} }})
	must(t, p.WaitForMerge(ctx))
	c, err = records.Open(ctx, p, "notes", options())
	must(t, err)
	if n, err := c.Get(ctx, "a"); err != nil || n.Views != 17 || len(n.Tags) != 2 {
		t.Errorf("%+v, %v", n, err)
	}
	if _, err := records.MergeRule("", options()); err == nil {
		t.Error("a collection without a name has a rule")
	}
}

// TestDuplicatesMayChange changes a record that shares a key of a unique index with another one.
func TestDuplicatesMayChange(t *testing.T) {
	ctx := t.Context()
	all := devices(t, 2)
	a, b := all[0], all[1]
	must(t, a.c.Put(ctx, "1", &note{Mail: "same"}))
	must(t, b.c.Put(ctx, "2", &note{Mail: "same"}))
	must(t, b.c.Put(ctx, "3", &note{Mail: "own"}))
	for range 3 {
		a.sync(t)
		b.sync(t)
	}
	must(t, a.c.Put(ctx, "2", &note{Mail: "same", Title: "new"}))
	if err := a.c.Put(ctx, "3", &note{Mail: "same"}); err == nil {
		t.Error("a third record has the key")
	}
}

// merged returns what the merge makes of one record that two commits have changed.
func merged[T any](t *testing.T, o *records.Options[T], base, one, two *T) *T {
	t.Helper()
	ctx := t.Context()
	p := ledgertest.Page(t, ledgertest.OpenWith(t, ledger.Options{InMemory: true, ManualMerge: true}), "app", "main")
	c, err := records.Open(ctx, p, "notes", o)
	must(t, err)
	must(t, c.Put(ctx, "a", base))
	tx, err := p.Begin(ctx, nil)
	must(t, err)
	must(t, c.In(tx).Put(ctx, "a", one))
	must(t, c.Put(ctx, "a", two))
	_, err = tx.Commit(ctx)
	must(t, err)
	_, err = p.Merge(ctx)
	must(t, err)
	v, err := c.Get(ctx, "a")
	must(t, err)
	return v
}

// TestEqualChangesCount: two devices that change a record in the same way have both changed its
// counters.
func TestEqualChangesCount(t *testing.T) {
	change := &note{Title: "x", Views: 1, Tags: []string{"a"}}
	change.Nested.Size = 2
	n := merged(t, options(), &note{}, change, change)
	if n.Title != "x" || n.Views != 2 || n.Nested.Size != 4 || !slices.Equal(n.Tags, []string{"a"}) {
		t.Errorf("%+v", n)
	}
}

// TestTheMergedRecordIsBeyondLimits: no form of one record stops the merges of a page.
func TestTheMergedRecordIsBeyondLimits(t *testing.T) {
	type sum struct {
		N float64 `ledger:"counter"`
	}
	if v := merged(t, nil, &sum{-math.MaxFloat64}, &sum{0}, &sum{math.MaxFloat64}); v.N != 0 {
		t.Errorf("%v, not what was written last", v.N)
	}
	type pair struct{ A, B string }
	o := &records.Options[pair]{Indexes: []records.Index[pair]{
		{Name: "pair", Keys: func(p *pair) [][]byte { return [][]byte{records.Key(p.A, p.B)} }},
	}}
	long := strings.Repeat("x", 700)
	if v := merged(t, o, &pair{}, &pair{A: long}, &pair{B: long}); v.A != long || v.B != "" {
		t.Errorf("%.10q and %.10q, not what was written last", v.A, v.B)
	}
}

// TestLongKeysOfANewIndex: a record that is stored already may have a key too long for a new index.
// It can be merged, changed and deleted; the index does not have it.
func TestLongKeysOfANewIndex(t *testing.T) {
	ctx := t.Context()
	p := ledgertest.Page(t, ledgertest.OpenWith(t, ledger.Options{InMemory: true, ManualMerge: true}), "app", "main")
	type text struct{ A string }
	old, err := records.Open[text](ctx, p, "notes", nil)
	must(t, err)
	long := strings.Repeat("x", records.MaxIndexKeyBytes)
	must(t, old.Put(ctx, "a", &text{long}))
	must(t, old.Put(ctx, "b", &text{"short"}))
	tx, err := p.Begin(ctx, nil)
	must(t, err)
	must(t, old.In(tx).Put(ctx, "c", &text{long + "y"}))
	must(t, old.Put(ctx, "b", &text{long + "z"}))
	_, err = tx.Commit(ctx)
	must(t, err)

	c, err := records.Open(ctx, p, "notes", &records.Options[text]{Indexes: []records.Index[text]{
		{Name: "a", Keys: func(n *text) [][]byte { return [][]byte{records.Key(n.A)} }},
	}})
	must(t, err)
	_, err = p.Merge(ctx)
	must(t, err)
	must(t, c.Put(ctx, "a", &text{"now short"}))
	must(t, c.Delete(ctx, "b"))
	if err := c.Put(ctx, "d", &text{long}); !errors.Is(err, ledger.ErrInvalid) {
		t.Error(err)
	}
	for index, want := range map[string]int{"": 2, "a": 1} {
		n := 0
		for _, err := range c.Query(ctx, records.Query{Index: index}) {
			must(t, err)
			n++
		}
		if n != want {
			t.Errorf("%d records by index %q, not %d", n, index, want)
		}
	}
}

// TestCountersStopAtTheirBounds: a sum that an integer type cannot hold becomes the nearest number.
func TestCountersStopAtTheirBounds(t *testing.T) {
	type stock struct {
		Small int8   `ledger:"counter"`
		Long  int64  `ledger:"counter"`
		Count uint   `ledger:"counter"`
		Huge  uint64 `ledger:"counter"`
	}
	base := &stock{Small: 100, Long: math.MinInt64 + 1, Count: 5, Huge: math.MaxUint64 - 1}
	one := &stock{Small: 120, Long: math.MinInt64, Count: 0, Huge: math.MaxUint64}
	two := &stock{Small: 110, Long: math.MinInt64, Count: 1, Huge: math.MaxUint64}
	if v := merged(t, nil, base, one, two); *v != (stock{math.MaxInt8, math.MinInt64, 0, math.MaxUint64}) {
		t.Errorf("%+v", v)
	}
	if v := merged(t, nil, one, base, two); *v != (stock{90, math.MinInt64 + 1, 6, math.MaxUint64 - 1}) {
		t.Errorf("%+v", v)
	}
}

// TestSetsCompareByContent: decoded elements equal the encoded ones, or the type is refused.
func TestSetsCompareByContent(t *testing.T) {
	type set struct {
		At []time.Time `ledger:"set"`
	}
	at := func(hour int64) time.Time { return time.Unix(3600*hour, 0).In(time.FixedZone("", 5*3600)) }
	v := merged(t, nil, &set{[]time.Time{at(1)}}, &set{[]time.Time{at(1), at(2)}}, &set{[]time.Time{at(3)}})
	if !slices.EqualFunc(v.At, []time.Time{at(2), at(3)}, time.Time.Equal) {
		t.Error(v.At)
	}
	refuse := func(err error) {
		t.Helper()
		if !errors.Is(err, ledger.ErrInvalid) {
			t.Error(err)
		}
	}
	_, err := records.MergeRule[struct {
		A []*int `ledger:"set"`
	}]("set", nil)
	refuse(err)
	_, err = records.MergeRule[struct {
		A []any `ledger:"set"`
	}]("set", nil)
	refuse(err)
	_, err = records.MergeRule[struct {
		A map[time.Time]int `ledger:"set"`
	}]("set", nil)
	refuse(err)
	_, err = records.MergeRule[struct {
		A int `ledger:"counter"`
		b int
	}]("hidden", nil)
	refuse(err)
}
