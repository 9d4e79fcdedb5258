package epoch_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/epoch/epochtest"
)

// drawGraph returns a random graph of commits 1 to n, of which later ones descend from earlier
// ones.
func drawGraph(rt *rapid.T, most int) epoch.Graph {
	var g epoch.Graph
	for i := range rapid.IntRange(1, most).Draw(rt, "commits") {
		var near epoch.Set
		for range rapid.IntRange(0, 2).Draw(rt, "parents") {
			if i > 0 {
				back := rapid.IntRange(1, min(i, 4)).Draw(rt, "back")
				near = near.Union(epoch.Set{epoch.Commit(i + 1 - back)})
			}
		}
		n := epoch.Node{ID: epoch.Commit(i + 1), Near: near, Time: rapid.Int64Range(0, 20).Draw(rt, "time")}
		for _, p := range near {
			at, _ := g.Index(p)
			n.Generation = max(n.Generation, g[at].Generation+1)
		}
		g = g.With(n)
	}
	return g
}

func drawSet(rt *rapid.T, g epoch.Graph, name string) epoch.Set {
	var s epoch.Set
	for _, n := range g {
		if rapid.Bool().Draw(rt, name) {
			s = append(s, n.ID)
		}
	}
	return s
}

// closedSlowly is the definition: bases of all pairs, until there are no more.
func closedSlowly(g epoch.Graph, keep epoch.Set) epoch.Set {
	for {
		next := keep
		for i, a := range keep {
			for _, b := range keep[i+1:] {
				next = next.Union(epochtest.Bases(g, a, b))
			}
		}
		if slices.Equal(next, keep) {
			return keep
		}
		keep = next
	}
}

func TestClosedIsTheClosureUnderBases(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		g := drawGraph(rt, 14)
		keep := drawSet(rt, g, "keep")
		if got, want := g.Closed(keep), closedSlowly(g, keep); !slices.Equal(got, want) {
			rt.Fatalf("%v of %+v: got %v, want %v", keep, g, got, want)
		}
	})
}

// TestReducedGraphsKnowAncestry: what is given up takes no ancestry between kept commits with it,
// and bases of a closed set stay what they were.
func TestReducedGraphsKnowAncestry(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		g := drawGraph(rt, 14)
		keep := g.Closed(drawSet(rt, g, "keep"))
		r := g.Reduce(keep)
		if !slices.Equal(r.Set(), keep) {
			rt.Fatalf("reduced to %v, wanted %v", r.Set(), keep)
		}
		for _, a := range keep {
			if got, want := r.Ancestors(a), g.Ancestors(a).And(keep); !slices.Equal(got, want) {
				rt.Fatalf("ancestors of %d: %v, were %v", a, got, want)
			}
			for _, b := range keep {
				if got, want := epochtest.Bases(r, a, b), epochtest.Bases(g, a, b); !slices.Equal(got, want) {
					rt.Fatalf("bases of %d and %d: %v, were %v", a, b, got, want)
				}
			}
		}
		again := drawSet(rt, r, "again")
		if got, want := r.Reduce(again), g.Reduce(again); !equalGraphs(got, want) {
			rt.Fatalf("in two steps %+v, in one %+v", got, want)
		}
	})
}

func equalGraphs(a, b epoch.Graph) bool {
	return slices.EqualFunc(a, b, func(x, y epoch.Node) bool {
		return x.ID == y.ID && slices.Equal(x.Near, y.Near) && x.Generation == y.Generation && x.Time == y.Time
	})
}

func descendants(g epoch.Graph, c epoch.Commit) (all epoch.Set) {
	for _, n := range g {
		if n.ID != c && g.Ancestors(n.ID).Has(c) {
			all = append(all, n.ID)
		}
	}
	return all
}

func drawState(rt *rapid.T) epoch.State {
	s := epoch.State{Kept: drawGraph(rt, 12)}
	// What was given up had a head above it, which was published with it. So a commit that stays is
	// a head, or has one above it that stays.
	s.Gone = drawSet(rt, s.Kept, "gone").And(drawSet(rt, s.Kept, "gone too"))
	for _, n := range slices.Backward(s.Kept) {
		if below := descendants(s.Kept, n.ID); len(below) > 0 && below.Within(s.Gone) {
			s.Gone = s.Gone.Union(epoch.Set{n.ID})
		}
	}
	for _, c := range drawSet(rt, s.Kept, "tagged") {
		s = epochtest.Apply(s, &epochtest.Body{Tags: []epoch.Tag{{Name: string(rune('a' + c)), Commit: c}}})
	}
	s.Retention.Last = rapid.Uint64Range(0, 4).Draw(rt, "last")
	s.Retention.Within = time.Duration(rapid.IntRange(0, 8).Draw(rt, "within"))
	return s
}

func TestWhatACutKeeps(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := drawState(rt)
		at := epoch.Time(rapid.Int64Range(0, 25).Draw(rt, "at"))
		erase := drawSet(rt, s.Kept, "erase").Without(s.Heads())
		keep := s.Keep(at, erase)
		if len(keep.And(erase)) > 0 {
			rt.Fatalf("kept %v, of which %v were to be erased", keep, keep.And(erase))
		}
		if !s.Heads().Within(keep) {
			rt.Fatalf("kept %v, heads are %v", keep, s.Heads())
		}
		alive := s.Kept.Set().Without(s.Gone).Without(erase)
		for _, tag := range s.Tags {
			if alive.Has(tag.Commit) && !keep.Has(tag.Commit) {
				rt.Fatalf("%d is tagged, kept are %v", tag.Commit, keep)
			}
		}
		if s.Retention == (epoch.Retention{}) && !alive.Within(keep) {
			rt.Fatalf("kept %v without a retention", keep)
		}
		if len(keep.And(alive)) < min(int(s.Retention.Last)-len(erase), len(alive)) {
			rt.Fatalf("kept %v, though the last %d stay", keep, s.Retention.Last)
		}
		next := s.Reduced(keep, nil)
		if len(erase) == 0 && !slices.Equal(next.Heads(), s.Heads()) {
			rt.Fatalf("a cut made the heads %v of %v", next.Heads(), s.Heads())
		}
		if again := next.Keep(at, nil); len(erase) == 0 && !slices.Equal(again, keep) {
			rt.Fatalf("a second cut keeps %v, the first one kept %v", again, keep)
		}
	})
}

func TestJoinIsSetAlgebra(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		all := drawGraph(rt, 12)
		device := all.Reduce(drawSet(rt, all, "on the device"))
		s := epoch.State{Kept: all.Reduce(drawSet(rt, all, "in the log")), Gone: drawSet(rt, all, "gone")}
		mem := drawSet(rt, all, "in memory")
		j := epoch.Join(device, mem, s)
		kept := s.Kept.Set()
		for _, c := range device.Set() {
			fates := 0
			for _, in := range []epoch.Set{kept, j.GivenUp, j.Unsynced.Set()} {
				if in.Has(c) {
					fates++
				}
			}
			if fates != 1 {
				rt.Fatalf("%d has %d fates: kept %v, %+v", c, fates, kept, j)
			}
			if j.GivenUp.Has(c) != s.Gone.Union(mem).Without(kept).Has(c) {
				rt.Fatalf("%d: given up %v, gone %v, in memory %v", c, j.GivenUp, s.Gone, mem)
			}
		}
		if !slices.Equal(j.View.Set(), kept.Union(j.Unsynced.Set())) {
			rt.Fatalf("the view has %v", j.View.Set())
		}
		if !mem.Union(s.Gone).Within(j.Memory) || !slices.Equal(j.Send, j.Memory.Without(s.Gone)) {
			rt.Fatalf("memory %v, to be sent %v", j.Memory, j.Send)
		}
		// Else there would be nothing to merge, and it would never be sent.
		if h := j.View.Heads().Without(j.Memory); j.Wait && len(h) < 2 {
			rt.Fatalf("%v are to be merged: %+v", h, j)
		}
		again := epoch.Join(j.View, j.Memory, s)
		if len(again.GivenUp) != 0 || !equalGraphs(again.Unsynced, j.Unsynced) || !equalGraphs(again.View, j.View) {
			rt.Fatalf("joined twice: %+v, once: %+v", again, j)
		}
	})
}
