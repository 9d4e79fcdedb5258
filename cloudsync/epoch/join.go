package epoch

import "slices"

// Local is what a device has when it enters an epoch.
type Local struct {
	// View are all commits of the device, synced or not, with their nearest ancestors.
	View Graph
	// Memory are all commits that the device ever learned were given up.
	Memory Set
	// Top are Joined.Heads when the device entered its epoch, none before. Left are commits that
	// entries have given up since.
	Top, Left Set
}

// Joined is the fate of a device's commits in an epoch.
type Joined struct {
	// GivenUp are commits of the device that the epoch does not keep and lists as gone.
	GivenUp Set
	// Unsynced are commits of the device that have to be sent, with their nearest ancestors.
	Unsynced Graph
	// View has the commits of the log and Unsynced.
	View Graph
	// Heads are the heads of the log that count as heads on the device.
	Heads Set
	// Fold is an unsynced head whose merge with the log may need a given-up commit as its base; 0:
	// there is none. See Merging.
	Fold Commit
	// Memory replaces that of Local. Send are the commits in Memory that the log does not list.
	// They go up with Unsynced, so that none of them becomes a head again.
	Memory, Send Set

	// graph has all commits of the device and of the log. A commit above all of Local.Top descends
	// from what the epoch gave up. below are the latest of all given-up commits.
	graph Graph
	below Set
}

// Join decides the fate of a device's commits when the device enters an epoch whose checkpoint
// stands for s. A commit in the checkpoint is synced. A commit that s lists as gone, or that the
// device has given up before, is given up. Every other commit is unsynced. It does not matter
// whether or by which device a commit was synced.
func Join(l Local, s State) Joined {
	ids, kept := l.View.Set(), s.Kept.Set()
	rest := ids.Without(kept)
	j := Joined{Memory: l.Memory.Union(s.Gone)}
	j.Send = j.Memory.Without(s.Gone)
	j.GivenUp = rest.And(j.Memory)
	unsynced := rest.Without(j.Memory)
	j.Heads = s.Heads().Without(j.Send)
	top := l.Top.Without(j.Memory)
	if len(top) == 0 {
		top = j.Heads
	}
	j.graph = l.View.With(s.Kept...).Under(top, l.View.Reduce(s.Gone.Without(l.Left)).Heads())
	j.below = l.View.Reduce(s.Gone).Heads()
	for _, n := range j.graph.Reduce(kept.Union(unsynced)) {
		if unsynced.Has(n.ID) {
			j.Unsynced = append(j.Unsynced, n)
		}
	}
	j.View = s.Kept.With(j.Unsynced...)
	j.Fold = j.fold(s)
	return j
}

// fold returns Joined.Fold. The checkpoint does not say which of its commits descend from a given-
// up one. It need not: a device gives a commit up only while it has a head above it. So a commit
// above all heads of the epoch descends from all gone commits. If a head of the log descends from
// an unsynced commit, as far as the device can tell, that commit needs no merge: it was in the log
// before a renewal that lacks it, and is in that head. The heads need not descend from j.Send,
// which the log does not list. A log head in j.Send stops being a head for every device.
func (j *Joined) fold(s State) Commit {
	if len(j.Heads) == 0 {
		return 0
	}
	below := s.Gone.Union(s.Kept.Set())
	for _, u := range j.graph.Heads().And(j.Unsynced.Set()) {
		from := j.graph.Ancestors(u)
		if !j.Heads.Within(from) && !j.graph.highest(from.And(below)).Within(j.View.Set()) {
			return u
		}
	}
	return 0
}

// Under returns the graph with edges to below from the lowest commits above all of top.
func (g Graph) Under(top, below Set) Graph {
	if len(top) == 0 || len(below) == 0 {
		return g
	}
	g = slices.Clone(g)
	over := make([]Set, len(g)) // of each commit: those of top that it is or descends from
	order := g.topDown()
	slices.Reverse(order)
	for _, i := range order {
		lowest := true
		over[i] = top.And(Set{g[i].ID})
		for _, p := range g[i].Near {
			if k, ok := g.Index(p); ok {
				over[i] = over[i].Union(over[k])
				lowest = lowest && len(over[k]) < len(top)
			}
		}
		if lowest && len(over[i]) == len(top) {
			g[i].Near = g[i].Near.Union(below)
		}
	}
	return g
}

// Merging is the history in which a device merges.
type Merging struct {
	// Graph has the nearest ancestors of each commit. They skip given-up commits, as on all
	// devices, unless a merge needs one as its base.
	Graph Graph
	// On is nil without a Fold. Else two merges precede all others. First the heads of the log are
	// merged into one, also those on which unsynced commits stand: On are these heads, and Top is
	// 0. Then the result is merged with one unsynced head after the other: with the heads above
	// the commits of On.
	On Set
	// Top is the result. No other commit is known to descend from all given-up ones.
	Top Commit
}

// Merging returns the history in which the device merges. stored are the given-up commits that it
// stores.
func (j *Joined) Merging(stored Set) Merging {
	m := Merging{Graph: j.graph.Reduce(j.graph.Set().Without(stored))}
	if j.Fold == 0 {
		return m
	}
	m.Top = j.Heads[0]
	if len(j.Heads) > 1 {
		i := slices.IndexFunc(j.Unsynced, func(n Node) bool { return j.Heads.Within(j.graph.Ancestors(n.ID)) })
		if i < 0 {
			m.On, m.Top = j.Heads, 0
			return m
		}
		m.Top = j.Unsynced[i].ID
	}
	m.On = SetOf(m.Top, j.Fold)
	m.Graph = j.graph.With(Node{ID: m.Top, Near: j.below})
	return m
}
