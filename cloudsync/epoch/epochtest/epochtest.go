package epochtest

import (
	"cmp"
	"slices"

	"github.com/ledgerd/ledger/cloudsync/epoch"
)

// Body is what an entry adds.
type Body struct {
	// Commits are given with their nearest kept ancestors.
	Commits []epoch.Node
	// Gone are commits that were given up in a lineage that the bucket has lost.
	Gone epoch.Set
	// Packs are announced: after this entry the pieces in them have places.
	Packs     []epoch.ID
	Tags      []epoch.Tag
	Retention *epoch.Retention
}

// Empty reports whether the body adds nothing.
func (b *Body) Empty() bool {
	return len(b.Commits) == 0 && len(b.Gone) == 0 && len(b.Packs) == 0 && len(b.Tags) == 0 && b.Retention == nil
}

// Apply returns the state after an entry with the body b.
func Apply(s epoch.State, b *Body) epoch.State {
	s.Kept = s.Kept.With(b.Commits...)
	s.Gone = s.Gone.Union(b.Gone)
	for _, p := range b.Packs {
		if !slices.Contains(s.Packs, p) {
			s.Packs = append(slices.Clip(s.Packs), p)
		}
	}
	for _, t := range b.Tags {
		s.Tags = withTag(s.Tags, t)
	}
	if b.Retention != nil {
		s.Retention = *b.Retention
	}
	return s
}

func withTag(tags []epoch.Tag, t epoch.Tag) []epoch.Tag {
	i, there := slices.BinarySearchFunc(tags, t.Name, func(t epoch.Tag, name string) int { return cmp.Compare(t.Name, name) })
	tags = slices.Clone(tags)
	if there {
		tags = slices.Delete(tags, i, i+1)
	}
	if t.Commit == 0 {
		return tags
	}
	return slices.Insert(tags, i, t)
}

// Bases returns the latest common ancestors of a and b in a graph: the common ones without a common
// descendant. Package merge finds them among commits.
func Bases(g epoch.Graph, a, b epoch.Commit) epoch.Set {
	common := g.Ancestors(a).And(g.Ancestors(b))
	var near epoch.Set
	for _, c := range common {
		if i, ok := g.Index(c); ok {
			near = near.Union(g[i].Near)
		}
	}
	return common.Without(g.Ancestors(near...))
}
