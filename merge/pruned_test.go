package merge_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/merge"
)

// shallow is a testPage some of whose commits were pruned, and of some of whose trees nothing is
// left.
type shallow struct {
	*testPage
	pruned, lost map[commit.ID]bool
}

func (s shallow) Commit(ctx context.Context, id commit.ID) (*commit.Commit, error) {
	if s.pruned[id] {
		return nil, fmt.Errorf("commit %s: %w", id, base.ErrGone)
	}
	return s.testPage.Commit(ctx, id)
}

func (s shallow) view() *merge.View {
	v := s.testPage.view()
	v.Commits, v.Lost = s, func(id commit.ID) bool { return s.lost[id] }
	return v
}

func (s shallow) merge(t *testing.T, heads ...*commit.Commit) merge.Merged {
	t.Helper()
	env := s.env()
	env.View = *s.view()
	m, err := merge.Heads(t.Context(), env, merge.Rules{}, heads)
	if err != nil {
		t.Fatal(err)
	}
	return m[0]
}

func setOf(cs ...*commit.Commit) map[commit.ID]bool {
	m := map[commit.ID]bool{}
	for _, c := range cs {
		m[c.ID] = true
	}
	return m
}

// TestMergeWithoutItsBase merges sides whose latest common ancestor was pruned, or has lost its
// tree: with a lower one where that can still be found, else key by key without any.
func TestMergeWithoutItsBase(t *testing.T) {
	p := newTestPage()
	low := p.commit(t, 1, edit{"kept": "1", "left": "1", "right": "1", "both": "1", "removed": "1"})
	high := p.commit(t, 2, edit{"kept": "2"}, low)
	left := p.commit(t, 3, edit{"left": "2", "both": "l", "removed": gone}, high)
	right := p.commit(t, 4, edit{"right": "2", "both": "r"}, high)
	for name, c := range map[string]struct {
		page shallow
		want map[string]string
	}{
		"all is there":             {shallow{p, nil, nil}, map[string]string{"kept": "2", "left": "2", "right": "2", "both": "r"}},
		"the tree is lost":         {shallow{p, nil, setOf(high)}, map[string]string{"kept": "2", "left": "2", "right": "2", "both": "r"}},
		"all trees are lost":       {shallow{p, nil, setOf(high, low)}, map[string]string{"kept": "2", "left": "1", "right": "2", "both": "r", "removed": "1"}},
		"it was pruned":            {shallow{p, setOf(high, low), nil}, map[string]string{"kept": "2", "left": "1", "right": "2", "both": "r", "removed": "1"}},
		"what is below was pruned": {shallow{p, setOf(low), setOf(high)}, map[string]string{"kept": "2", "left": "1", "right": "2", "both": "r", "removed": "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := c.page.merge(t, left, right)
			if got := p.content(t, m.Commit.Root); !maps.Equal(got, c.want) {
				t.Errorf("content %v, want %v", got, c.want)
			}
		})
	}
}

// TestHeadsWhoseMergeWasGivenUp merges two heads that came back after their merge, and what is
// built on that: their merge is no head to go on with.
func TestHeadsWhoseMergeWasGivenUp(t *testing.T) {
	p := newTestPage()
	low := p.commit(t, 1, edit{"kept": "1"})
	left, right := p.commit(t, 2, edit{"left": "2"}, low), p.commit(t, 3, edit{"right": "2"}, low)
	env := p.env()
	known, err := merge.Heads(t.Context(), env, merge.Rules{}, []*commit.Commit{left, right})
	if err != nil {
		t.Fatal(err)
	}
	between := known[0].Commit
	p.commits[between.ID] = between
	above := p.commit(t, 4, edit{"above": "2"}, between)
	env.View = *shallow{p, setOf(low, between), nil}.view()
	m, err := merge.Heads(t.Context(), env, merge.Rules{}, []*commit.Commit{left, right, above})
	if err != nil || len(m) != 2 {
		t.Fatalf("%d merges, %v", len(m), err)
	}
	want := map[string]string{"kept": "1", "left": "2", "right": "2", "above": "2"}
	if got := p.content(t, m[1].Commit.Root); !maps.Equal(got, want) {
		t.Errorf("content %v, want %v", got, want)
	}
	if _, err := merge.Heads(t.Context(), env, merge.Rules{}, []*commit.Commit{between, above}); !errors.Is(err, base.ErrInvalid) {
		t.Errorf("a head and its parent: %v", err)
	}
}

// TestWhyEndsWhereHistoryWasGivenUp names the oldest commit that has the value, and says so.
func TestWhyEndsWhereHistoryWasGivenUp(t *testing.T) {
	p := newTestPage()
	first := p.commit(t, 1, edit{"old": "1", "new": "1"})
	second := p.commit(t, 2, edit{"other": "1"}, first)
	third := p.commit(t, 3, edit{"new": "2"}, second)
	s := shallow{p, setOf(first), nil}
	for key, want := range map[string]struct {
		at     *commit.Commit
		pruned bool
	}{"old": {second, true}, "new": {third, false}, "other": {second, true}} {
		n := 0
		for step, err := range merge.Why(t.Context(), s.view(), third, []byte(key)) {
			if err != nil {
				t.Fatal(err)
			}
			if n++; step.Commit.ID != want.at.ID || step.Pruned != want.pruned {
				t.Errorf("%s: commit %s, pruned %t", key, step.Commit.ID.Short(), step.Pruned)
			}
		}
		if n != 1 {
			t.Errorf("%s: %d steps", key, n)
		}
	}
	for range merge.Why(t.Context(), s.view(), third, []byte("never")) {
		t.Error("a step for a key that nobody has")
	}
}

// TestMergeOfMergesWithoutTheirParents does not take a merge for one that has nothing of its own
// because what it has merged was pruned.
func TestMergeOfMergesWithoutTheirParents(t *testing.T) {
	p := newTestPage()
	a, b := p.commit(t, 1, edit{"a": "1"}), p.commit(t, 2, edit{"b": "1"})
	left := p.commit(t, 3, edit{"b": "1"}, a, b)
	c, d := p.commit(t, 3, edit{"c": "1"}), p.commit(t, 4, edit{"d": "1"})
	right := p.commit(t, 5, edit{"d": "1"}, c, d)
	m := shallow{p, setOf(a, b, c, d), nil}.merge(t, left, right)
	want := map[string]string{"a": "1", "b": "1", "c": "1", "d": "1"}
	if got := p.content(t, m.Commit.Root); !maps.Equal(got, want) || m.How != merge.ThreeWay {
		t.Errorf("content %v, %d", got, m.How)
	}
}

// reduced is a shallow page that knows the nearest ancestors of commits of which a parent is gone.
type reduced struct {
	shallow
	near map[commit.ID][]commit.ID
}

// Near implements merge.NearGetter.
func (r reduced) Near(_ context.Context, id commit.ID) ([]commit.ID, bool, error) {
	near, ok := r.near[id]
	return near, ok, nil
}

// TestMergeByNearestAncestors merges sides of which one stands on a commit that was given up: their
// base is the one that both had, not the empty page.
func TestMergeByNearestAncestors(t *testing.T) {
	p := newTestPage()
	low := p.commit(t, 1, edit{"kept": "1", "left": "1", "right": "1", "removed": "1"})
	left := p.commit(t, 2, edit{"left": "2", "removed": gone}, low)
	between := p.commit(t, 3, edit{"right": "2"}, low)
	right := p.commit(t, 4, edit{"more": "1"}, between)
	page := reduced{shallow{p, setOf(between), nil}, map[commit.ID][]commit.ID{right.ID: {low.ID}}}
	env := page.env()
	env.View = *page.view()
	env.View.Commits = page
	m, err := merge.Heads(t.Context(), env, merge.Rules{}, []*commit.Commit{left, right})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"kept": "1", "left": "2", "right": "2", "more": "1"}
	if got := p.content(t, m[0].Commit.Root); !maps.Equal(got, want) || m[0].Conflicts != 0 {
		t.Errorf("content %v with %d conflicts, want %v with none", got, m[0].Conflicts, want)
	}
}

// mergeThree merges three heads into one with the content want, without a conflict.
func (r reduced) mergeThree(t *testing.T, want map[string]string, heads ...*commit.Commit) {
	t.Helper()
	env := r.env()
	env.View = *r.view()
	env.View.Commits = r
	ms, err := merge.Heads(t.Context(), env, merge.Rules{}, heads)
	if err != nil {
		t.Fatal(err)
	}
	if got := r.content(t, ms[1].Commit.Root); !maps.Equal(got, want) || ms[0].Conflicts+ms[1].Conflicts > 0 {
		t.Errorf("content %v with %d conflicts, want %v without", got, ms[0].Conflicts+ms[1].Conflicts, want)
	}
}

// TestHeadsApart merges two heads that have only in common what was pruned, and each a commit with
// a third one: what only one of them has changed is no conflict.
func TestHeadsApart(t *testing.T) {
	p := newTestPage()
	low := p.commit(t, 1, edit{"key": "1"})
	x, y := p.commit(t, 2, edit{"x": "1"}, low), p.commit(t, 3, edit{"y": "1"}, low)
	left, right := p.commit(t, 4, edit{"left": "1"}, x), p.commit(t, 5, edit{"key": "2"}, y)
	third := p.merge(t, merge.Rules{}, x, y)
	last := p.commit(t, 6, edit{"third": "1"}, third)
	page := reduced{shallow{p, setOf(low), nil}, nil}
	want := map[string]string{"key": "2", "x": "1", "y": "1", "left": "1", "third": "1"}
	page.mergeThree(t, want, left, right, last)
}

// TestHeadsWithAnOldBase is TestHeadsApart with an older common commit that is left: it is no base
// as long as there is a later one.
func TestHeadsWithAnOldBase(t *testing.T) {
	p := newTestPage()
	old := p.commit(t, 1, edit{"key": "0", "x": "0"})
	low := p.commit(t, 2, edit{"key": "1", "x": "1"}, old)
	x, y := p.commit(t, 3, edit{"x": "2"}, low), p.commit(t, 4, edit{"y": "1"}, low)
	left, right := p.commit(t, 5, edit{"left": "1"}, x), p.commit(t, 6, edit{"key": "2"}, y)
	third := p.merge(t, merge.Rules{}, x, y)
	last := p.commit(t, 7, edit{"third": "1"}, third)
	near := map[commit.ID][]commit.ID{x.ID: {old.ID}, y.ID: {old.ID}}
	page := reduced{shallow{p, setOf(low), nil}, near}
	want := map[string]string{"key": "2", "x": "2", "y": "1", "left": "1", "third": "1"}
	page.mergeThree(t, want, left, right, last)
}

// TestHeadsWithALateBaseBesideAPrunedOne is TestHeadsWithAnOldBase where two heads also have a
// later commit in common: that does not stand for the base that was given up.
func TestHeadsWithALateBaseBesideAPrunedOne(t *testing.T) {
	p := newTestPage()
	old := p.commit(t, 1, edit{"key": "0", "x": "0"})
	low := p.commit(t, 2, edit{"key": "1", "x": "1"}, old)
	x, y := p.commit(t, 3, edit{"x": "2"}, low), p.commit(t, 4, edit{"y": "1"}, low)
	side := old
	for i := range 9 {
		side = p.commit(t, 5, edit{"side": fmt.Sprint(i)}, side)
	}
	third := p.merge(t, merge.Rules{}, x, y)
	left := p.commit(t, 20, edit{"left": "1"}, p.merge(t, merge.Rules{}, x, side))
	right := p.commit(t, 30, edit{"key": "2"}, p.merge(t, merge.Rules{}, y, side))
	last := p.commit(t, 40, edit{"third": "1"}, third)
	near := map[commit.ID][]commit.ID{x.ID: {old.ID}, y.ID: {old.ID}}
	page := reduced{shallow{p, setOf(low), nil}, near}
	want := map[string]string{"key": "2", "x": "2", "y": "1", "side": "8", "left": "1", "third": "1"}
	page.mergeThree(t, want, left, right, last)
}
