package seal

import (
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/internal/secret"
)

// Chain is the chain of a bucket's rings from the first one on. Each ring names the hash of the one
// before. It is immutable.
type Chain struct {
	rings []*Ring
}

// ParseChain reads the rings of a chain, from ring 0 on, without a key. Errors: *base.CorruptError
// for bytes that are not a ring, and for a ring that does not follow the one before;
// *base.FormatError.
func ParseChain(rings [][]byte) (*Chain, error) {
	c := &Chain{}
	for i, b := range rings {
		r, err := c.parseNext(b)
		if err != nil {
			return nil, fmt.Errorf("ring %d: %w", i, err)
		}
		c.rings = append(c.rings, r)
	}
	if len(c.rings) == 0 {
		return nil, corruptRing("a ring", "none")
	}
	return c, nil
}

// parseNext reads a ring that must follow those of the chain.
func (c *Chain) parseNext(b []byte) (*Ring, error) {
	r, err := ParseRing(b)
	switch {
	case err != nil:
	case len(c.rings) > 0:
		err = r.follows(c.Newest())
	case r.Number != 0:
		err = corruptRing("ring 0", fmt.Sprintf("ring %d", r.Number))
	}
	return r, err
}

// follows returns an error unless r names before as its predecessor.
func (r *Ring) follows(before *Ring) error {
	if r.Number != before.Number+1 || r.Previous != before.Hash || r.BucketID != before.BucketID || r.Algorithm != before.Algorithm {
		return corruptRing(fmt.Sprintf("ring %d of bucket %s behind %s", before.Number+1, before.BucketID, before.Hash),
			fmt.Sprintf("ring %d of bucket %s behind %s", r.Number, r.BucketID, r.Previous))
	}
	return nil
}

// Newest returns the last ring.
func (c *Chain) Newest() *Ring { return c.rings[len(c.rings)-1] }

// Rings returns the bytes of all rings, in order. They must not be changed.
func (c *Chain) Rings() [][]byte {
	all := make([][]byte, len(c.rings))
	for i, r := range c.rings {
		all[i] = r.raw
	}
	return all
}

// Append returns the chain with one more ring. Errors: as ParseChain.
func (c *Chain) Append(ring []byte) (*Chain, error) {
	r, err := c.parseNext(ring)
	if err != nil {
		return nil, err
	}
	return &Chain{rings: append(slices.Clip(c.rings), r)}, nil
}

// Derive returns the master key of a passphrase for a slot of the chain: a slot of the newest ring,
// else of an older one. It derives once for each slot with a passphrase. Errors: ErrWrongKey if no
// slot has that passphrase, ErrPlaintext, base.ErrInvalid for an empty one.
func (c *Chain) Derive(passphrase secret.Bytes) (MasterKey, error) {
	if c.Newest().Algorithm == Plain {
		return MasterKey{}, fmt.Errorf("open keyring of bucket %s: a passphrase was given: %w", c.Newest().BucketID, ErrPlaintext)
	}
	tried := map[ID]bool{}
	for _, r := range slices.Backward(c.rings) {
		for i := range r.slots {
			s := &r.slots[i]
			if s.kind != SlotPassphrase || tried[s.id] {
				continue
			}
			tried[s.id] = true
			m, err := s.kdf().Derive(passphrase)
			if err != nil {
				return MasterKey{}, err
			}
			if m.opens(r.BucketID, s) {
				return m, nil
			}
		}
	}
	if len(tried) == 0 {
		return MasterKey{}, fmt.Errorf("open keyring of bucket %s: no passphrase opens it, but a key file or recovery words do: %w", c.Newest().BucketID, ErrWrongKey)
	}
	return MasterKey{}, fmt.Errorf("open keyring of bucket %s: %w", c.Newest().BucketID, ErrWrongKey)
}

// Open returns the keyring of the newest ring, opened with a master key; the zero key opens a
// plaintext keyring. Of the rings that the key opens up to the newest without a gap, each must be
// signed by a slot of the one before. The hashes prove older rings.
//
// Errors: ErrWrongKey if no slot has that key, or if a key is needed and none is given; ErrShutOut
// if only older rings have such a slot; ErrPlaintext if a key is given and the keyring is
// plaintext; *base.CorruptError if the key is right and a ring was changed.
func (c *Chain) Open(master MasterKey) (*Keyring, error) {
	newest := c.Newest()
	switch {
	case newest.Algorithm == Plain && !master.IsZero():
		return nil, fmt.Errorf("open keyring of bucket %s: a key was given: %w", newest.BucketID, ErrPlaintext)
	case newest.Algorithm != Plain && master.IsZero():
		return nil, fmt.Errorf("open keyring of bucket %s: it is sealed and no key was given: %w", newest.BucketID, ErrWrongKey)
	}
	from := 0
	var keys *slotKeys
	if newest.Algorithm != Plain {
		id, err := c.slotOf(master)
		if err != nil {
			return nil, err
		}
		for from = len(c.rings) - 1; from > 0 && c.rings[from-1].has(id); {
			from--
		}
		keys = master.keysOf(newest.BucketID, id)
	}
	k, err := c.rings[from].open(keys)
	if err != nil {
		return nil, err
	}
	if from == 0 || c.rings[0].Algorithm != Plain && slices.ContainsFunc(k.slots, func(s slot) bool { return s.id == c.rings[from].signer }) {
		if err := c.rings[from].signedBy(k.slots); err != nil {
			return nil, err
		}
	}
	for _, r := range c.rings[from+1:] {
		if k, err = k.accept(r); err != nil {
			return nil, err
		}
	}
	return k, nil
}

// slotOf returns the id of the slot of the newest ring that master opens.
func (c *Chain) slotOf(master MasterKey) (ID, error) {
	newest := c.Newest()
	for i, r := range slices.Backward(c.rings) {
		at := r.slotOf(master)
		if at < 0 {
			continue
		}
		if i < len(c.rings)-1 {
			return ID{}, fmt.Errorf("open keyring of bucket %s: slot %s opens ring %d, and the newest is %d: %w", newest.BucketID, r.slots[at].id, r.Number, newest.Number, ErrShutOut)
		}
		return r.slots[at].id, nil
	}
	return ID{}, fmt.Errorf("open keyring of bucket %s: %w", newest.BucketID, ErrWrongKey)
}

func (r *Ring) has(id ID) bool {
	return slices.ContainsFunc(r.slots, func(s slot) bool { return s.id == id })
}

// Accept returns the keyring of the ring after k. The ring must name k's hash, be signed by a slot
// of k, and have all keys of k. Errors: *base.CorruptError for bytes that are not a ring or do not
// follow k; ErrShutOut for a ring that follows and no longer has the slot with which k was opened;
// *base.FormatError.
func (k *Keyring) Accept(ring []byte) (*Keyring, error) {
	r, err := ParseRing(ring)
	if err != nil {
		return nil, err
	}
	return k.accept(r)
}

func (k *Keyring) accept(r *Ring) (*Keyring, error) {
	if err := r.follows(&Ring{Number: k.number, Hash: k.hash, BucketID: k.bucket, Algorithm: k.algorithm}); err != nil {
		return nil, err
	}
	if err := r.signedBy(k.slots); err != nil {
		return nil, err
	}
	if k.algorithm != Plain && !r.has(k.self.id) {
		return nil, fmt.Errorf("ring %d of bucket %s does not have slot %s: %w", r.Number, r.BucketID, k.self.id, ErrShutOut)
	}
	next, err := r.open(k.self)
	if err != nil {
		return nil, err
	}
	if problem := k.lost(next); problem != "" {
		return nil, corruptRing("", fmt.Sprintf("ring %d has %s", r.Number, problem))
	}
	return next, nil
}

// lost describes what of k is missing or different in next.
func (k *Keyring) lost(next *Keyring) (problem string) {
	same := func(a, b secret.Bytes) bool { return a.Equal(b) }
	if !same(k.names, next.names) || !same(k.chunking, next.chunking) || len(next.data) < len(k.data) || !slices.EqualFunc(k.data, next.data[:len(k.data)], same) {
		return "other keys than the one before"
	}
	for i := range next.slots {
		s := &next.slots[i]
		j := slices.IndexFunc(k.slots, func(o slot) bool { return o.id == s.id })
		if j < 0 {
			continue
		}
		if o := &k.slots[j]; o.fixed != s.fixed || o.label != s.label || !o.sign.Equal(s.sign) || !o.box.Equal(s.box) {
			return fmt.Sprintf("another slot %s than the one before", s.id)
		}
	}
	return ""
}
