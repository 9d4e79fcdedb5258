package epoch

// Propose returns an epoch of a device at p. The caller sets the checkpoint, and Erased and Behind.
func (p Position) Propose(id ID, kind Kind) *Proposal {
	x := &Proposal{ID: id, Parent: p.Epoch, Kind: kind, Renewed: p.Renewed, Base: p.Number, BaseHash: p.Hash}
	if kind == Renewal {
		x.Renewed = id
	}
	return x
}

// Renewal returns the state in the checkpoint of a renewal. It keeps all of s but the commits that
// any lineage erased, as the objects in epochs/ say, and those in send: the device has given them
// up, and may lack their trees. The next entry of the device gives up send and brings descendants.
// Until then other devices send these commits again. A commit is given up only while a head stands
// on it, so that entry gives up all of Gone if the renewal lacks a head. See Reduced.
func (s State) Renewal(erased, send Set, packs []ID) State {
	if len(s.Heads().And(send)) > 0 {
		s.Gone = nil
	}
	s.Kept = s.Kept.Reduce(s.Kept.Set().Without(send))
	next := s.Reduced(s.Kept.Set().Without(erased), packs)
	next.Gone = next.Gone.Union(erased)
	return next
}

// TurnVerdict says what a device does with a proposal after a look.
type TurnVerdict uint8

// The verdicts of a turn.
const (
	// PutEpoch: the device puts the proposal at the number returned with the verdict. After any
	// answer it looks, and enters the newest epoch.
	PutEpoch TurnVerdict = iota + 1
	// Renew: the proposal is of no use. It does not repair the newest epoch, which cannot be
	// joined, or it lacks what that epoch erased. The device begins a renewal.
	Renew
)

// Help judges a proposal after a look: one from a closing entry, or the device's own. If the newest
// epoch is not the device's own, it cannot be joined: else the device enters it, and the proposal
// is void. A renewal takes the number after the greatest in the bucket, since lower numbers may be
// lost.
func (p Position) Help(x *Proposal, l Looked) (TurnVerdict, uint64) {
	switch {
	case p.Look(l) == Current:
		return PutEpoch, p.K + 1
	case x.Kind == Cut, x.Kind == Renewal && l.Behind() > x.Behind:
		return Renew, 0
	}
	return PutEpoch, l.Behind()
}
