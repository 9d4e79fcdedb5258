package protocol

import "slices"

// rules are the decisions of a machine on which safety rests, each a pure function. Tests replace
// one at a time and show that the model then finds a history in which it goes wrong.
type rules struct {
	// own says whether an entry that was found at the name of a put is the body's own.
	own func(body ID, e *Entry) bool
	// refused goes on after a put that was not confirmed: by a look at its name.
	refused func(m *Machine) []Effect
	// stale says whether what was created at a time needs a newer look at the floor than the last
	// one.
	stale func(created, looked Time) bool
	// junk says whether an entry was created at a name that was free because of a deletion; first
	// is when the first floor above the entry was created.
	junk func(created, first Time) bool
	// chained says whether an entry carries the hash of the one before it.
	chained func(previous, tail Hash) bool
	// condemns says whether an entry condemns what the body relies on.
	condemns func(b *Body, e *Entry) bool
	// condemned says the same of everything that was condemned since the machine was made.
	condemned func(b *Body, packs map[ID]struct{}, below uint64) bool
	// needs says whether an entry relies on what the body condemns.
	needs func(b *Body, e *Entry) bool
	// again says whether an entry was written by an earlier life of the device which has the body.
	again func(b *Body, e *Entry) bool
	// landed says whether the body is the one that was found in the log since its append failed.
	landed func(body, landed ID) bool
	// expected says whether there is reason to think that a missing entry exists.
	expected func(number, low uint64, beyond bool) bool
	// same says whether the entry at the position is the one that was read there.
	same func(found, want Hash) bool
}

var honest = rules{
	own:       func(body ID, e *Entry) bool { return e.ID == body },
	refused:   lookAtName,
	stale:     isStale,
	junk:      func(created, first Time) bool { return created > first },
	chained:   func(previous, tail Hash) bool { return previous == tail },
	condemns:  condemns,
	condemned: condemned,
	needs:     needs,
	again:     func(b *Body, e *Entry) bool { return b.Device != (ID{}) && e.Device == b.Device },
	landed:    func(body, landed ID) bool { return body == landed },
	expected:  func(number, low uint64, beyond bool) bool { return number < low || beyond },
	same:      func(found, want Hash) bool { return found == want },
}

func isStale(created, looked Time) bool {
	return created == 0 || looked == 0 || created >= looked.Add(Freshness)
}

func condemns(b *Body, e *Entry) bool {
	return relyOn(b.Packs, b.Entries, func(id ID) bool { return slices.Contains(e.Condemned, id) }, e.Below)
}

func condemned(b *Body, packs map[ID]struct{}, below uint64) bool {
	return relyOn(b.Packs, b.Entries, func(id ID) bool { _, ok := packs[id]; return ok }, below)
}

func needs(b *Body, e *Entry) bool {
	return relyOn(e.Packs, e.Entries, func(id ID) bool { return slices.Contains(b.Condemned, id) }, b.Below)
}

// relyOn reports whether one of packs is condemned, or one of entries is below below.
func relyOn(packs []ID, entries []uint64, condemned func(ID) bool, below uint64) bool {
	return slices.ContainsFunc(packs, condemned) || slices.ContainsFunc(entries, func(n uint64) bool { return n < below })
}

// CondemnedGone reports whether what an entry created at condemned has condemned may be deleted at
// now, when the floor that belongs to it was created at floor. All three are times of the bucket's
// clock; 0 is never.
func CondemnedGone(condemned, floor, now Time) bool {
	return condemned != 0 && floor != 0 && now >= max(condemned, floor).Add(Grace)
}

// NextFloor returns the floor that follows f for a log that is given up below low, with a
// checkpoint that stands for all entries up to the number checkpoint. ok is false when there is
// nothing to write: when it would not be higher than f, or would pass what the checkpoint does not
// hold.
func NextFloor(f Floor, low, checkpoint uint64) (next Floor, ok bool) {
	if f.Deleted || low <= f.Low || checkpoint+1 < low {
		return Floor{}, false
	}
	return Floor{K: f.K + 1, Low: low, Checkpoint: checkpoint}, true
}
