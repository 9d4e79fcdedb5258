package epoch

import "slices"

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
	// Graph is the history in which the device merges: View, and if Wait holds, also the given-up
	// commits that the device has.
	Graph Graph
	// Wait says that a merge of the heads needs a given-up commit, as a base or as a base of bases.
	// The device makes it before it sends anything: other devices may lack that commit.
	Wait bool
	// Memory are all commits that the device knows to be given up. Send are those that the log does
	// not list. They go up with Unsynced, so that none of them becomes a head again.
	Memory, Send Set

	whole Graph // of all commits of the device and of the log
}

// Join decides the fate of the commits of a device: at its entry into an epoch, whose checkpoint
// stands for s, and later, with s at its position. g has all commits of the device, synced or not,
// with their nearest ancestors; memory are those that it ever learned were given up. A commit that
// s keeps is synced. A commit that s lists as gone, or that memory has, is given up. Every other
// commit is unsynced. It does not matter whether or by which device a commit was synced.
func Join(g Graph, memory Set, s State) Joined {
	ids, kept := g.Set(), s.Kept.Set()
	rest := ids.Without(kept)
	j := Joined{Memory: memory.Union(s.Gone)}
	j.Send = j.Memory.Without(s.Gone)
	j.GivenUp = rest.And(j.Memory)
	unsynced := rest.Without(j.Memory)
	j.Heads = s.Heads().Without(j.Send)
	j.whole = g.With(s.Kept...)
	for _, n := range j.whole.Reduce(kept.Union(unsynced)) {
		if unsynced.Has(n.ID) {
			j.Unsynced = append(j.Unsynced, n)
		}
	}
	j.View = s.Kept.With(j.Unsynced...)
	heads := j.whole.Heads().And(j.Heads.Union(unsynced))
	j.Graph = j.whole
	if j.Wait = len(j.whole.Closed(heads).And(j.GivenUp)) > 0; !j.Wait {
		j.Graph = j.whole.Reduce(j.View.Set())
	}
	return j
}

// Held returns the given-up commits that the device keeps: all if Wait holds, else those below
// unsynced commits that stand on one, and those below the pinned ones. A merge may need them once
// the log has brought more commits.
func (j *Joined) Held(pinned Set) Set {
	if j.Wait {
		return j.GivenUp
	}
	on := pinned.And(j.GivenUp)
	unsynced := j.Unsynced.Set()
	for _, n := range j.whole {
		if unsynced.Has(n.ID) {
			on = on.Union(n.Near.And(j.GivenUp))
		}
	}
	return j.whole.Ancestors(on...).And(j.GivenUp)
}

// Above returns s with an edge from its only head to the latest of its given-up commits in g; with
// several heads it returns s. The checkpoint does not say which of its commits descend from a
// given-up one. It need not: a cut begins while the log has one head, and so that head descends
// from all of them. After a renewal the given-up commits may have been under one of several heads.
func (s State) Above(g Graph) State {
	h := s.Heads()
	if len(h) != 1 {
		return s
	}
	i, _ := s.Kept.Index(h[0])
	below := slices.DeleteFunc(g.Reduce(s.Gone), func(n Node) bool { return n.Generation >= s.Kept[i].Generation })
	s.Kept = s.Kept.With(Node{ID: h[0], Near: Graph(below).Heads()})
	return s
}
