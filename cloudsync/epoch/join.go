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
	// Graph has all commits of the device and of the log, also given-up ones. The device merges in
	// it.
	Graph Graph
	// Wait says that the heads of the device are merged before it sends anything or begins an
	// epoch: that takes given-up commits, which other devices may lack.
	Wait bool
	// Later are the heads that are merged after the others if Wait holds: no given-up commit that
	// the device has is known to be below them.
	Later Set
	// Keep says that given-up commits stay stored: Wait holds, or may hold after the next entry,
	// since an unsynced commit stands on a given-up one.
	Keep bool
	// Memory are all commits that the device knows to be given up. Send are those that the log does
	// not list. They go up with Unsynced, so that none of them becomes a head again.
	Memory, Send Set
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
	j.Graph = g.With(s.Kept...)
	for _, n := range j.Graph.Reduce(kept.Union(unsynced)) {
		if unsynced.Has(n.ID) {
			j.Unsynced = append(j.Unsynced, n)
		}
	}
	j.View = s.Kept.With(j.Unsynced...)
	j.merging()
	return j
}

// merging sets Wait, Later and Keep.
func (j *Joined) merging() {
	gone, unsynced := j.Graph.Set().Without(j.View.Set()), j.Unsynced.Set()
	heads := j.Graph.Heads().And(j.Heads.Union(unsynced))
	if j.Wait = len(j.Graph.Closed(heads).And(gone)) > 0; j.Wait {
		j.Later = slices.DeleteFunc(slices.Clone(heads), func(h Commit) bool { return len(j.Graph.Ancestors(h).And(gone)) > 0 })
	}
	j.Keep = j.Wait || slices.ContainsFunc(j.Graph, func(n Node) bool { return unsynced.Has(n.ID) && len(n.Near.And(gone)) > 0 })
}

// Above returns the state of an epoch whose head has an edge to the latest commits in g that the
// epoch gave up. The checkpoint does not say which of its commits descend from a given-up one. It
// need not: a cut begins while the log has one head, and so that head descends from all of them.
// After a renewal there may be several heads: then the state stays as it is.
func (s State) Above(g Graph) State {
	if h := s.Heads(); len(h) == 1 {
		s.Kept = s.Kept.With(Node{ID: h[0], Near: g.Reduce(s.Gone).Heads()})
	}
	return s
}
