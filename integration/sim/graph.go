package sim

import (
	"fmt"
	"maps"
	"math/bits"
	"slices"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/split"
)

// graph is the model: every commit that any device ever made.
type graph struct {
	nodes []*node // parents before children
	byID  map[commit.ID]*node
	// merges counts merges. threeWay counts those of two different contents decided key by key, and
	// criss those with several bases.
	merges, threeWay, criss, conflicts int
	// back is set when a commit has a lesser timestamp than its parent. A write that was replaced
	// later may then have won over others before. So the result depends on the order of merges.
	back bool
	// recut is set when devices cut long values differently. A merge looks for the writer of a
	// value by its cut, which the model does not have.
	recut bool
	// short is set when history is given up. A merge looks for the last writer in the kept history,
	// which the model does not have.
	short bool
}

// node is a commit with its state in the model.
type node struct {
	c       *commit.Commit
	index   int
	parents []*node
	above   set               // the commit and all its ancestors
	content map[string]string // of the page; never changed
	writes  map[string]bool   // the keys that the commit changed; nil for a merge
	bases   []*node           // of the parents of a merge, in the order of commit.Compare
}

func newGraph() *graph {
	g := &graph{byID: map[commit.ID]*node{}}
	first := &node{c: commit.First(), content: map[string]string{}, above: set{}.with(0)}
	g.nodes, g.byID[first.c.ID] = []*node{first}, first
	return g
}

// add adds a commit and computes its ancestors, bases and writes.
func (g *graph) add(c *commit.Commit, content map[string]string) (*node, error) {
	n := &node{c: c, index: len(g.nodes), content: content}
	var parents []*commit.Commit
	for _, id := range c.Parents {
		p := g.byID[id]
		if p == nil {
			return nil, fmt.Errorf("S6: commit %s has a parent %s that nobody made", c.ID.Short(), id.Short())
		}
		n.parents = append(n.parents, p)
		parents = append(parents, p.c)
		n.above = n.above.or(p.above)
	}
	if err := commit.CheckParents(c, parents); err != nil {
		return nil, fmt.Errorf("S6: %w", err)
	}
	if len(n.parents) == 2 {
		g.merges++
		if n.bases = g.bases(n.parents[0].above.and(n.parents[1].above)); len(n.bases) > 1 {
			g.criss++
		}
	} else {
		g.back = g.back || c.Timestamp < parents[0].Timestamp
		n.writes = map[string]bool{}
		for _, k := range changed(n.parents[0].content, content) {
			n.writes[k] = true
		}
	}
	n.above = n.above.with(n.index)
	g.nodes = append(g.nodes, n)
	g.byID[c.ID] = n
	return n, nil
}

// bases returns the commits of s without descendants in s, in the order of commit.Compare. s must
// include the ancestors of all its commits.
func (g *graph) bases(s set) []*node {
	var out []*node
	for s = slices.Clone(s); ; {
		i := s.last()
		if i < 0 {
			break
		}
		out = append(out, g.nodes[i])
		s = s.minus(g.nodes[i].above)
	}
	slices.SortFunc(out, func(a, b *node) int { return commit.Compare(a.c, b.c) })
	return out
}

// own returns the commits of s that are no merges, the greatest by commit.CompareGeneration first.
func (g *graph) own(s set) []*node {
	var out []*node
	for i := range s.all() {
		if n := g.nodes[i]; n.writes != nil {
			out = append(out, n)
		}
	}
	slices.SortFunc(out, func(a, b *node) int { return commit.CompareGeneration(b.c, a.c) })
	return out
}

func (n *node) value(key string) string { return value(n.content, key) }

func value(content map[string]string, key string) string {
	if v, ok := content[key]; ok {
		return v
	}
	return absent
}

// changed returns the keys with different values in a and b.
func changed(a, b map[string]string) []string {
	var out []string
	for _, k := range keys(a, b) {
		if value(a, k) != value(b, k) {
			out = append(out, k)
		}
	}
	return out
}

// keys returns the keys of all contents, sorted.
func keys(contents ...map[string]string) []string {
	all := map[string]bool{}
	for _, c := range contents {
		for k := range c {
			all[k] = true
		}
	}
	return slices.Sorted(maps.Keys(all))
}

// set is an immutable set of indices of nodes.
type set []uint64

func (s set) with(i int) set {
	out := make(set, max(len(s), i/64+1))
	copy(out, s)
	out[i/64] |= 1 << (i % 64)
	return out
}

func (s set) has(i int) bool { return i/64 < len(s) && s[i/64]>>(i%64)&1 == 1 }

func (s set) or(t set) set {
	if len(s) < len(t) {
		s, t = t, s
	}
	out := slices.Clone(s)
	for i, w := range t {
		out[i] |= w
	}
	return out
}

func (s set) and(t set) set {
	out := slices.Clone(s[:min(len(s), len(t))])
	for i := range out {
		out[i] &= t[i]
	}
	return out
}

func (s set) minus(t set) set {
	out := slices.Clone(s)
	for i := range out[:min(len(s), len(t))] {
		out[i] &^= t[i]
	}
	return out
}

// last returns the greatest index, or -1 for the empty set.
func (s set) last() int {
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] != 0 {
			return i*64 + bits.Len64(s[i]) - 1
		}
	}
	return -1
}

func (s set) all() func(yield func(int) bool) {
	return func(yield func(int) bool) {
		for i, w := range s {
			for ; w != 0; w &= w - 1 {
				if !yield(i*64 + bits.TrailingZeros64(w)) {
					return
				}
			}
		}
	}
}

// newer reports whether a is after b in the order of commits.
func newer(a, b *node) bool { return commit.Compare(a.c, b.c) > 0 }

// maybeRecut reports whether one of the values may exist in several cuts.
func (g *graph) maybeRecut(l, r string) bool {
	return g.recut && max(len(l), len(r)) >= split.MinChunkBytes
}
