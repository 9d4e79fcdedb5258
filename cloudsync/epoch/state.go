package epoch

import (
	"cmp"
	"slices"
	"time"
)

// Retention says which history a cut keeps. The zero value keeps all.
type Retention struct {
	// Last is how many of the newest commits are kept; 0: no rule.
	Last uint64
	// Within keeps commits whose timestamps are at most this much older than the newest head's; 0:
	// no rule.
	Within time.Duration
}

// Tag is a name for a commit. Commit 0 removes the name.
type Tag struct {
	Name   string
	Commit Commit
}

// State is the log state of a page. It follows only from the epoch, its checkpoint and the entries
// applied, so devices at equal positions have equal states. Its functions do not change it.
type State struct {
	// Kept are the commits of the log.
	Kept Graph
	// Gone are all commits that this epoch, its ancestors or log entries list as given up.
	Gone Set
	// Packs are the packs in which pieces have places.
	Packs     []ID
	Tags      []Tag // ascending by name
	Retention Retention
}

// Heads returns the kept commits that were not given up and from which no kept commit descends.
func (s State) Heads() Set { return s.Kept.Heads().Without(s.Gone) }

// Keep returns the commits that a cut keeps: the heads, the tagged commits, those that retention
// names, and the bases of all possible merges between these. at is when the last entry was created;
// a later timestamp counts as at. No commit of erase is kept.
func (s State) Keep(at Time, erase Set) Set {
	alive := s.Kept.Set().Without(s.Gone)
	heads := s.Heads()
	keep := heads
	for _, t := range s.Tags {
		keep = keep.Union(Set{t.Commit}.And(alive))
	}
	if s.Retention == (Retention{}) {
		keep = keep.Union(alive)
	} else {
		keep = keep.Union(s.retained(alive, at))
	}
	return s.Kept.Closed(keep.Without(erase)).Without(erase)
}

// retained returns those of the given commits that retention names.
func (s State) retained(of Set, at Time) Set {
	heads, newest := s.Heads(), s.newestFirst(of, at)
	var now int64
	for _, n := range newest {
		if heads.Has(n.ID) {
			now = max(now, stamp(n, at))
		}
	}
	var retained []Commit
	for i, n := range newest {
		if uint64(i) < s.Retention.Last || s.Retention.Within > 0 && stamp(n, at) >= now-int64(s.Retention.Within) {
			retained = append(retained, n.ID)
		}
	}
	return SetOf(retained...)
}

// stamp returns the timestamp of n, at most at.
func stamp(n Node, at Time) int64 { return min(n.Time, int64(at)) }

// newestFirst returns the nodes of the given commits in the order in which retention counts them.
func (s State) newestFirst(of Set, at Time) []Node {
	var out []Node
	for _, n := range s.Kept {
		if of.Has(n.ID) {
			out = append(out, n)
		}
	}
	slices.SortFunc(out, func(a, b Node) int {
		return cmp.Or(cmp.Compare(stamp(b, at), stamp(a, at)), cmp.Compare(b.Generation, a.Generation), cmp.Compare(a.ID, b.ID))
	})
	return out
}

// Reduced returns the state in the checkpoint of an epoch that follows the last entry applied. It
// keeps the commits in keep and gives up all others. packs are those of its manifest.
func (s State) Reduced(keep Set, packs []ID) State {
	s.Gone = s.Gone.Union(s.Kept.Set().Without(keep))
	s.Kept = s.Kept.Reduce(keep)
	s.Packs = packs
	s.Tags = slices.DeleteFunc(slices.Clone(s.Tags), func(t Tag) bool { return !keep.Has(t.Commit) })
	return s
}
