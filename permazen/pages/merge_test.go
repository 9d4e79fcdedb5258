package pages_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledger/permazen"
	"github.com/ledgerd/ledger/permazen/jsck"
	"github.com/ledgerd/ledger/permazen/pages"
)

// branches gives a page two heads on its present one.
func branches(t *testing.T, page *ledger.Page, edits ...func(tx *ledger.Tx) error) {
	t.Helper()
	heads, err := page.Heads(t.Context())
	must(t, err)
	for _, edit := range edits {
		tx, err := page.Begin(t.Context(), &ledger.TxOptions{Base: heads[0].ID})
		must(t, err)
		must(t, edit(tx))
		_, err = tx.Commit(t.Context())
		must(t, err)
	}
}

// TestConflicts: what one side has lost is told, rows of the app go key by key, and rows that are
// wrong make a merge fail until they are repaired.
func TestConflicts(t *testing.T) {
	ctx := t.Context()
	repo := ledgertest.OpenWith(t, ledger.Options{ManualMerge: true})
	page := ledgertest.Page(t, repo, "app", "objects")
	page.SetMergeRules(pages.MergeRule(prefix))
	var models permazen.Models
	people, err := permazen.Define[oldPerson](&models, "Person")
	must(t, err)
	db := database(&models, &permazen.Options{Random: random(1)})
	var r permazen.Ref[oldPerson]
	_, err = pages.Open(page, prefix, db).Update(ctx, func(tx *permazen.Tx) (err error) {
		r, err = people.Create(ctx, tx, &oldPerson{Name: "Ann"})
		return err
	})
	must(t, err)
	edit := func(name string, n permazen.Counter) func(*ledger.Tx) error {
		return func(tx *ledger.Tx) error {
			ptx, err := db.Begin(ctx, pages.Writer(tx, prefix))
			if err != nil {
				return err
			}
			err = people.Update(ctx, ptx, r, func(p *oldPerson) error { p.Name, p.Visits = name, p.Visits+n; return nil })
			return errors.Join(err, tx.Put(ctx, append([]byte("db/\x00\xff"), name...), nil), tx.Put(ctx, []byte("db/\x00\xffapp"), []byte(name)))
		}
	}
	branches(t, page, edit("L", 1), edit("R", 2))
	results, err := page.Merge(ctx)
	must(t, err)
	must(t, pages.Open(page, prefix, db).View(ctx, func(tx *permazen.Tx) error {
		p, err := people.Get(ctx, tx, r)
		if p.Name != "R" || p.Visits != 3 {
			t.Errorf("%+v", p)
		}
		return err
	}))
	var told []string
	for d, err := range page.Conflicts(ctx, results[0].Commit.ID, nil) {
		must(t, err)
		told = append(told, fmt.Sprintf("%x %s %s", d.Key, d.Outcome, d.Rule))
	}
	name := fmt.Sprintf("%x%s%02x", prefix, r.ID, 4)
	if diff := cmp.Diff([]string{"64622f00ff617070 right permazen", name + " right permazen"}, told); diff != "" {
		t.Error(diff)
	}
	for _, key := range []string{"L", "R"} {
		must(t, page.View(ctx, func(s *ledger.Snapshot) error { _, err := s.Get(ctx, []byte("db/\x00\xff"+key)); return err }))
	}
	broken := func(tx *ledger.Tx) error { return tx.Put(ctx, append([]byte("db/"), r.ID[:]...), []byte("what")) }
	branches(t, page, edit("X", 1), broken)
	for range 2 {
		if _, err := page.Merge(ctx); !errors.Is(err, ledger.ErrCorrupt) {
			t.Fatal(err)
		}
	}
}

// pair is an object with one index on two fields: two long ones do not fit into a row of it.
type pair struct {
	_ struct{} `permazen:"both:one,other"`

	First string `permazen:"first"`
	One   string `permazen:"one"`
	Other string `permazen:"other"`
}

// newPair makes a page with one empty pair. edit gives the transaction that changes it.
func newPair(t *testing.T) (db *permazen.DB, pairs *permazen.Collection[pair], page *ledger.Page,
	r permazen.Ref[pair], edit func(change func(*pair)) func(*ledger.Tx) error) {
	ctx := t.Context()
	page = ledgertest.Page(t, ledgertest.OpenWith(t, ledger.Options{ManualMerge: true}), "app", "objects")
	var models permazen.Models
	pairs, err := permazen.Define[pair](&models, "Pair")
	must(t, err)
	db = database(&models, &permazen.Options{Random: random(1)})
	_, err = pages.Open(page, prefix, db).Update(ctx, func(tx *permazen.Tx) (err error) {
		r, err = pairs.Create(ctx, tx, &pair{})
		return err
	})
	must(t, err)
	return db, pairs, page, r, func(change func(*pair)) func(*ledger.Tx) error {
		return func(tx *ledger.Tx) error {
			ptx, err := db.Begin(ctx, pages.Writer(tx, prefix))
			if err != nil {
				return err
			}
			return pairs.Update(ctx, ptx, r, func(p *pair) error { change(p); return nil })
		}
	}
}

// TestTooLongTogether: values of both sides that do not fit into one index row do not stop the
// merges of a page.
func TestTooLongTogether(t *testing.T) {
	ctx := t.Context()
	db, pairs, page, r, edit := newPair(t)
	page.SetMergeRules(pages.MergeRule(prefix))
	long := strings.Repeat("x", 2500)
	branches(t, page, edit(func(p *pair) { p.First, p.One = "lost", long }), edit(func(p *pair) { p.Other = long }))
	results, err := page.Merge(ctx)
	must(t, err)
	must(t, pages.Open(page, prefix, db).View(ctx, func(tx *permazen.Tx) error {
		p, err := pairs.Get(ctx, tx, r)
		if err == nil && (p.First != "" || p.One != "" || p.Other != long) {
			t.Errorf("%.10q %.10q %.10q, not what was written last", p.First, p.One, p.Other)
		}
		return err
	}))
	told := 0
	for d, err := range page.Conflicts(ctx, results[0].Commit.ID, nil) {
		must(t, err)
		if told++; string(d.Key) != string(prefix)+string(r.ID[:]) || d.Outcome != "right" {
			t.Errorf("%x %s", d.Key, d.Outcome)
		}
	}
	if told != 1 {
		t.Errorf("%d conflicts", told)
	}
	cleanHere(t, &device{page: page})
}

// TestTooLongWithoutTheRule: a merge without the rule makes an object whose index row is too long.
// A repair mends the rest, and the object can be changed.
func TestTooLongWithoutTheRule(t *testing.T) {
	ctx := t.Context()
	_, _, page, _, edit := newPair(t)
	long := strings.Repeat("x", 2500)
	branches(t, page, edit(func(p *pair) { p.One = long }), edit(func(p *pair) { p.Other = long }))
	_, err := page.Merge(ctx)
	must(t, err)
	repair := func() (result jsck.Result) {
		_, err := page.Update(ctx, func(tx *ledger.Tx) (err error) {
			result, err = jsck.Repair(ctx, pages.Writer(tx, prefix), nil)
			return err
		})
		must(t, err)
		return result
	}
	if got := repair(); got.Lasting != 1 || got.Issues < 2 {
		t.Errorf("%+v", got)
	}
	_, err = page.Update(ctx, edit(func(p *pair) { p.One = "short" }))
	must(t, err)
	if got := repair(); got.Issues > 0 {
		t.Errorf("%+v", got)
	}
}
