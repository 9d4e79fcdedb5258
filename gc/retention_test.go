package gc_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/gc"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"pgregory.net/rapid"
)

// graph is a history in memory.
type graph map[commit.ID]*commit.Commit

// Commit implements commit.Getter.
func (g graph) Commit(_ context.Context, id commit.ID) (*commit.Commit, error) {
	if c := g[id]; c != nil {
		return c, nil
	}
	return nil, fmt.Errorf("commit %s: %w", id, base.ErrNotFound)
}

// add makes a commit at a time in seconds.
func (g graph) add(t rapid.TB, at int, parents ...*commit.Commit) *commit.Commit {
	t.Helper()
	c, err := commit.New(commit.Params{Now: time.Unix(int64(at), 0), Root: btree.EmptyRoot, Parents: parents, Message: fmt.Sprint(len(g))})
	if err != nil {
		t.Fatal(err)
	}
	g[c.ID] = c
	return c
}

func prune(t rapid.TB, p gc.Page, policy gc.Policy, now int) []commit.ID {
	t.Helper()
	gone, err := gc.Prune(context.Background(), p, policy, time.Unix(int64(now), 0))
	if err != nil {
		t.Fatal(err)
	}
	return gone
}

func ids(cs ...*commit.Commit) (out []commit.ID) {
	for _, c := range cs {
		out = append(out, c.ID)
	}
	return out
}

func TestRules(t *testing.T) {
	g := graph{}
	chain := []*commit.Commit{g.add(t, 10, commit.First())}
	for i := 1; i < 6; i++ {
		chain = append(chain, g.add(t, 10+10*i, chain[i-1]))
	}
	side := g.add(t, 70, chain[2])
	island := g.add(t, 5, commit.First())
	head := gc.Page{History: g, Heads: chain[5:]}
	with := func(fn func(*gc.Page)) gc.Page {
		p := head
		fn(&p)
		return p
	}
	for name, c := range map[string]struct {
		page   gc.Page
		policy gc.Policy
		want   []commit.ID
	}{
		"everything is kept":  {head, gc.Policy{}, nil},
		"the last":            {head, gc.Policy{Commits: 1}, ids(chain[4], chain[3], chain[2], chain[1], chain[0])},
		"the last two":        {head, gc.Policy{Commits: 2}, ids(chain[3], chain[2], chain[1], chain[0])},
		"more than there are": {head, gc.Policy{Commits: 100}, nil},
		"the last 25 seconds": {head, gc.Policy{Age: 25 * time.Second}, ids(chain[2], chain[1], chain[0])},
		"either rule keeps":   {head, gc.Policy{Age: 25 * time.Second, Commits: 4}, ids(chain[1], chain[0])},
		"the head always":     {head, gc.Policy{Age: time.Nanosecond}, ids(chain[4], chain[3], chain[2], chain[1], chain[0])},
		"tags":                {with(func(p *gc.Page) { p.Keep = ids(chain[1]) }), gc.Policy{Commits: 1}, ids(chain[4], chain[3], chain[2], chain[0])},
		"what no head reaches": {with(func(p *gc.Page) {
			p.All = append(ids(append(chain, island)...), commit.First().ID)
			p.Keep = ids(chain[0])
		}), gc.Policy{Commits: 4}, ids(chain[1], island)},
		"the same in time":            {with(func(p *gc.Page) { p.All = ids(island) }), gc.Policy{Age: time.Hour}, nil},
		"a head below another":        {with(func(p *gc.Page) { p.Heads, p.Keep = []*commit.Commit{chain[5], chain[2]}, ids(side) }), gc.Policy{Commits: 1}, ids(chain[1], chain[0])},
		"a head on what was given up": {with(func(p *gc.Page) { p.History, p.Heads = withPruned{g, chain[2].ID}, []*commit.Commit{chain[5], side} }), gc.Policy{Commits: 1}, nil},
	} {
		if got := prune(t, c.page, c.policy, 60); !slices.Equal(got, c.want) {
			t.Errorf("%s: %d commits go, want %d", name, len(got), len(c.want))
		}
	}
	for _, p := range []gc.Policy{{Commits: -1}, {Age: -1}} {
		if _, err := gc.Prune(t.Context(), head, p, time.Unix(60, 0)); !errors.Is(err, base.ErrInvalid) {
			t.Error(err)
		}
	}
}

// TestWrongClocks: a clock that was behind takes no history away that is young, and one of the
// future keeps none for long.
func TestWrongClocks(t *testing.T) {
	const day = 24 * 3600
	g := graph{}
	month := gc.Policy{Age: 30 * day * time.Second}
	old := g.add(t, 100*day, commit.First())
	young := g.add(t, 200*day, old)
	behind := g.add(t, 5, young) // no battery
	more := g.add(t, 10, behind)
	head := g.add(t, 201*day, more)
	page := gc.Page{History: g, Heads: []*commit.Commit{head}}
	if got := prune(t, page, month, 202*day); !slices.Equal(got, ids(old)) {
		t.Errorf("%d commits go, want the oldest", len(got))
	}
	if got := prune(t, page, month, 240*day); !slices.Equal(got, ids(more, behind, young, old)) {
		t.Errorf("%d commits go, want all but the head", len(got))
	}

	g = graph{}
	old = g.add(t, 100*day, commit.First())
	future := g.add(t, 20_000*day, old)
	after := g.add(t, 101*day, future)
	head = g.add(t, 102*day, after)
	page = gc.Page{History: g, Heads: []*commit.Commit{head}, All: ids(old, future, after, head)}
	if got := prune(t, page, month, 103*day); len(got) != 0 {
		t.Errorf("%d commits go", len(got))
	}
	if got := prune(t, page, month, 200*day); !slices.Equal(got, ids(after, old)) {
		t.Errorf("%d commits go", len(got))
	}
	// Then no head reaches it.
	page.History, page.All = withPruned{g, after.ID}, ids(future, head)
	if got := prune(t, page, month, 200*day); !slices.Equal(got, ids(future)) {
		t.Errorf("%d commits go, want the one from the future", len(got))
	}
}

// withPruned is a history without a commit.
type withPruned struct {
	graph
	pruned commit.ID
}

// Commit implements commit.Getter.
func (w withPruned) Commit(ctx context.Context, id commit.ID) (*commit.Commit, error) {
	if id == w.pruned {
		return nil, fmt.Errorf("commit %s: %w", id, base.ErrGone)
	}
	return w.graph.Commit(ctx, id)
}

func TestHeadsKeepWhatMergingNeeds(t *testing.T) {
	g := graph{}
	a := g.add(t, 1, commit.First())
	b := g.add(t, 2, a)
	left, right := g.add(t, 3, b), g.add(t, 4, b)
	left = g.add(t, 5, left)
	page := gc.Page{History: g, Heads: []*commit.Commit{right, left}}
	if got := prune(t, page, gc.Policy{Commits: 1}, 9); !slices.Equal(got, ids(a)) {
		t.Errorf("%d commits go", len(got))
	}
}

// TestMergingStaysPossible makes random histories: every common ancestor of two heads that is below
// no other one stays, with all commits between it and the heads. So do those of any two of these,
// of which merging makes one base, and the parents of what only one of two heads has.
func TestMergingStaysPossible(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := graph{}
		all := []*commit.Commit{g.add(t, 1, commit.First())}
		for i := range rapid.IntRange(1, 20).Draw(t, "commits") {
			from := func(name string) *commit.Commit {
				return all[rapid.IntRange(max(0, len(all)-5), len(all)-1).Draw(t, name)]
			}
			p, q := from("parent"), from("other")
			if p.ID == q.ID || rapid.Bool().Draw(t, "single") {
				all = append(all, g.add(t, i+2, p))
				continue
			}
			m, err := commit.NewMerge(object.Sum(object.Node, []byte{byte(rapid.IntRange(0, 1).Draw(t, "content"))}), p, q)
			if err != nil {
				t.Fatal(err)
			}
			if g[m.ID] == nil {
				g[m.ID] = m
				all = append(all, m)
			}
		}
		child := map[commit.ID]bool{}
		for _, c := range g {
			for _, p := range c.Parents {
				child[p] = true
			}
		}
		var heads []*commit.Commit
		for _, c := range all {
			if !child[c.ID] {
				heads = append(heads, c)
			}
		}
		gone := prune(t, gc.Page{History: g, Heads: heads}, gc.Policy{Commits: 1}, 100)
		isGone := map[commit.ID]bool{}
		for _, id := range gone {
			isGone[id] = true
		}
		below := func(c *commit.Commit) map[commit.ID]bool {
			seen := map[commit.ID]bool{}
			for x, err := range commit.Walk(context.Background(), g, ids(c)) {
				if err != nil {
					t.Fatal(err)
				}
				seen[x.ID] = true
			}
			return seen
		}
		for _, h := range heads {
			if isGone[h.ID] {
				t.Fatal("a head goes")
			}
		}
		for _, a := range heads {
			for _, b := range heads {
				l, r := below(a), below(b)
				for _, d := range all {
					if l[d.ID] && !r[d.ID] && slices.ContainsFunc(d.Parents, func(id commit.ID) bool { return isGone[id] }) {
						t.Fatalf("a parent of commit %s goes, and what that changed is asked when the heads are merged", d.ID.Short())
					}
				}
			}
		}
		var stays func(tops []*commit.Commit)
		stays = func(tops []*commit.Commit) {
			for i, a := range tops {
				for _, b := range tops[:i] {
					l, r := below(a), below(b)
					var bases []*commit.Commit
					for _, c := range all {
						if !l[c.ID] || !r[c.ID] || slices.ContainsFunc(all, func(d *commit.Commit) bool { return d.ID != c.ID && l[d.ID] && r[d.ID] && below(d)[c.ID] }) {
							continue
						}
						bases = append(bases, c)
						for _, d := range all {
							if (l[d.ID] || r[d.ID]) && below(d)[c.ID] && isGone[d.ID] {
								t.Fatalf("commit %s goes, between a common ancestor and what is to be merged", d.ID.Short())
							}
						}
					}
					stays(bases)
				}
			}
		}
		stays(heads)
	})
}

// TestCrissCross has two merges of the same commits with different content: both parents are latest
// common ancestors, the lower one too. Merging needs their common ancestor.
func TestCrissCross(t *testing.T) {
	g := graph{}
	oldest := g.add(t, 0, commit.First())
	first := g.add(t, 1, oldest)
	low := g.add(t, 2, first)
	high := g.add(t, 4, g.add(t, 3, first))
	var heads []*commit.Commit
	for i := range 2 {
		m, err := commit.NewMerge(object.Sum(object.Node, []byte{byte(i)}), low, high)
		if err != nil {
			t.Fatal(err)
		}
		g[m.ID] = m
		heads = append(heads, m)
	}
	if got := prune(t, gc.Page{History: g, Heads: heads}, gc.Policy{Commits: 1}, 9); !slices.Equal(got, ids(oldest)) {
		t.Errorf("%d commits go", len(got))
	}
}

// TestThreeHeads has three heads of which the first has a later common ancestor with each of the
// others than these have with each other.
func TestThreeHeads(t *testing.T) {
	g := graph{}
	oldest := g.add(t, 1, commit.First())
	low := g.add(t, 2, oldest)
	a, b := g.add(t, 3, low), g.add(t, 4, low)
	both, err := commit.NewMerge(btree.EmptyRoot, a, b)
	if err != nil {
		t.Fatal(err)
	}
	g[both.ID] = both
	heads := []*commit.Commit{both, g.add(t, 5, a), g.add(t, 6, b)}
	if got := prune(t, gc.Page{History: g, Heads: heads}, gc.Policy{Commits: 1}, 9); !slices.Equal(got, ids(oldest)) {
		t.Errorf("%d commits go", len(got))
	}
}

// TestClockWithoutMeasure prunes by clocks of any year and ages of any length: what is younger than
// the age stays, also where no number of nanoseconds says how old that is.
func TestClockWithoutMeasure(t *testing.T) {
	g := graph{}
	a := g.add(t, 1, commit.First())
	b := g.add(t, 2, a)
	head := g.add(t, 3, b)
	page := gc.Page{History: g, Heads: []*commit.Commit{head}}
	for _, c := range []struct {
		now  time.Time
		age  time.Duration
		gone int
	}{
		{time.Time{}, time.Hour, 0}, {time.Time{}, math.MaxInt64, 0}, {time.Unix(60, 0), math.MaxInt64, 0}, {time.Unix(60, 0), time.Second, 2},
		{time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), time.Hour, 2}, {time.Date(2400, 1, 1, 0, 0, 0, 0, time.UTC), math.MaxInt64, 2},
	} {
		got, err := gc.Prune(t.Context(), page, gc.Policy{Age: c.age}, c.now)
		if err != nil || len(got) != c.gone {
			t.Errorf("at %s, age %s: %d commits go, want %d: %v", c.now, c.age, len(got), c.gone, err)
		}
	}
}
