package merge_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/merge"
	"github.com/ledgerd/ledger/object"
)

// sealed returns the page as a place for merges whose sink is a place of its own, so that it can be
// seen what they put there.
func (p *testPage) sealed() (*merge.Env, *memory) {
	env := p.env()
	sink := newMemory(p.page, p.memory)
	env.Sink, env.Tree, env.Nodes, env.Pieces = sink, p.trees(sink), sink, sink
	return env, sink
}

// wantOnlyReachable fails if a sink has nodes that no root reaches, or pieces. It is for merges
// with one base (I4).
func (p *testPage) wantOnlyReachable(t tester, sink *memory, merged []merge.Merged) {
	t.Helper()
	for d, n := range sink.nodes {
		p.nodes[d] = n
	}
	var roots []object.Digest
	for _, m := range merged {
		roots = append(roots, m.Commit.Root)
		if m.Conflicts > 0 {
			roots = append(roots, m.Explanation)
		}
	}
	reached := p.reachable(t, roots...)
	for d := range sink.nodes {
		if !reached[d] {
			t.Fatalf("node %s was put, and no commit reaches it", d.Short())
		}
	}
	if len(sink.pieces) > 0 {
		t.Fatalf("%d pieces were put", len(sink.pieces))
	}
}

// byKey decides by the key alone, each way of deciding for another key.
type byKey struct{}

func (byKey) Decide(_ context.Context, _ *merge.Pair, cs []merge.Conflict) error {
	for i := range cs {
		c := &cs[i]
		c.Rule = "by key"
		switch value, keep := byKeyResult(string(c.Key), "left", "right"); {
		case keep == 'l':
			c.Outcome = merge.TakeLeft
		case keep == 'r':
			c.Outcome = merge.TakeRight
		case value == gone:
			c.Outcome = merge.TakeNone
		default:
			c.Outcome = merge.TakeNew
			c.New.Inline, c.New.Value, c.New.Size = true, []byte(value), uint64(len(value))
		}
	}
	return nil
}

func byKeyResult(key, left, right string) (value string, keep byte) {
	switch key {
	case "a", "e":
		return left, 'l'
	case "b":
		return right, 'r'
	case "c":
		return "new", 0
	case "d":
		return gone, 0
	}
	return right, 'r'
}

// unknown is the value of a key about which the bases do not agree.
const unknown = "\x00unknown"

// modelVersion is a commit or a virtual merge of some, with what it descends from.
type modelVersion struct {
	content   map[string]string
	ancestors map[commit.ID]bool
}

func (h *history) version(c *commit.Commit) modelVersion {
	return modelVersion{h.content[c.ID], h.ancestors(c)}
}

// join merges two versions key by key. conflict says what becomes of a key in conflict.
func (h *history) join(l, r modelVersion, conflict func(key, l, r string) string) modelVersion {
	base := h.base(l, r)
	joined := modelVersion{map[string]string{}, maps.Clone(l.ancestors)}
	maps.Copy(joined.ancestors, r.ancestors)
	keys := both(base.content, both2(l.content, r.content))
	for k := range keys {
		b, x, y := value(base.content, k), value(l.content, k), value(r.content, k)
		var v string
		switch {
		case x == unknown || y == unknown:
			v = unknown
		case b == x:
			v = y
		case b == y, x == y:
			v = x
		default:
			v = conflict(k, x, y)
		}
		if v != gone {
			joined.content[k] = v
		}
	}
	return joined
}

func both2(a, b map[string]string) map[string]string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// base returns the virtual base of two versions.
func (h *history) base(l, r modelVersion) modelVersion {
	bases := h.bases(l, r)
	all := h.version(bases[0])
	for _, b := range bases[1:] {
		all = h.join(all, h.version(b), func(string, string, string) string { return unknown })
	}
	return all
}

// bases returns the maximal common ancestors.
func (h *history) bases(l, r modelVersion) []*commit.Commit {
	var common []*commit.Commit
	for id := range l.ancestors {
		if r.ancestors[id] {
			common = append(common, h.get(id))
		}
	}
	var bases []*commit.Commit
	for _, c := range common {
		if !slices.ContainsFunc(common, func(o *commit.Commit) bool { return o.ID != c.ID && h.ancestors(o)[c.ID] }) {
			bases = append(bases, c)
		}
	}
	slices.SortFunc(bases, commit.Compare)
	return bases
}

// drawCrissCross draws a history of devices that merge each other's heads at the same time, each in
// its own way, and returns the heads of two of them. Both have an own commit.
func drawCrissCross(t *rapid.T) (h *history, left, right *commit.Commit) {
	h = &history{page: newTestPage(), commits: []*commit.Commit{commit.First()}, content: map[commit.ID]map[string]string{}}
	h.content[commit.First().ID] = map[string]string{}
	h.edit(t, 10, "root", commit.First())
	heads := make([]*commit.Commit, rapid.IntRange(2, 3).Draw(t, "devices"))
	for i := range heads {
		heads[i] = h.commits[1]
	}
	rounds := rapid.IntRange(2, 5).Draw(t, "rounds")
	for round := range rounds {
		published := slices.Clone(heads)
		for i := range heads {
			other := published[(i+rapid.IntRange(1, len(heads)-1).Draw(t, "other"))%len(heads)]
			n := len(h.commits)
			if round%2 == 1 && round < rounds-1 && !h.related(heads[i], other) {
				h.mergeAtWill(t, n, heads[i], other)
			} else {
				h.edit(t, int64(20*round+i), fmt.Sprint(n), heads[i])
			}
			if len(h.commits) > n {
				heads[i] = h.commits[n]
			}
		}
	}
	left, right = heads[0], heads[1]
	if commit.Compare(left, right) > 0 {
		left, right = right, left
	}
	return h, left, right
}

// TestHeadsModel compares merges of random histories, most of them criss-cross, with a model on
// maps.
func TestHeadsModel(t *testing.T) {
	rules := merge.Rules{Rules: []merge.Rule{{Decider: byKey{}}}}
	rapid.Check(t, func(t *rapid.T) {
		h, left, right := drawCrissCross(t)
		if h.related(left, right) {
			return
		}
		env, sink := h.page.sealed()
		merged, err := merge.Heads(t.Context(), env, rules, []*commit.Commit{left, right})
		if err != nil {
			t.Fatalf("merge: %v", err)
		}
		rel, err := merge.Relate(t.Context(), h.page, left, right)
		if err != nil {
			t.Fatalf("relate: %v", err)
		}
		if len(rel.Bases) == 1 {
			h.page.wantOnlyReachable(t, sink, merged)
		}
		maps.Copy(h.page.nodes, sink.nodes)
		m := merged[0]
		if m.Left != left || m.Right != right {
			t.Fatalf("sides are not in the order of commit.Compare")
		}
		var want map[string]string
		conflicts := map[string]bool{}
		switch m.How {
		case merge.ThreeWay:
			want = h.join(h.version(left), h.version(right), func(key, l, r string) string {
				conflicts[key] = true
				v, _ := byKeyResult(key, l, r)
				return v
			}).content
		case merge.Equal:
			want = h.content[left.ID]
		default:
			if want = h.content[left.ID]; m.Commit.Root == right.Root {
				want = h.content[right.ID]
			}
		}
		wantContent(t, h.page, m.Commit, want)
		got := map[string]bool{}
		for d, err := range merge.Decisions(t.Context(), h.page.view(), m.Explanation, nil) {
			if err != nil || d.Rule != "by key" {
				t.Fatalf("decision %v: %v", d, err)
			}
			got[string(d.Key)] = true
		}
		if diff := cmp.Diff(conflicts, got); diff != "" || m.Conflicts != len(got) {
			t.Fatalf("%d conflicts: -want +got:\n%s", m.Conflicts, diff)
		}
		other, err := merge.Heads(t.Context(), env, rules, []*commit.Commit{right, left})
		if err != nil || other[0].Commit.ID != m.Commit.ID || other[0].Explanation != m.Explanation {
			t.Fatalf("I1: the other order gives another merge: %v", err)
		}
	})
}

// TestHeadsInAnyOrder merges all heads of random histories by last one wins.
func TestHeadsInAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := drawHistory(t, 16)
		var tips []*commit.Commit
		for _, c := range h.commits {
			if !slices.ContainsFunc(h.commits, func(o *commit.Commit) bool { return slices.Contains(o.Parents, c.ID) }) {
				tips = append(tips, c)
			}
		}
		env, _ := h.page.sealed()
		first, err := merge.Heads(t.Context(), env, merge.Rules{}, tips)
		if err != nil {
			t.Fatalf("merge: %v", err)
		}
		if len(first) != len(tips)-1 {
			t.Fatalf("%d merges of %d heads", len(first), len(tips))
		}
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		rng.Shuffle(len(tips), func(i, j int) { tips[i], tips[j] = tips[j], tips[i] })
		again, err := merge.Heads(t.Context(), env, merge.Rules{}, tips)
		if err != nil {
			t.Fatalf("merge: %v", err)
		}
		for i := range first {
			if first[i].Commit.ID != again[i].Commit.ID || first[i].Explanation != again[i].Explanation {
				t.Fatalf("I1: merge %d depends on the order of the heads", i)
			}
		}
	})
}
