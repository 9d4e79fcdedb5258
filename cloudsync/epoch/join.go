package epoch

// Local is what a device has when it enters an epoch.
type Local struct {
	// View are all commits of the device, synced or not, with their nearest ancestors.
	View Graph
	// Memory are all commits of which the device ever learned that they were given up.
	Memory Set
}

// Joined is what becomes of the commits of a device in an epoch.
type Joined struct {
	// GivenUp are commits of the device that are given up: the epoch does not have them, and lists
	// them.
	GivenUp Set
	// Unsynced are commits of the device that have to be sent, with their nearest ancestors.
	Unsynced Graph
	// View are the commits of the log and Unsynced.
	View Graph
	// Folds are merges whose base is among what is given up. The device first merges the heads of
	// the log into one, as everybody does. Then it merges each of Folds with the result, in this
	// order. It does so before it gives anything up.
	Folds []Fold
	// Memory replaces that of Local. Send are those of it that the log does not list. They go up
	// with Unsynced, so that none of them becomes a head again.
	Memory, Send Set
}

// Fold is a merge of an unsynced commit, on which no other of the device stands, with the one head
// of the log.
type Fold struct {
	Head  Commit
	Bases Set
}

// Join says what becomes of what a device has when it enters an epoch whose checkpoint stands for
// s. The same commits of the device have the same fate, whether they were synced or not and by
// whom: one that the checkpoint has is synced, one that s lists as gone is given up, and so is one
// that the device has given up before. Each other one is sent.
func Join(l Local, s State) Joined {
	ids, kept := l.View.Set(), s.Kept.Set()
	rest := ids.Without(kept)
	j := Joined{Memory: l.Memory.Union(s.Gone)}
	j.Send = j.Memory.Without(s.Gone)
	s.Gone = s.Gone.Union(l.Memory.Without(kept))
	j.GivenUp = rest.And(s.Gone)
	unsynced := rest.Without(s.Gone)
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
// its commits descend from one that is given up. It need not: a commit was given up by a device
// that had a head above it, so the one head, into which all others are merged, descends from all
// that is gone and from all that is kept. So an unsynced commit on which one of these stands, as
// far as the device knows, needs no merge: it was in the log before a renewal that lacks it, and is
// in that head. The head need not descend from what the log does not list, which is j.Send. A head
// that is in j.Send will be one for nobody.
func folds(history Graph, j *Joined, s State) (all []Fold) {
	heads := s.Heads().Without(j.Send)
	below := s.Gone.Without(j.Send).Union(s.Kept.Set())
	for _, u := range history.Heads().And(j.Unsynced.Set()).Without(j.Send) {
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
