package merge_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/merge"
	"github.com/ledgerd/ledger/object"
)

// graph is a Getter on a map that counts what it is asked for.
type graph struct {
	commits map[commit.ID]*commit.Commit
	reads   int
}

func newGraph() *graph { return &graph{commits: map[commit.ID]*commit.Commit{}} }

func (g *graph) Commit(_ context.Context, id commit.ID) (*commit.Commit, error) {
	g.reads++
	if c, ok := g.commits[id]; ok {
		return c, nil
	}
	return nil, base.ErrNotFound
}

// add makes a commit on the given parents: without any on the first commit, with two a merge.
func (g *graph) add(t tester, name string, parents ...*commit.Commit) *commit.Commit {
	t.Helper()
	root := object.Sum(object.Node, []byte(name))
	var c *commit.Commit
	var err error
	switch len(parents) {
	case 0:
		return g.add(t, name, commit.First())
	case 1:
		c, err = commit.New(commit.Params{Now: time.Unix(0, int64(len(g.commits)%7)), Root: root, Parents: parents})
	default:
		c, err = commit.NewMerge(root, parents[0], parents[1])
	}
	if err != nil {
		t.Fatalf("make commit: %v", err)
	}
	g.commits[c.ID] = c
	return c
}

// ancestors returns a commit and everything that it descends from.
func (g *graph) ancestors(c *commit.Commit) map[commit.ID]*commit.Commit {
	all := map[commit.ID]*commit.Commit{}
	var walk func(c *commit.Commit)
	walk = func(c *commit.Commit) {
		if all[c.ID] != nil {
			return
		}
		all[c.ID] = c
		for _, p := range c.Parents {
			if p == commit.First().ID {
				walk(commit.First())
			} else {
				walk(g.commits[p])
			}
		}
	}
	walk(c)
	return all
}

// relate is merge.Relate without any cleverness.
func (g *graph) relate(left, right *commit.Commit) merge.Relation {
	l, r := g.ancestors(left), g.ancestors(right)
	var rel merge.Relation
	for id, c := range l {
		if r[id] == nil {
			rel.LeftOwn = rel.LeftOwn || len(c.Parents) < 2
			continue
		}
		maximal := true
		for other := range l {
			if r[other] != nil && other != id && g.ancestors(l[other])[id] != nil {
				maximal = false
			}
		}
		if maximal {
			rel.Bases = append(rel.Bases, c)
		}
	}
	for id, c := range r {
		if l[id] == nil {
			rel.RightOwn = rel.RightOwn || len(c.Parents) < 2
		}
	}
	slices.SortFunc(rel.Bases, commit.Compare)
	return rel
}

func ids(cs []*commit.Commit) (names []string) {
	for _, c := range cs {
		names = append(names, c.ID.Short())
	}
	return names
}

func wantRelation(t tester, got, want merge.Relation) {
	t.Helper()
	if diff := cmp.Diff(ids(want.Bases), ids(got.Bases)); diff != "" {
		t.Fatalf("bases: -want +got:\n%s", diff)
	}
	if got.LeftOwn != want.LeftOwn || got.RightOwn != want.RightOwn {
		t.Fatalf("own commits: %t, %t, want %t, %t", got.LeftOwn, got.RightOwn, want.LeftOwn, want.RightOwn)
	}
}

func TestRelateProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := newGraph()
		all := []*commit.Commit{commit.First()}
		for i := range rapid.IntRange(0, 25).Draw(t, "commits") {
			pick := func(label string) *commit.Commit {
				return all[len(all)-rapid.IntRange(1, min(len(all), 6)).Draw(t, label)]
			}
			a, b := pick("parent"), pick("other parent")
			if a.ID == b.ID || rapid.Bool().Draw(t, "one parent") {
				all = append(all, g.add(t, fmt.Sprint(i), a))
			} else {
				all = append(all, g.add(t, fmt.Sprint(i), a, b))
			}
		}
		for range 5 {
			a, b := rapid.SampledFrom(all).Draw(t, "left"), rapid.SampledFrom(all).Draw(t, "right")
			got, err := merge.Relate(t.Context(), g, a, b)
			if err != nil {
				t.Fatalf("relate: %v", err)
			}
			wantRelation(t, got, g.relate(a, b))
		}
	})
}

func TestRelateCases(t *testing.T) {
	g := newGraph()
	b := g.add(t, "b")
	l, r := g.add(t, "l", b), g.add(t, "r", b)
	m1, m2 := g.add(t, "m1", l, r), g.add(t, "m2", l, r)
	own := g.add(t, "own", m1)
	deep := b
	for i := range 40 {
		deep = g.add(t, fmt.Sprint("deep", i), deep)
	}
	both := []*commit.Commit{l, r}
	slices.SortFunc(both, commit.Compare)
	for name, c := range map[string]struct {
		left, right *commit.Commit
		want        merge.Relation
	}{
		"siblings":              {l, r, merge.Relation{Bases: []*commit.Commit{b}, LeftOwn: true, RightOwn: true}},
		"itself":                {l, l, merge.Relation{Bases: []*commit.Commit{l}}},
		"ancestor":              {b, own, merge.Relation{Bases: []*commit.Commit{b}, RightOwn: true}},
		"descendant":            {m1, l, merge.Relation{Bases: []*commit.Commit{l}, LeftOwn: true}},
		"criss-cross":           {m1, m2, merge.Relation{Bases: both}},
		"criss-cross, one own":  {own, m2, merge.Relation{Bases: both, LeftOwn: true}},
		"unequal generations":   {deep, l, merge.Relation{Bases: []*commit.Commit{b}, LeftOwn: true, RightOwn: true}},
		"with the first commit": {commit.First(), r, merge.Relation{Bases: []*commit.Commit{commit.First()}, RightOwn: true}},
	} {
		got, err := merge.Relate(t.Context(), g, c.left, c.right)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		t.Run(name, func(t *testing.T) { wantRelation(t, got, c.want) })
	}
}

func TestRelateReadsLittle(t *testing.T) {
	g := newGraph()
	c := g.add(t, "0")
	for i := range 100_000 {
		c = g.add(t, fmt.Sprint(i), c)
	}
	l, r := c, c
	for i := range 10 {
		l, r = g.add(t, fmt.Sprint("l", i), l), g.add(t, fmt.Sprint("r", i), r)
	}
	got, err := merge.Relate(t.Context(), g, l, r)
	if err != nil || len(got.Bases) != 1 || got.Bases[0] != c {
		t.Fatalf("%v, %v", got, err)
	}
	if g.reads > 64 {
		t.Errorf("%d commits read, at most 64 are allowed", g.reads)
	}
}

func TestRelateHostile(t *testing.T) {
	g := newGraph()
	b := g.add(t, "b")
	l, r := g.add(t, "l", b), g.add(t, "r", b)
	ll, rr := g.add(t, "ll", l), g.add(t, "rr", r)
	for name, spoil := range map[string]func(){
		"generation of a parent is not below": func() {
			high := *l
			high.Generation = ll.Generation
			g.commits[l.ID] = &high
		},
		"another commit in its place": func() { g.commits[l.ID] = r },
	} {
		spoil()
		var corrupt *base.CorruptError
		if _, err := merge.Relate(t.Context(), g, ll, rr); !errors.As(err, &corrupt) {
			t.Errorf("%s: %v, want a CorruptError", name, err)
		}
		g.commits[l.ID] = l
	}
	delete(g.commits, l.ID)
	if _, err := merge.Relate(t.Context(), g, ll, rr); !errors.Is(err, base.ErrNotFound) {
		t.Errorf("a commit is missing: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := merge.Relate(ctx, g, ll, rr); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

// nearGraph is a graph of which commits were given up. It knows the nearest ancestors that stay.
type nearGraph struct {
	*graph
	kept map[commit.ID]bool
}

func (g nearGraph) Commit(ctx context.Context, id commit.ID) (*commit.Commit, error) {
	if !g.kept[id] {
		return nil, base.ErrGone
	}
	return g.graph.Commit(ctx, id)
}

func (g nearGraph) Near(_ context.Context, id commit.ID) (near []commit.ID, ok bool, err error) {
	var walk func(id commit.ID)
	walk = func(id commit.ID) {
		for _, p := range g.commits[id].Parents {
			switch {
			case p == commit.First().ID:
			case g.kept[p]:
				near = append(near, p)
			default:
				ok = true
				walk(p)
			}
		}
	}
	walk(id)
	return near, ok, nil
}

// TestRelateByNearestAncestors: when commits between two heads and their base were given up, the
// base is found all the same, and heads that have none have the first commit.
func TestRelateByNearestAncestors(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := newGraph()
		all := []*commit.Commit{g.add(t, "root")}
		for i := range rapid.IntRange(3, 20).Draw(t, "commits") {
			a := all[rapid.IntRange(0, len(all)-1).Draw(t, "parent")]
			b := all[rapid.IntRange(0, len(all)-1).Draw(t, "other")]
			if a.ID != b.ID && rapid.IntRange(0, 3).Draw(t, "merge") == 0 {
				all = append(all, g.add(t, fmt.Sprint(i), a, b))
			} else {
				all = append(all, g.add(t, fmt.Sprint(i), a))
			}
		}
		left, right := all[rapid.IntRange(0, len(all)-1).Draw(t, "left")], all[rapid.IntRange(0, len(all)-1).Draw(t, "right")]
		want, err := merge.Relate(context.Background(), g, left, right)
		if err != nil {
			t.Fatal(err)
		}
		kept := map[commit.ID]bool{left.ID: true, right.ID: true}
		for _, b := range want.Bases {
			kept[b.ID] = true
		}
		for _, c := range all {
			kept[c.ID] = kept[c.ID] || rapid.Bool().Draw(t, "kept")
		}
		got, err := merge.Relate(context.Background(), nearGraph{g, kept}, left, right)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(ids(want.Bases), ids(got.Bases)); diff != "" {
			t.Fatal(diff)
		}
	})
}
