package epoch

// Looked is what a list of epochs/ shows.
type Looked struct {
	// Any reports whether there is an object at all, and Newest is the greatest number.
	Any    bool
	Newest uint64
	// Own reports that the device's epochs/{K} is there and has the id that it had.
	Own bool
	// Damaged reports that the device's epochs/{K} is there and cannot be opened.
	Damaged bool
	// Deleted reports that the newest epoch is of kind Deleted. Only a device that knows of a
	// deletion asks.
	Deleted bool
	// At is a time not later than the request, by the bucket's clock.
	At Time
}

// Behind returns the number behind the greatest in the bucket, 0 where there is none.
func (l Looked) Behind() uint64 {
	if !l.Any {
		return 0
	}
	return l.Newest + 1
}

// LookVerdict says what a look means.
type LookVerdict uint8

// The verdicts of a look.
const (
	// Current: the device's epoch is the newest. Position.Looked becomes Looked.At.
	Current LookVerdict = iota + 1
	// Enter: the device gets epochs/{Newest} with its checkpoint and joins it. Where either is
	// missing or damaged it looks again, and renews if the same epoch is still the newest.
	Enter
	// Empty: there is no epoch. A device that has joined one renews, another one founds.
	Empty
	// Restore: the page was deleted for all devices, and the bucket does not say so any more. The
	// device puts the epoch again, behind the greatest number.
	Restore
)

// Look judges a list of epochs/.
func (p Position) Look(l Looked) LookVerdict {
	switch {
	case p.Joined() && l.Any && l.Own && l.Newest == p.K:
		return Current
	case p.Deleted && !l.Deleted:
		return Restore
	case !l.Any:
		return Empty
	}
	return Enter
}

// Reading is what stands at the number behind a position.
type Reading struct {
	// Found reports that there is an object, and Bad that it cannot be opened.
	Found, Bad bool
	// Later reports, where nothing was found, that an entry with a greater number was seen.
	Later bool
	// Previous is the hash of the entry before it.
	Previous Hash
	Created  Time
	// Closing is the proposal of a closing entry, nil for another one.
	Closing *Proposal
}

// ReadVerdict says what an entry means.
type ReadVerdict uint8

// The verdicts of a reading.
const (
	// End: there is nothing behind the position.
	End ReadVerdict = iota + 1
	// LookFirst: the entry may be one that came to the name of a deleted one. The device looks, and
	// reads again if its epoch is still the newest.
	LookFirst
	// Damaged: the bucket has lost or changed what belongs here. The device renews.
	Damaged
	// Help: the log of this epoch is closed. The device helps the proposal to become an epoch.
	Help
	// Apply: the entry counts.
	Apply
)

// Read judges what stands at the number behind the position.
func (p Position) Read(r Reading) ReadVerdict {
	switch {
	case !r.Found && r.Later:
		return Damaged
	case !r.Found:
		return End
	case !p.fresh(r.Created):
		return LookFirst
	case r.Bad || r.Previous != p.Hash:
		return Damaged
	case r.Closing != nil:
		return Help
	}
	return Apply
}

// fresh reports whether the last look covers what was created at t. An entry that was created less
// than Freshness after it was put to a name that no deletion can have freed: a successor of the
// epoch is younger than the look, and nothing of the epoch is deleted for Grace after that.
func (p Position) fresh(t Time) bool { return t != 0 && p.Looked != 0 && t < p.Looked.Add(Freshness) }

// Put judges the answer to putting an entry at the number behind the position. stored reports that
// the store has confirmed it, created when. It reports whether the entry counts. Otherwise the
// device reads that number, and puts the same bytes again if nothing is there.
func (p Position) Put(stored bool, created Time) bool { return stored && p.fresh(created) }

// Applied returns the position behind an entry with the given hash.
func (p Position) Applied(h Hash) Position {
	p.Number, p.Hash = p.Number+1, h
	return p
}
