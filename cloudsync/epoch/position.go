package epoch

// Looked is the result of listing epochs/.
type Looked struct {
	// Any reports whether epochs/ has an object. Newest is the greatest number.
	Any    bool
	Newest uint64
	// Own reports that the device's epochs/{K} exists and has the id that the device recorded.
	Own bool
	// Damaged reports that the device's epochs/{K} is there and cannot be opened.
	Damaged bool
	// Deleted reports that the newest epoch is of kind Deleted. Only a device that has learned of a
	// deletion asks for it.
	Deleted bool
	// At is not later than the request, by the bucket's clock.
	At Time
}

// Behind returns the number after the greatest in the bucket, 0 where there is none.
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
	// Enter: the device gets epochs/{Newest} with its checkpoint and joins it. If either is missing
	// or damaged, the device looks again, and renews if the same epoch is still the newest.
	Enter
	// Empty: there is no epoch. A device that has joined one renews; any other device founds.
	Empty
	// Restore: the page was deleted for all devices, and the bucket no longer says so. The device
	// puts another epoch of this kind, after the greatest number.
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

// Reading is what a device found at the number after its position.
type Reading struct {
	// Found reports that there is an object; Bad reports that the object cannot be opened.
	Found, Bad bool
	// Later reports, where nothing was found, that an entry with a greater number exists.
	Later bool
	// Previous is the hash of the entry before it.
	Previous Hash
	Created  Time
	// Closing is the proposal of a closing entry, nil for any other entry.
	Closing *Proposal
}

// ReadVerdict says what an entry means.
type ReadVerdict uint8

// The verdicts of a reading.
const (
	// End: there is no entry after the position.
	End ReadVerdict = iota + 1
	// LookFirst: the entry may have taken the name of a deleted one. The device looks, and reads
	// again if its epoch is still the newest.
	LookFirst
	// Damaged: the bucket has lost or changed the entry that belongs here. The device renews.
	Damaged
	// Help: the log of this epoch is closed. The device helps its proposal.
	Help
	// Apply: the entry counts.
	Apply
)

// Read judges the entry found at the number after the position.
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

// fresh reports whether the last look covers an object created at t. Within Freshness after the
// look, no deletion can have freed the name of an entry of this epoch: its successor is younger
// than the look, and objects of the epoch stay for Grace after the successor began.
func (p Position) fresh(t Time) bool { return t != 0 && p.Looked != 0 && t < p.Looked.Add(Freshness) }

// Put reports whether an entry put after the position counts. stored reports that the store has
// confirmed the put; created is the entry's creation time. If the entry does not count, the device
// reads that number, and puts the same bytes again if it finds nothing.
func (p Position) Put(stored bool, created Time) bool { return stored && p.fresh(created) }

// Applied returns the position after an entry with the given hash.
func (p Position) Applied(h Hash) Position {
	p.Number, p.Hash = p.Number+1, h
	return p
}
