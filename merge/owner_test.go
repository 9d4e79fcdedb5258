package merge_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/merge"
)

// owner is an Owner that is a function.
type owner func(ctx context.Context, p *merge.Pair, prefix []byte) iter.Seq2[btree.Change, error]

func (o owner) Own(ctx context.Context, p *merge.Pair, prefix []byte) iter.Seq2[btree.Change, error] {
	return o(ctx, p, prefix)
}

func put(key, value string) btree.Change {
	return btree.Change{Entry: fb.Entry{Key: []byte(key), Inline: true, Value: []byte(value), Size: uint64(len(value))}}
}

// tagging is an owner that gives every key that a side changed its name, and writes down what it
// saw.
func tagging(name string, seen *[]string) owner {
	return func(ctx context.Context, p *merge.Pair, prefix []byte) iter.Seq2[btree.Change, error] {
		return func(yield func(btree.Change, error) bool) {
			for c, err := range p.Changes(ctx, prefix) {
				if err != nil {
					yield(btree.Change{}, err)
					return
				}
				*seen = append(*seen, fmt.Sprintf("%s: %s %t %t %t", name, c.Key, c.HasBase, c.HasLeft, c.HasRight))
				c.Outcome, c.Rule = merge.TakeNew, name
				if err := p.Report(ctx, &c); err != nil {
					yield(btree.Change{}, err)
					return
				}
				if !yield(put(string(c.Key), name), nil) {
					return
				}
			}
		}
	}
}

func constant(cs ...btree.Change) owner {
	return func(context.Context, *merge.Pair, []byte) iter.Seq2[btree.Change, error] {
		return func(yield func(btree.Change, error) bool) {
			for _, c := range cs {
				if !yield(c, nil) {
					return
				}
			}
		}
	}
}

// ownedPage makes two heads with changes in nested namespaces.
func ownedPage(t tester) (p *testPage, l, r *commit.Commit) {
	t.Helper()
	p = newTestPage()
	b := p.commit(t, 1, edit{"a": "base", "n/1": "base", "n/m/2": "base", "n/x": "base", "z": "base"})
	l = p.commit(t, 2, edit{"a": "left", "n/1": "left", "n/m/2": gone, "n/m/o/9": "left", "n/y": "left", "z": "left"}, b)
	r = p.commit(t, 3, edit{"b": "right", "n/1": "right", "n/m/2": "right", "n/m/3": "right", "n/x": gone, "n/y": "left"}, b)
	return p, l, r
}

func TestOwners(t *testing.T) {
	p, l, r := ownedPage(t)
	var seen []string
	rules := merge.Rules{Rules: []merge.Rule{
		{Prefix: []byte("n/m/o/"), Owner: tagging("innermost", &seen)},
		{Prefix: []byte("n/"), Owner: tagging("outer", &seen)},
		{Prefix: []byte("n/m/"), Owner: tagging("inner", &seen)},
		{Prefix: []byte("empty/"), Owner: constant(put("empty/1", "made"))},
	}}
	env, sink := p.sealed()
	merged, err := merge.Heads(t.Context(), env, rules, []*commit.Commit{l, r})
	if err != nil {
		t.Fatal(err)
	}
	p.wantOnlyReachable(t, sink, merged)
	wantContent(t, p, merged[0].Commit, map[string]string{
		"a": "left", "b": "right", "empty/1": "made", "n/1": "outer", "n/m/2": "inner", "n/m/3": "inner", "n/m/o/9": "innermost",
		"n/x": "outer", "n/y": "outer", "z": "left",
	})
	slices.Sort(seen)
	if diff := cmp.Diff([]string{
		"inner: n/m/2 true false true", "inner: n/m/3 false false true",
		"innermost: n/m/o/9 false true false",
		"outer: n/1 true true true", "outer: n/x true true false", "outer: n/y false true true",
	}, seen); diff != "" {
		t.Errorf("changes that owners saw: -want +got:\n%s", diff)
	}
	var decisions []string
	for d, err := range merge.Decisions(t.Context(), p.view(), merged[0].Explanation, []byte("n/m")) {
		if err != nil {
			t.Fatal(err)
		}
		decisions = append(decisions, fmt.Sprint(string(d.Key), " ", d.Rule))
	}
	if diff := cmp.Diff([]string{"n/m/2 inner", "n/m/3 inner", "n/m/o/9 innermost"}, decisions); diff != "" {
		t.Errorf("decisions: -want +got:\n%s", diff)
	}
	if merged[0].Conflicts != 6 {
		t.Errorf("%d decisions", merged[0].Conflicts)
	}
}

// An owner is asked although only one side has changed anything.
func TestOwnerOfOneSide(t *testing.T) {
	p, l, _ := ownedPage(t)
	b := p.commits[l.Parents[0]]
	same := p.commit(t, 5, edit{"x": gone}, p.commit(t, 4, edit{"x": "1"}, b))
	var seen []string
	m := heads(t, p, merge.Rules{Rules: []merge.Rule{{Prefix: []byte("n/"), Owner: tagging("owner", &seen)}}}, l, same)[0]
	if got := p.content(t, m.Commit.Root); got["n/1"] != "owner" || got["a"] != "left" || len(seen) != 4 {
		t.Errorf("content %v, seen %v", got, seen)
	}
}

// A later report of a key replaces an earlier one, also when thousands lie in between.
func TestReports(t *testing.T) {
	p, l, r := ownedPage(t)
	const n = 10_000
	o := owner(func(ctx context.Context, p *merge.Pair, _ []byte) iter.Seq2[btree.Change, error] {
		return func(yield func(btree.Change, error) bool) {
			for round := range 3 {
				for i := n - 1; i >= 0; i-- {
					c := &merge.Conflict{Key: fmt.Appendf(nil, "n/%06d", i*(round+1)), Outcome: merge.TakeNone, Rule: fmt.Sprint("round ", round)}
					if err := p.Report(ctx, c); err != nil {
						yield(btree.Change{}, err)
						return
					}
				}
			}
		}
	})
	env, sink := p.sealed()
	merged, err := merge.Heads(t.Context(), env, merge.Rules{Rules: []merge.Rule{{Prefix: []byte("n/"), Owner: o}}}, []*commit.Commit{l, r})
	if err != nil {
		t.Fatal(err)
	}
	p.wantOnlyReachable(t, sink, merged)
	want := map[string]string{}
	for round := range 3 {
		for i := range n {
			want[fmt.Sprintf("n/%06d", i*(round+1))] = fmt.Sprint("round ", round)
		}
	}
	got := map[string]string{}
	for d, err := range merge.Decisions(t.Context(), p.view(), merged[0].Explanation, nil) {
		if err != nil {
			t.Fatal(err)
		}
		got[string(d.Key)] = d.Rule
	}
	if diff := cmp.Diff(want, got); diff != "" || merged[0].Conflicts != len(want) {
		t.Errorf("%d decisions: -want +got:\n%s", merged[0].Conflicts, diff)
	}
}

func TestOwnersThatBreakTheirContract(t *testing.T) {
	errOwn := errors.New("owner is tired")
	report := func(c *merge.Conflict) owner {
		return func(ctx context.Context, p *merge.Pair, _ []byte) iter.Seq2[btree.Change, error] {
			return func(yield func(btree.Change, error) bool) {
				if err := p.Report(ctx, c); err != nil {
					yield(btree.Change{}, err)
				}
			}
		}
	}
	for name, c := range map[string]struct {
		owner owner
		want  error
	}{
		"a key before its own":    {constant(put("m", "x")), base.ErrInvalid},
		"a key behind its own":    {constant(put("n/9", "x"), put("o", "x")), base.ErrInvalid},
		"a key of an inner rule":  {constant(put("n/m/4", "x")), base.ErrInvalid},
		"inner after a good one":  {constant(put("n/1", "x"), put("n/m/4", "x")), base.ErrInvalid},
		"keys out of order":       {constant(put("n/9", "x"), put("n/8", "x")), base.ErrInvalid},
		"a long inline value":     {constant(put("n/1", strings.Repeat("x", 257))), base.ErrInvalid},
		"report without a rule":   {report(&merge.Conflict{Key: []byte("n/1"), Outcome: merge.TakeLeft}), base.ErrInvalid},
		"report without outcome":  {report(&merge.Conflict{Key: []byte("n/1"), Rule: "r"}), base.ErrInvalid},
		"report of another's key": {report(&merge.Conflict{Key: []byte("n/m/1"), Outcome: merge.TakeLeft, Rule: "r"}), base.ErrInvalid},
		"report with long rule":   {report(&merge.Conflict{Key: []byte("n/1"), Outcome: merge.TakeLeft, Rule: strings.Repeat("r", 129)}), base.ErrInvalid},
		"report with binary rule": {report(&merge.Conflict{Key: []byte("n/1"), Outcome: merge.TakeLeft, Rule: "\xff"}), base.ErrInvalid},
		"an error of its own":     {func(context.Context, *merge.Pair, []byte) iter.Seq2[btree.Change, error] { return failSeq(errOwn) }, errOwn},
		"changes and then one": {func(context.Context, *merge.Pair, []byte) iter.Seq2[btree.Change, error] {
			return failSeq(errOwn, put("n/1", "x"))
		}, errOwn},
		"no changes and no errors": {constant(), nil},
	} {
		p, l, r := ownedPage(t)
		rules := merge.Rules{Rules: []merge.Rule{{Prefix: []byte("n/"), Owner: c.owner}, {Prefix: []byte("n/m/"), Decider: merge.LastOneWins()}}}
		if _, err := merge.Heads(t.Context(), p.env(), rules, []*commit.Commit{l, r}); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func failSeq(err error, before ...btree.Change) iter.Seq2[btree.Change, error] {
	return func(yield func(btree.Change, error) bool) {
		for _, c := range before {
			if !yield(c, nil) {
				return
			}
		}
		yield(btree.Change{}, err)
	}
}

// decider is a Decider that is a function.
type decider func(ctx context.Context, p *merge.Pair, cs []merge.Conflict) error

func (d decider) Decide(ctx context.Context, p *merge.Pair, cs []merge.Conflict) error {
	return d(ctx, p, cs)
}

func TestDecidersThatBreakTheirContract(t *testing.T) {
	errDecide := errors.New("decider is tired")
	answer := func(c merge.Conflict) decider {
		return func(_ context.Context, _ *merge.Pair, cs []merge.Conflict) error {
			for i := range cs {
				cs[i].Outcome, cs[i].Rule, cs[i].New = c.Outcome, c.Rule, c.New
			}
			return nil
		}
	}
	for name, c := range map[string]struct {
		decider decider
		want    error
		text    string
	}{
		"undecided":       {answer(merge.Conflict{Rule: "r"}), base.ErrInvalid, "6e2f31"},
		"no rule":         {answer(merge.Conflict{Outcome: merge.TakeLeft}), base.ErrInvalid, ""},
		"no such outcome": {answer(merge.Conflict{Outcome: 5, Rule: "r"}), base.ErrInvalid, ""},
		"long inline":     {answer(merge.Conflict{Outcome: merge.TakeNew, Rule: "r", New: put("", strings.Repeat("x", 257)).Entry}), base.ErrInvalid, ""},
		"new that is nothing": {
			answer(merge.Conflict{Outcome: merge.TakeNew, Rule: "r"}), base.ErrInvalid, "",
		},
		"error": {func(context.Context, *merge.Pair, []merge.Conflict) error { return errDecide }, errDecide, ""},
		"other order": {func(_ context.Context, _ *merge.Pair, cs []merge.Conflict) error {
			cs[0], cs[1] = cs[1], cs[0]
			return nil
		}, base.ErrInvalid, ""},
		"report": {func(ctx context.Context, p *merge.Pair, cs []merge.Conflict) error {
			return p.Report(ctx, &merge.Conflict{Key: cs[0].Key, Outcome: merge.TakeLeft, Rule: "r"})
		}, base.ErrInvalid, ""},
	} {
		p, l, r := ownedPage(t)
		_, err := merge.Heads(t.Context(), p.env(), rulesOf(c.decider), []*commit.Commit{l, r})
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v, want %v with %q", name, err, c.want, c.text)
		}
	}
}

func TestRulesThatCannotBe(t *testing.T) {
	p, l, r := ownedPage(t)
	d, o := merge.LastOneWins(), constant()
	for name, rules := range map[string][]merge.Rule{
		"twice":   {{Prefix: []byte("n"), Decider: d}, {Prefix: []byte("m"), Decider: d}, {Prefix: []byte("n"), Owner: o}},
		"default": {{Decider: d}, {Prefix: []byte{}, Decider: d}},
		"neither": {{Prefix: []byte("n")}},
		"both":    {{Prefix: []byte("n"), Decider: d, Owner: o}},
	} {
		if _, err := merge.Heads(t.Context(), p.env(), merge.Rules{Rules: rules}, []*commit.Commit{l, r}); !errors.Is(err, base.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", name, err)
		}
	}
}

// A rule that wants all is asked about every change; only what differs from the plain merge is
// recorded.
func TestAll(t *testing.T) {
	p, l, r := ownedPage(t)
	var keys []string
	all := decider(func(_ context.Context, _ *merge.Pair, cs []merge.Conflict) error {
		for i := range cs {
			c := &cs[i]
			keys = append(keys, string(c.Key))
			c.Outcome, c.Rule = merge.TakeLeft, "left is right"
		}
		return nil
	})
	rules := merge.Rules{Rules: []merge.Rule{{Prefix: []byte("n/"), All: true, Decider: all}}}
	m := heads(t, p, rules, l, r)[0]
	wantContent(t, p, m.Commit, map[string]string{"a": "left", "b": "right", "n/1": "left", "n/m/o/9": "left", "n/x": "base", "n/y": "left", "z": "left"})
	if diff := cmp.Diff([]string{"n/1", "n/m/2", "n/m/3", "n/m/o/9", "n/x", "n/y"}, keys); diff != "" {
		t.Errorf("keys asked: -want +got:\n%s", diff)
	}
	var recorded []string
	for d, err := range merge.Decisions(t.Context(), p.view(), m.Explanation, nil) {
		if err != nil {
			t.Fatal(err)
		}
		recorded = append(recorded, string(d.Key))
	}
	// n/1 and n/m/2 are conflicts; n/m/3 and n/x are changes of right that were not taken.
	if diff := cmp.Diff([]string{"n/1", "n/m/2", "n/m/3", "n/x"}, recorded); diff != "" {
		t.Errorf("recorded: -want +got:\n%s", diff)
	}
}
