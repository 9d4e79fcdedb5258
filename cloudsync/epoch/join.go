package epoch

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
	heads := s.Heads().Without(j.Send)
	below := s.Gone.Union(s.Kept.Set())
	for _, u := range history.Heads().And(j.Unsynced.Set()) {
		from := history.Ancestors(u)
		if len(heads) == 0 || heads.Within(from) {
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
