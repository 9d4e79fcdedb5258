package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
	"github.com/ledgerd/ledger/rules"
)

func oneHead(t testing.TB, p *ledger.Page) ledger.Commit {
	t.Helper()
	heads, err := p.Heads(t.Context())
	must(t, err)
	if len(heads) != 1 {
		t.Fatalf("%d heads, want 1", len(heads))
	}
	return heads[0]
}

func decisions(t testing.TB, p *ledger.Page, id ledger.CommitID) []ledger.Decision {
	t.Helper()
	var all []ledger.Decision
	for d, err := range p.Conflicts(t.Context(), id, nil) {
		must(t, err)
		all = append(all, d)
	}
	return all
}

func valueOf(t testing.TB, e *ledger.Entry) string {
	t.Helper()
	if e == nil {
		return "absent"
	}
	v, err := e.Value(t.Context())
	must(t, err)
	return string(v)
}

func TestMerge(t *testing.T) {
	p := memoryPage(t, ledger.Options{ManualMerge: true})
	if results, err := p.Merge(t.Context()); err != nil || results != nil {
		t.Errorf("merge of one head: %v, %v", results, err)
	}
	base := put(t, p, "k", "base", "gone", "x", "stays", "x")
	a := sibling(t, p, base, "k", "a", "left", "1")
	tx, err := p.Begin(t.Context(), &ledger.TxOptions{Base: base})
	must(t, err)
	must(t, tx.Put(t.Context(), []byte("k"), []byte("b")))
	must(t, tx.Delete(t.Context(), []byte("gone")))
	b, err := tx.Commit(t.Context())
	must(t, err)
	wantErr(t, p.WaitForMerge(t.Context()), ledger.ErrConflict)

	results, err := p.Merge(t.Context())
	must(t, err)
	head := oneHead(t, p)
	if len(results) != 1 {
		t.Fatalf("results %+v", results)
	}
	r := results[0]
	if r.Commit.ID != head.ID || r.Left.ID != a || r.Right.ID != b || r.How != "three-way" || r.Conflicts != 1 {
		t.Errorf("result %+v", r)
	}
	wantHead(t, p, head.ID)
	wantContent(t, p, map[string]string{"k": "b", "left": "1", "stays": "x"})
	must(t, p.WaitForMerge(t.Context()))
	ds := decisions(t, p, head.ID)
	if len(ds) != 1 {
		t.Fatalf("decisions %+v", ds)
	}
	d := ds[0]
	if string(d.Key) != "k" || d.Outcome != "right" || d.LeftWriter != a || d.RightWriter != b || d.Rule == "" ||
		valueOf(t, d.Left) != "a" || valueOf(t, d.Right) != "b" || valueOf(t, d.Result) != "b" {
		t.Errorf("decision %+v", d)
	}
	for _, err := range p.Conflicts(t.Context(), a, nil) {
		wantErr(t, err, ledger.ErrInvalid)
	}
	for _, err := range p.Conflicts(t.Context(), ledger.CommitID{1}, nil) {
		wantErr(t, err, ledger.ErrNotFound)
	}
	for d, err := range p.Conflicts(t.Context(), head.ID, []byte("x")) {
		t.Errorf("a decision with another prefix: %+v, %v", d, err)
	}
	checkClean(t, p.Repository())
}

func TestManyHeadsComeTogetherAtOnce(t *testing.T) {
	var events recorder
	r := open(t, t.TempDir(), &ledger.Options{ManualMerge: true, Observe: events.Observe})
	p := page(t, r, "app", "page")
	base := put(t, p, "k", "base")
	want := map[string]string{"k": "6"}
	for i := range 7 {
		k := fmt.Sprint("own", i)
		sibling(t, p, base, "k", fmt.Sprint(i), k, "x")
		want[k] = "x"
	}
	before, err := admin.Stats(p)
	must(t, err)
	results, err := p.Merge(t.Context())
	must(t, err)
	after, err := admin.Stats(p)
	must(t, err)
	if len(results) != 6 || after.Batches-before.Batches != 1 || events.count(ledger.EventMerge) != 6 {
		t.Errorf("%d merges in %d batches, %d events", len(results), after.Batches-before.Batches, events.count(ledger.EventMerge))
	}
	if head := oneHead(t, p); head.ID != results[5].Commit.ID {
		t.Errorf("head %+v", head)
	}
	wantContent(t, p, want)
	checkClean(t, r)
}

// merges is an observer that tells of merges.
type merges chan ledger.Event

func (m merges) Observe(e ledger.Event) {
	if e.Kind == ledger.EventMerge {
		m <- e
	}
}

func TestHeadsComeTogetherInTheBackground(t *testing.T) {
	merged := make(merges, 10)
	r := open(t, t.TempDir(), &ledger.Options{Observe: merged.Observe})
	p, q := page(t, r, "app", "page"), page(t, r, "app", "page")
	base := put(t, p, "k", "base")
	begin := func(p *ledger.Page, k string) *ledger.Tx {
		tx, err := p.Begin(t.Context(), &ledger.TxOptions{Base: base})
		must(t, err)
		must(t, tx.Put(t.Context(), []byte(k), []byte("x")))
		return tx
	}
	a, b := begin(p, "a"), begin(q, "b")
	_, err := a.Commit(t.Context())
	must(t, err)
	_, err = b.Commit(t.Context())
	must(t, err)
	<-merged // without being asked for
	must(t, p.WaitForMerge(t.Context()))
	for _, h := range []*ledger.Page{p, q} {
		wantContent(t, h, map[string]string{"k": "base", "a": "x", "b": "x"})
	}
	oneHead(t, p)
	must(t, p.Close())
	must(t, q.Close())
	checkClean(t, r)
}

func TestAPageOpenedWithSeveralHeadsMerges(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir, &ledger.Options{ManualMerge: true})
	p := page(t, r, "app", "page")
	base := put(t, p, "k", "base")
	sibling(t, p, base, "a", "1")
	sibling(t, p, base, "b", "2")
	closeIt(t, r)

	ro := open(t, dir, &ledger.Options{ReadOnly: true})
	p = page(t, ro, "app", "page")
	wantErr(t, p.WaitForMerge(t.Context()), ledger.ErrConflict)
	_, err := p.Merge(t.Context())
	wantErr(t, err, ledger.ErrReadOnly)
	p.SetMergeRules() // starts nothing
	closeIt(t, ro)

	merged := make(merges, 10)
	r = open(t, dir, &ledger.Options{Observe: merged.Observe})
	st, err := admin.Status(t.Context(), r)
	must(t, err)
	if st.Heads != 2 {
		t.Errorf("status merges: %d heads", st.Heads)
	}
	p = page(t, r, "app", "page")
	if e := <-merged; e.Changes != 0 || e.Commit != oneHead(t, p).ID {
		t.Errorf("event %+v", e)
	}
	wantContent(t, p, map[string]string{"k": "base", "a": "1", "b": "2"})
	closeIt(t, r)
}

func TestTheSameHeadsMergeToTheSameCommit(t *testing.T) {
	dir, copied := t.TempDir(), t.TempDir()
	r := open(t, dir, &ledger.Options{ManualMerge: true, Device: "one"})
	p := page(t, r, "app", "page")
	base := put(t, p, "k", "base", "n", "1")
	for i := range 3 {
		sibling(t, p, base, "k", fmt.Sprint(i), "n", fmt.Sprint(10*i), fmt.Sprint(i), strings.Repeat("x", 5000))
	}
	must(t, admin.Backup(t.Context(), r, copied, nil))
	other := open(t, copied, &ledger.Options{ManualMerge: true, Device: "two"})
	q := page(t, other, "app", "page")
	rules := []ledger.MergeRule{{Prefix: []byte("n"), Strategy: rules.Counter()}}
	p.SetMergeRules(rules...)
	q.SetMergeRules(rules...)
	a, err := p.Merge(t.Context())
	must(t, err)
	b, err := q.Merge(t.Context())
	must(t, err)
	if diff := cmp.Diff(a, b); diff != "" {
		t.Errorf("the repositories differ:\n%s", diff)
	}
	got := pageContent(t, p)
	if got["n"] != "28" || got["k"] != "2" { // 1 + (0-1) + (10-1) + (20-1)
		t.Errorf("n %s, k %s", got["n"], got["k"])
	}
}

func TestRulesOfPageAndOptions(t *testing.T) {
	take := func(name string) []ledger.MergeRule {
		return []ledger.MergeRule{{Strategy: ledger.Automatic(ledger.Resolver(func(context.Context, *ledger.MergeConflict) (ledger.Resolution, error) {
			return ledger.Resolution{Take: ledger.TakeNew, Value: []byte(name), Rule: name}, nil
		}))}}
	}
	o := ledger.Options{ManualMerge: true, MergeRules: func(l string, id ledger.PageID) []ledger.MergeRule {
		if l != "app" || id != ledger.DerivePageID("app", "page") {
			t.Errorf("asked for page %s of %q", id, l)
		}
		return take("options")
	}}
	p := memoryPage(t, o)
	check := func(want string) {
		t.Helper()
		base := put(t, p, "k", "base")
		sibling(t, p, base, "k", "a")
		sibling(t, p, base, "k", "b")
		results, err := p.Merge(t.Context())
		must(t, err)
		wantContent(t, p, map[string]string{"k": want})
		if ds := decisions(t, p, results[0].Commit.ID); len(ds) != 1 || ds[0].Rule != want && want != "b" || ds[0].Outcome != "new" && want != "b" {
			t.Errorf("decisions %+v", ds)
		}
	}
	check("options")
	p.SetMergeRules(take("page")...)
	check("page")
	p.SetMergeRules(ledger.MergeRule{})
	check("b")
	p.SetMergeRules()
	check("options")
}

func TestUpdatesWhileMerging(t *testing.T) {
	r := open(t, t.TempDir(), nil)
	var wg sync.WaitGroup
	const workers, each = 4, 10
	for w := range workers {
		p := page(t, r, "app", "page")
		wg.Go(func() {
			for i := range each {
				tx, err := p.Begin(t.Context(), nil)
				if err != nil {
					t.Error(err)
					return
				}
				err = errors.Join(tx.Put(t.Context(), key(w*100+i), []byte("x")), tx.Put(t.Context(), []byte("shared"), key(i)))
				if err != nil {
					t.Error(err)
				}
				if i%3 == 0 {
					put(t, p, fmt.Sprint("u", w, i), "x")
				}
				if _, err := tx.Commit(t.Context()); err != nil {
					t.Error(err)
				}
				if i%4 == 0 {
					if err := p.WaitForMerge(t.Context()); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	p := page(t, r, "app", "page")
	must(t, p.WaitForMerge(t.Context()))
	got := pageContent(t, p)
	if len(got) != workers*(each+4)+1 {
		t.Errorf("%d keys, want %d", len(got), workers*(each+4)+1)
	}
	oneHead(t, p)
	checkClean(t, r)
}

func TestMergeObeysItsContextAndClose(t *testing.T) {
	r := open(t, t.TempDir(), &ledger.Options{ManualMerge: true})
	p := page(t, r, "app", "page")
	base := put(t, p, "k", "base")
	sibling(t, p, base, "k", "a")
	sibling(t, p, base, "k", "b")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := p.Merge(ctx)
	wantErr(t, err, context.Canceled)

	began := make(chan struct{})
	blocking := []ledger.MergeRule{{Strategy: ledger.Custom(ledger.Resolver(func(ctx context.Context, _ *ledger.MergeConflict) (ledger.Resolution, error) {
		began <- struct{}{}
		<-ctx.Done()
		return ledger.Resolution{}, ctx.Err()
	}))}}
	p.SetMergeRules(blocking...)
	results := make(chan error, 2)
	ctx, cancel = context.WithCancel(t.Context())
	go func() { _, err := p.Merge(ctx); results <- err }()
	<-began
	waiting, stop := context.WithCancel(t.Context())
	go func() { _, err := p.Merge(waiting); results <- err }() // waits for the first one
	stop()
	wantErr(t, <-results, context.Canceled)
	cancel()
	wantErr(t, <-results, context.Canceled)
	if heads, err := p.Heads(t.Context()); err != nil || len(heads) != 2 {
		t.Fatalf("%d heads, %v", len(heads), err)
	}
	go func() { _, err := p.Merge(t.Context()); results <- err }()
	<-began
	closeIt(t, r)
	wantErr(t, <-results, ledger.ErrClosed)
	_, err = p.Merge(t.Context())
	wantErr(t, err, ledger.ErrClosed)
	wantErr(t, p.WaitForMerge(t.Context()), ledger.ErrClosed)
	for _, err := range p.Conflicts(t.Context(), base, nil) {
		wantErr(t, err, ledger.ErrClosed)
	}
}
