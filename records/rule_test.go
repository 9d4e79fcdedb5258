package records_test

import (
	"testing"

	"github.com/ledgerd/ledger"
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
