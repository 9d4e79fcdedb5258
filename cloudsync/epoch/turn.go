package epoch

// Cut returns the proposal of the epoch id and the state of its checkpoint. The epoch gives up all
// commits outside keep. The caller has applied the log up to p, and sets Checkpoint and Hash of the
// proposal. packs are those of the manifest. No lineage may restore the commits in erase.
func (s State) Cut(id ID, p Position, keep, erase Set, packs []ID) (Proposal, State) {
	next := s.Reduced(keep, packs, id)
	return Proposal{
		ID: id, Parent: p.Epoch, Kind: Cut, Renewed: p.Renewed, Base: p.Number, BaseHash: p.Hash,
		Erased: erase,
	}, next
}

// Renewal returns the proposal of the epoch id, which repairs the bucket. It keeps all of s but the
// commits that any lineage erased: erased, according to the objects in epochs/ that seen shows. See
// Cut.
func (s State) Renewal(id ID, p Position, seen Looked, erased Set, packs []ID) (Proposal, State) {
	next := s.Reduced(s.Kept.Set().Without(erased), packs, id)
	next.Gone = next.Gone.Union(erased)
	return Proposal{
		ID: id, Parent: p.Epoch, Kind: Renewal, Renewed: id, Base: p.Number, BaseHash: p.Hash,
		Erased: erased, Behind: seen.Behind(),
	}, next
}

// TurnVerdict says what a device does with a proposal after a look.
type TurnVerdict uint8

// The verdicts of a turn.
const (
	// PutEpoch: the device puts the proposal at the number returned with the verdict. After any
	// answer it looks, and enters the newest epoch.
	PutEpoch TurnVerdict = iota + 1
	// EnterNewest: another epoch exists already. The device enters it; the proposal is void.
	EnterNewest
	// Renew: the proposal is of no use. It does not repair the newest epoch, which cannot be
	// joined, or it lacks what that epoch erased. The device begins a renewal.
	Renew
)

// Help judges a proposal after a look: one from a closing entry, or the device's own. joinable
// reports whether the newest epoch could be joined, if it is not the device's own. A renewal takes
// the number after the greatest in the bucket, since lower numbers may be lost.
func (p Position) Help(x *Proposal, l Looked, joinable bool) (TurnVerdict, uint64) {
	switch v := p.Look(l); {
	case v == Current:
		return PutEpoch, p.K + 1
	case v == Enter && joinable:
		return EnterNewest, 0
	case x.Kind == Cut, x.Kind == Renewal && l.Behind() > x.Behind:
		return Renew, 0
	}
	return PutEpoch, l.Behind()
}
