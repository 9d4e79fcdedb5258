package seal

import (
	"errors"
	"fmt"
	"slices"
)

// ErrForked reports rings that go on from an older one than the newest that is known, and that must
// not be taken: the known ones have shut somebody out or drawn a data key since, or nobody can
// tell.
var ErrForked = errors.New("the keyring was continued from an older state")

// Fork takes over rings that follow a ring of c other than its newest one: those that a bucket has
// which was wiped or taken back, and which another device has filled again. k is the keyring of the
// newest ring of c. rings are those behind the last that both have, in order. It returns the chain
// and the keyring with them, and a change that adds what they lack of the slots that c has added
// since; devices register again by themselves.
//
// It takes them only if c has added slots and devices since, and nothing else (I6). Whoever has a
// slot could have had them added after the others' rings, so that nothing was lost that somebody
// relied on. Had c shut somebody out, he could be the one who has signed the other rings.
//
// Errors: ErrForked; ErrShutOut when the slot with which k was opened is not in the last ring;
// *base.CorruptError and *base.FormatError for rings that are none or do not follow.
func (c *Chain) Fork(k *Keyring, rings [][]byte) (*Chain, *Keyring, Change, error) {
	fail := func(err error) (*Chain, *Keyring, Change, error) {
		return nil, nil, Change{}, fmt.Errorf("take over another keyring than the one that is known: %w", err)
	}
	if len(rings) == 0 || c.Newest().Hash != k.hash {
		return fail(fmt.Errorf("%d rings beside ring %d: %w", len(rings), k.number, ErrForked))
	}
	first, err := ParseRing(rings[0])
	if err != nil {
		return fail(err)
	}
	at := slices.IndexFunc(c.rings, func(r *Ring) bool { return r.Hash == first.Previous })
	if at < 0 || k.algorithm != Plain && !c.rings[at].has(k.self.id) {
		return fail(fmt.Errorf("ring %d follows none that is known and open: %w", first.Number, ErrForked))
	}
	before, err := c.rings[at].open(k.self)
	if err != nil {
		return fail(err)
	}
	if what := before.takenSince(k); what != "" {
		return fail(fmt.Errorf("%s since ring %d: %w", what, before.number, ErrForked))
	}
	chain, next := &Chain{rings: slices.Clip(c.rings[:at+1])}, before
	for _, b := range rings {
		if chain, err = chain.Append(b); err != nil {
			return fail(err)
		}
		if next, err = next.accept(chain.Newest()); err != nil {
			return fail(err)
		}
	}
	for _, d := range k.devices {
		if other, ok := next.Device(d.ID); ok && other.Key != d.Key {
			return fail(fmt.Errorf("device %s has another key: %w", d.ID, ErrForked))
		}
	}
	var again Change
	for i := range k.slots {
		s := &k.slots[i]
		same := func(o slot) bool { return o.id == s.id }
		if !slices.ContainsFunc(before.slots, same) && !slices.ContainsFunc(next.slots, same) {
			again.AddSlots = append(again.AddSlots, NewSlot{again: s})
		}
	}
	return chain, next, again, nil
}

// takenSince returns what a later keyring of the same chain has done beside adding slots and
// devices.
func (k *Keyring) takenSince(later *Keyring) string {
	if len(later.data) != len(k.data) {
		return "a data key was drawn"
	}
	for i := range k.slots {
		if !slices.ContainsFunc(later.slots, func(o slot) bool { return o.id == k.slots[i].id }) {
			return fmt.Sprintf("slot %s was removed", k.slots[i].id)
		}
	}
	for _, d := range k.devices {
		if now, ok := later.Device(d.ID); !ok || now.Until != d.Until {
			return fmt.Sprintf("device %s was shut out", d.ID)
		}
	}
	return ""
}
