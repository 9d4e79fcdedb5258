package epoch

import "slices"

// Local is what a device has when it enters an epoch.
type Local struct {
	// View are all commits of the device, synced or not, with their nearest ancestors.
	View Graph
	// Memory are all commits that the device ever learned were given up.
	Memory Set
}

// Joined is the fate of a device's commits in an epoch.
type Joined struct {
	// GivenUp are commits of the device that the epoch does not keep and lists as gone.
	GivenUp Set
	// Unsynced are commits of the device that have to be sent, with their nearest ancestors.
	Unsynced Graph
	// View has the commits of the log and Unsynced.
	View Graph
	// Heads are the heads of the log that count as heads on the device. If there is one, it descends
	// from all of Below, the latest of the device's commits that the log lists as gone.
	Heads, Below Set
	// Folds are merges whose base is among the commits given up. The device first merges the heads
	// of the log into one, as every device does. Then it merges each of Folds with the result, in
	// this order. The device does so before it gives anything up.
	Folds []Fold
	// Memory replaces that of Local. Send are the commits in Memory that the log does not list.
	// They go up with Unsynced, so that none of them becomes a head again.
	Memory, Send Set
}

// Fold is a merge of an unsynced head of the device with the one head of the log.
type Fold struct {
	Head  Commit
	Bases Set
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
	history := l.View.With(s.Kept...)
	for _, n := range history.Reduce(kept.Union(unsynced)) {
		if unsynced.Has(n.ID) {
			j.Unsynced = append(j.Unsynced, n)
		}
	}
	j.View = s.Kept.With(j.Unsynced...)
	j.Heads = s.Heads().Without(j.Send)
	j.Below = l.View.Reduce(s.Gone).Heads()
	j.Folds = folds(history, &j, s)
	return j
}

// folds returns the merges for which j.View lacks the base. The checkpoint does not say which of
// its commits descend from a given-up one. It need not: a device gives a commit up only while it
// has a head above it. So the one head, into which all others are merged, descends from all gone
// and all kept commits. If one of these descends from an unsynced commit, as far as the device can
// tell, that commit needs no merge: it was in the log before a renewal that lacks it, and is in
// that head. The head need not descend from j.Send, which the log does not list. A log head in
// j.Send stops being a head for every device.
func folds(history Graph, j *Joined, s State) (all []Fold) {
	below := s.Gone.Union(s.Kept.Set())
	for _, u := range history.Heads().And(j.Unsynced.Set()) {
		from := history.Ancestors(u)
		if len(j.Heads) == 0 || j.Heads.Within(from) {
			continue
		}
		bases := history.highest(from.And(below))
		if !bases.Within(j.View.Set()) {
			all = append(all, Fold{u, bases})
			below = below.Union(from)
		}
	}
	return all
}

// Merging is the history in which a device merges.
type Merging struct {
	// Graph has the nearest ancestors of each commit. They skip given-up commits, as on all
	// devices, unless a merge needs one as its base.
	Graph Graph
	// On is nil without folds. Else the heads above a commit of On are merged into one before all
	// other merges: first the heads of the log; then the result with one unsynced head after the
	// other. No other commit is known to descend from the commits on which that head stands.
	On Set
	// Top is the commit that descends from all given-up commits, with the edges that say so. They
	// are durable before a commit is built on Top. The ID is 0 if Graph lacks these edges.
	Top Node
}

// Merging returns the history in which a device with the commits of view merges. stored are those
// that were given up.
func (j *Joined) Merging(view Graph, stored Set) Merging {
	m := Merging{Graph: view.Reduce(view.Set().Without(stored))}
	if len(j.Folds) == 0 {
		return m
	}
	top := j.Heads[0]
	if len(j.Heads) > 1 {
		i := slices.IndexFunc(j.Unsynced, func(n Node) bool { return j.Heads.Within(view.Ancestors(n.ID)) })
		if i < 0 {
			m.On = j.Heads
			return m
		}
		top = j.Unsynced[i].ID
	}
	m.On = SetOf(top, j.Folds[0].Head)
	m.Graph = view.With(Node{ID: top, Near: j.Below})
	i, _ := m.Graph.Index(top)
	m.Top = m.Graph[i]
	return m
}
