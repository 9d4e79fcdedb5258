package epoch

// Cut returns the proposal of the epoch id, which gives up what keep does not have, together with
// the state that its checkpoint stands for. The caller has applied the log up to p, and sets
// Checkpoint and Hash of the proposal. packs are those of the manifest. erase are commits that no
// lineage may bring back.
func (s State) Cut(id ID, p Position, keep, erase Set, packs []ID) (Proposal, State) {
	next := s.Reduced(keep, packs, id)
	return Proposal{
		ID: id, Parent: p.Epoch, Kind: Cut, Renewed: p.Renewed, Base: p.Number, BaseHash: p.Hash,
		Erased: erase,
	}, next
}

// Renewal returns the proposal of the epoch id, which repairs the bucket: it keeps all of s but
// what was erased in any lineage, as all objects say that seen shows in epochs/. See Cut.
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
	// PutEpoch: the device puts the proposal at the number that comes with the verdict. Whatever is
	// answered, it looks then, and enters the newest epoch.
	PutEpoch TurnVerdict = iota + 1
	// EnterNewest: another epoch is there already. The device enters it; the proposal is void.
	EnterNewest
	// Renew: the proposal is of no use. It does not repair the newest epoch, which cannot be
	// joined, or does not know what that has erased. The device begins a renewal.
	Renew
)

// Help says what becomes of a proposal from a closing entry, or of a device's own, after a look.
// joinable reports whether the newest epoch could be joined, where it is another one than the
// device's. A renewal takes the number behind the greatest in the bucket, since numbers below may
// be lost.
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
