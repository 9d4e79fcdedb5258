package commit_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
)

// graph is a Getter on a map that counts what it is asked for.
type graph struct {
	commits map[commit.ID]*commit.Commit
	asked   map[commit.ID]int
}

func newGraph(commits ...*commit.Commit) *graph {
	g := &graph{commits: map[commit.ID]*commit.Commit{}, asked: map[commit.ID]int{}}
	for _, c := range commits {
		g.commits[c.ID] = c
	}
	return g
}

func (g *graph) Commit(_ context.Context, id commit.ID) (*commit.Commit, error) {
	g.asked[id]++
	c, ok := g.commits[id]
	if !ok {
		return nil, base.ErrNotFound
	}
	return c, nil
}

// drawGraph draws a graph of commits; the first one is at its beginning.
func drawGraph(t *rapid.T) []*commit.Commit {
	commits := []*commit.Commit{commit.First()}
	for i := range rapid.IntRange(0, 40).Draw(t, "commits") {
		pick := func(label string) *commit.Commit {
			// Mostly of the last few, so that the graph is long as well as wide.
			back := rapid.IntRange(1, min(len(commits), rapid.SampledFrom([]int{3, 1000}).Draw(t, "reach"))).Draw(t, label)
			return commits[len(commits)-back]
		}
		a, b := pick("parent"), pick("other parent")
		switch {
		case a.ID == b.ID || rapid.IntRange(0, 2).Draw(t, "merge") > 0:
			commits = append(commits, mustNew(t, rapid.Int64Range(0, 30).Draw(t, "now"), i, a))
		default:
			commits = append(commits, mustMerge(t, i, a, b))
		}
	}
	return commits
}

// ancestors returns id and everything above it, found without any cleverness.
func ancestors(g *graph, id commit.ID, into map[commit.ID]bool) {
	if into[id] {
		return
	}
	into[id] = true
	for _, p := range g.commits[id].Parents {
		ancestors(g, p, into)
	}
}

func TestWalkProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		commits := drawGraph(t)
		g := newGraph(commits...)
		from := make([]commit.ID, rapid.IntRange(0, 4).Draw(t, "from"))
		want := map[commit.ID]bool{}
		for i := range from {
			from[i] = rapid.SampledFrom(commits).Draw(t, "head").ID
			ancestors(g, from[i], want)
		}
		var got []*commit.Commit
		for c, err := range commit.Walk(context.Background(), g, from) {
			if err != nil {
				t.Fatal(err)
			}
			if !want[c.ID] {
				t.Fatalf("%s comes twice or is no ancestor", c.ID)
			}
			delete(want, c.ID)
			got = append(got, c)
		}
		if len(want) != 0 {
			t.Fatalf("%d ancestors are missing", len(want))
		}
		if !slices.IsSortedFunc(got, func(a, b *commit.Commit) int { return commit.CompareGeneration(b, a) }) {
			t.Fatalf("not in the order of generations")
		}
		if len(got) > 0 && !got[len(got)-1].IsFirst() {
			t.Fatalf("the last one is not the first commit")
		}
		if g.asked[commit.First().ID] > 0 {
			t.Fatalf("I2: the Getter is asked for the first commit")
		}
		for id, n := range g.asked {
			if n > 1 {
				t.Fatalf("commit %s is asked for %d times", id, n)
			}
		}
	})
}

func TestIsAncestorProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		commits := drawGraph(t)
		for range 10 {
			g := newGraph(commits...)
			a, b := rapid.SampledFrom(commits).Draw(t, "a"), rapid.SampledFrom(commits).Draw(t, "b")
			above := map[commit.ID]bool{}
			ancestors(g, b.ID, above)
			got, err := commit.IsAncestor(context.Background(), g, a, b)
			if err != nil || got != above[a.ID] {
				t.Fatalf("%v, %v; want %v", got, err, above[a.ID])
			}
			for id := range g.asked {
				for _, c := range commits {
					if slices.Contains(c.Parents, id) && above[c.ID] && c.Generation > a.Generation+1 {
						id = commit.ID{}
						break
					}
				}
				if !id.IsZero() {
					t.Fatalf("asked for a commit of generation %d, below a of %d", g.commits[id].Generation, a.Generation)
				}
			}
		}
	})
}

func TestWalkStops(t *testing.T) {
	a := mustNew(t, 1, 1, commit.First())
	b := mustNew(t, 2, 2, a)
	g := newGraph(a, b)
	for c := range commit.Walk(t.Context(), g, []commit.ID{b.ID}) {
		if c.ID != b.ID {
			t.Errorf("yielded %s after a break", c.ID)
		}
		break
	}
	if g.asked[a.ID] != 0 {
		t.Error("asked for more than was taken")
	}
}

// lastError walks and returns the error at its end, and how many commits came before.
func lastError(ctx context.Context, g commit.Getter, from ...commit.ID) (n int, last error) {
	for c, err := range commit.Walk(ctx, g, from) {
		if last != nil {
			panic("something came after an error")
		}
		if last = err; err == nil {
			n++
		} else if c != nil {
			panic("a commit came with an error")
		}
	}
	return n, last
}

func TestWalkErrors(t *testing.T) {
	a := mustNew(t, 1, 1, commit.First())
	b := mustNew(t, 2, 2, a)
	c := mustNew(t, 3, 3, b)

	if n, err := lastError(t.Context(), newGraph(b, c), c.ID); n != 2 || !errors.Is(err, base.ErrNotFound) {
		t.Errorf("missing ancestor: %d commits, %v", n, err)
	}
	if n, err := lastError(t.Context(), newGraph(), c.ID); n != 0 || !errors.Is(err, base.ErrNotFound) {
		t.Errorf("missing head: %d commits, %v", n, err)
	}
	if _, err := commit.IsAncestor(t.Context(), newGraph(c), a, mustNew(t, 9, 9, c)); !errors.Is(err, base.ErrNotFound) {
		t.Errorf("ancestor through a missing commit: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if n, err := lastError(ctx, newGraph(a, b, c), c.ID); n != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %d commits, %v", n, err)
	}
	if _, err := commit.IsAncestor(ctx, newGraph(a, b, c), a, c); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	wrong := newGraph(a, b, c)
	wrong.commits[b.ID] = a
	if n, err := lastError(t.Context(), wrong, c.ID); n != 1 || !errors.Is(err, base.ErrCorrupt) {
		t.Errorf("another commit in its place: %d commits, %v", n, err)
	}
}

// TestWalkBadGenerations: a commit that claims a generation not above its parents' ends the walk
// with an error, also when that parent waits in the queue already.
func TestWalkBadGenerations(t *testing.T) {
	a := mustNew(t, 1, 1, commit.First())
	b := mustNew(t, 2, 2, a)
	c := mustNew(t, 3, 3, b)
	other := mustNew(t, 7, 7, commit.First())
	for _, generation := range []uint64{1, 2, 3} {
		bad := parse(t, fb.Commit{Timestamp: 1 << 40, Generation: generation, Root: root(4), Parents: [][32]byte{c.ID}})
		top := mustNew(t, 1<<41, 5, bad)
		g := newGraph(a, b, c, bad, top)
		for _, from := range [][]commit.ID{{bad.ID}, {bad.ID, c.ID}, {c.ID, bad.ID}, {top.ID}} {
			if _, err := lastError(t.Context(), g, from...); !errors.Is(err, base.ErrCorrupt) {
				t.Errorf("generation %d above a parent of 3: %v", generation, err)
			}
		}
		if _, err := commit.IsAncestor(t.Context(), g, other, top); generation == 3 && !errors.Is(err, base.ErrCorrupt) {
			t.Errorf("ancestor through a bad generation: %v", err)
		}
	}
}
