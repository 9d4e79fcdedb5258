package epoch

import (
	"cmp"
	"math"
	"slices"
)

// Node is a kept commit in a reduced graph, from which given-up commits are taken out.
type Node struct {
	ID Commit
	// Near are the nearest kept ancestors. They are the parents where no parent was given up.
	Near Set
	// Generation is greater than that of each ancestor.
	Generation uint64
	// Time is the timestamp of the commit, in nanoseconds since 1970.
	Time int64
}

// Graph is a reduced graph, ascending by ID. Its functions skip an ancestor that is not in it, and
// do not change it.
type Graph []Node

// Index returns where c stands in the graph.
func (g Graph) Index(c Commit) (int, bool) {
	return slices.BinarySearchFunc(g, c, func(n Node, c Commit) int { return cmp.Compare(n.ID, c) })
}

// Set returns the commits of the graph.
func (g Graph) Set() Set {
	s := make(Set, len(g))
	for i := range g {
		s[i] = g[i].ID
	}
	return s
}

// With returns the graph with more nodes. A node whose commit is present adds its ancestors to it.
func (g Graph) With(nodes ...Node) Graph {
	more := Graph(slices.Clone(nodes))
	slices.SortFunc(more, compareNodes)
	out := make(Graph, 0, len(g)+len(more))
	for len(g)+len(more) > 0 {
		from := &g
		if len(g) == 0 || len(more) > 0 && more[0].ID < g[0].ID {
			from = &more
		}
		n := (*from)[0]
		*from = (*from)[1:]
		if last := len(out) - 1; last >= 0 && out[last].ID == n.ID {
			out[last].Near = out[last].Near.Union(n.Near)
			continue
		}
		out = append(out, n)
	}
	return out
}

func compareNodes(a, b Node) int { return cmp.Compare(a.ID, b.ID) }

// Ancestors returns the commits of the graph from which a given commit descends, and the given
// commits themselves, where the graph has them.
func (g Graph) Ancestors(of ...Commit) Set {
	seen := make([]bool, len(g))
	var stack []int
	visit := func(s Set) {
		for _, c := range s {
			if i, ok := g.Index(c); ok && !seen[i] {
				seen[i] = true
				stack = append(stack, i)
			}
		}
	}
	visit(of)
	for len(stack) > 0 {
		i := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		visit(g[i].Near)
	}
	var out Set
	for i := range g {
		if seen[i] {
			out = append(out, g[i].ID)
		}
	}
	return out
}

// Heads returns the commits without a descendant in the graph.
func (g Graph) Heads() Set {
	var below []Commit
	for i := range g {
		below = append(below, g[i].Near...)
	}
	return g.Set().Without(SetOf(below...))
}

// topDown returns the indexes of the graph, descendants before their ancestors.
func (g Graph) topDown() []int {
	order := make([]int, len(g))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(g[b].Generation, g[a].Generation) })
	return order
}

// Closed returns keep with the latest common ancestors of any two of its commits, and of these.
//
// One pass goes through the graph from the heads down. For each commit v, up holds the first kept
// commits on the paths from v to the heads. If all of them descend from one of them, that one is a
// common ancestor above v of all kept descendants of v, so no merge needs v as a base. If two of
// them do not descend from each other, v is a latest common ancestor of these two: a common
// ancestor above v would be kept, or have a kept commit above it from which both descend.
func (g Graph) Closed(keep Set) Set {
	if len(keep) < 2 || g.Set().Within(keep) {
		return keep
	}
	up := make([]Set, len(g))
	var added Set
	for _, i := range g.topDown() {
		v := g[i].ID
		first := up[i]
		if keep.Has(v) {
			first = Set{v}
		} else if first = g.lowest(first); len(first) > 1 {
			added = append(added, v)
			first = Set{v}
		}
		up[i] = nil
		for _, p := range g[i].Near {
			if j, ok := g.Index(p); ok {
				up[j] = up[j].Union(first)
			}
		}
	}
	return keep.Union(SetOf(added...))
}

// lowest returns the commits of s that descend from no other commit of s.
func (g Graph) lowest(s Set) Set {
	if len(s) < 2 {
		return s
	}
	var out Set
	for _, c := range s {
		if len(g.Ancestors(c).And(s)) == 1 {
			out = append(out, c)
		}
	}
	return out
}

// Reduce returns the graph of the commits in keep, each with its nearest ancestors in keep.
func (g Graph) Reduce(keep Set) Graph {
	var out, others Graph
	var changed []int // in out: they stand on others
	kept := keep.ascending()
	for _, n := range g {
		if !kept(n.ID) {
			others = append(others, n)
			continue
		}
		if slices.ContainsFunc(n.Near, func(p Commit) bool { return !keep.Has(p) }) {
			changed = append(changed, len(out))
		}
		out = append(out, n)
	}
	if len(changed) == 0 {
		return out
	}
	above := map[Commit]Set{} // what the descendants of others inherit
	inherit := func(n *Node) Set {
		var inherited Set
		for _, p := range n.Near {
			if keep.Has(p) {
				inherited = inherited.Union(Set{p})
			} else {
				inherited = inherited.Union(above[p])
			}
		}
		if !slices.Equal(inherited, n.Near) {
			inherited = g.highest(inherited)
		}
		return inherited
	}
	slices.SortFunc(others, func(a, b Node) int { return cmp.Compare(a.Generation, b.Generation) })
	for i := range others {
		above[others[i].ID] = inherit(&others[i])
	}
	for _, i := range changed {
		out[i].Near = inherit(&out[i])
	}
	return out
}

// highest returns the commits of s without a descendant in s. The walk stops at the least
// generation in s.
func (g Graph) highest(s Set) Set {
	if len(s) < 2 {
		return s
	}
	least := uint64(math.MaxUint64)
	for _, c := range s {
		if i, ok := g.Index(c); ok {
			least = min(least, g[i].Generation)
		}
	}
	below := map[Commit]bool{}
	for todo := slices.Clone(s); len(todo) > 0; {
		i, ok := g.Index(todo[len(todo)-1])
		todo = todo[:len(todo)-1]
		if !ok || g[i].Generation <= least {
			continue
		}
		for _, p := range g[i].Near {
			if !below[p] {
				below[p] = true
				todo = append(todo, p)
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(s), func(c Commit) bool { return below[c] })
}
