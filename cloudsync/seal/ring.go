package seal

import (
	"bytes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"slices"

	"github.com/ledgerd/ledger/internal/base"
)

// Layout of a ring; the table is in docs/format/sealed.md.
const (
	ringVersion     = 5 // that of the whole bucket
	ringBucketAt    = 4
	ringNumberAt    = ringBucketAt + IDBytes
	ringPreviousAt  = ringNumberAt + 8
	ringEphemeralAt = ringPreviousAt + sumBytes
	ringHeadBytes   = ringEphemeralAt + keyBytes

	sumBytes       = sha256.Size
	slotBytes      = slotFixedBytes + keyBytes + tagBytes
	signatureBytes = IDBytes + ed25519.SignatureSize
	ringTailBytes  = tagBytes + signatureBytes + sumBytes

	// MaxKeyringBytes is more than a ring with all slots and data keys has.
	MaxKeyringBytes = 64 << 10
	// MaxRings is how many rings a chain may have: twice as many as there may be data keys.
	MaxRings = 2 * MaxDataKeys
)

// ringLabel names a ring in errors.
var ringLabel = Label{Role: "keyring"}

func corruptRing(want, got string) error { return ringLabel.corrupt(want, got, nil) }

// Hash is the SHA-256 of a ring, by which the next one names it.
type Hash [sumBytes]byte

// String returns the hash as 64 lower-case hexadecimal digits.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// Ring is a ring of a keyring's chain: its public part, and the bytes of the rest, which only a
// slot opens. It is immutable.
type Ring struct {
	// Algorithm says how the bucket's objects are protected.
	Algorithm Algorithm
	// BucketID is the bucket's id. Opening the ring proves it.
	BucketID ID
	// Number is the number of the ring in the chain, 0 for the first one.
	Number uint64
	// Previous is the hash of the ring before, zero for the first one.
	Previous Hash
	// Hash is that of this ring.
	Hash Hash

	slots  []slot // without their sealed parts
	signer ID
	raw    []byte
}

// Bytes returns the ring as stored in the bucket. The slice must not be changed.
func (r *Ring) Bytes() []byte { return r.raw }

// ParseRing reads the part of a ring that is readable without a key. b is not retained. Errors:
// *base.CorruptError, also for a KDF out of bounds; *base.FormatError; ErrOldFormat.
func ParseRing(b []byte) (*Ring, error) {
	const least = ringHeadBytes + 4 + ringTailBytes
	if len(b) < least || len(b) > MaxKeyringBytes {
		return nil, corruptRing(fmt.Sprintf("%d to %d bytes", least, MaxKeyringBytes), fmt.Sprint(len(b)))
	}
	if sum := sha256.Sum256(b[:len(b)-sumBytes]); !bytes.Equal(sum[:], b[len(b)-sumBytes:]) {
		return nil, corruptRing("", "checksum differs")
	}
	if b[0] > ringVersion {
		return nil, fmt.Errorf("open keyring: %w", &base.FormatError{What: "keyring", Found: uint64(b[0]), Supported: ringVersion})
	}
	if b[0] != 0 && b[0] < ringVersion {
		return nil, fmt.Errorf("open keyring: %w", ErrOldFormat)
	}
	if b[0] != ringVersion || b[1] > byte(AES256GCM) {
		return nil, corruptRing("known numbers", fmt.Sprintf("%d %d", b[0], b[1]))
	}
	r := &Ring{
		Algorithm: Algorithm(b[1]), BucketID: ID(b[ringBucketAt:]), Number: binary.BigEndian.Uint64(b[ringNumberAt:]),
		Previous: Hash(b[ringPreviousAt:]), Hash: sha256.Sum256(b), raw: bytes.Clone(b), signer: ID(b[len(b)-sumBytes-signatureBytes:]),
	}
	if problem := r.parse(int(binary.BigEndian.Uint16(b[2:]))); problem != "" {
		return nil, corruptRing("", problem)
	}
	return r, nil
}

// parse reads the slots, and compares lengths. It returns a description of a problem.
func (r *Ring) parse(slots int) (problem string) {
	plain := r.Algorithm == Plain
	switch {
	case r.Number >= MaxRings || (r.Number == 0) != (r.Previous == Hash{}):
		return fmt.Sprintf("number %d, and the ring before has hash %s", r.Number, r.Previous)
	case plain != (slots == 0) || slots > MaxSlots:
		return fmt.Sprintf("%d slots in a bucket of %s", slots, r.Algorithm)
	case plain && !isZero(r.raw[ringEphemeralAt:ringHeadBytes]):
		return "key of a plaintext bucket"
	case plain && !isZero(r.raw[len(r.raw)-sumBytes-signatureBytes:len(r.raw)-sumBytes]):
		return "signature of a plaintext bucket"
	}
	have := len(r.raw) - ringHeadBytes - slots*slotBytes - 4 - ringTailBytes
	if have < 0 {
		return fmt.Sprintf("%d slots in %d bytes", slots, len(r.raw))
	}
	for i := range slots {
		s, problem := parseSlot(r.raw[ringHeadBytes+i*slotBytes:][:slotFixedBytes])
		if problem != "" {
			return problem
		}
		if slices.ContainsFunc(r.slots, func(o slot) bool { return o.id == s.id }) {
			return fmt.Sprintf("slot %s twice", s.id)
		}
		r.slots = append(r.slots, s)
	}
	if n := binary.BigEndian.Uint32(r.raw[r.sealedAt()-4:]); uint64(n) != uint64(have) {
		return fmt.Sprintf("content of %d bytes where there are %d", n, have)
	}
	return ""
}

// sealedAt is where the sealed content begins.
func (r *Ring) sealedAt() int { return ringHeadBytes + len(r.slots)*slotBytes + 4 }

// signed returns the signed bytes: all up to the signature.
func (r *Ring) signed() []byte { return r.raw[:len(r.raw)-sumBytes-ed25519.SignatureSize] }

// slotOf returns the index of the slot that master opens, -1 if there is none.
func (r *Ring) slotOf(master MasterKey) int {
	return slices.IndexFunc(r.slots, func(s slot) bool { return master.opens(r.BucketID, &s) })
}

// open returns the content of the ring, given the keys of one of its slots; nil opens plaintext.
func (r *Ring) open(keys *slotKeys) (*Keyring, error) {
	k := &Keyring{algorithm: r.Algorithm, bucket: r.BucketID, founded: true, number: r.Number, hash: r.Hash, self: keys}
	var aead cipher.AEAD = plainAEAD{}
	if r.Algorithm != Plain {
		i := slices.IndexFunc(r.slots, func(s slot) bool { return s.id == keys.id })
		ringKey, err := r.slots[i].unwrap(keys, r.raw, r.raw[ringHeadBytes+i*slotBytes+slotFixedBytes:][:keyBytes+tagBytes])
		if err != nil {
			return nil, corruptRing("", fmt.Sprintf("the key that is wrapped for slot %s differs from what was wrapped", keys.id))
		}
		defer clear(ringKey)
		aead = ringAEAD(ringKey, r.BucketID)
	}
	at, end := r.sealedAt(), len(r.raw)-signatureBytes-sumBytes
	content, err := aead.Open(nil, nonce(kindRing, 0), r.raw[at:end], r.raw[:at])
	if err != nil {
		return nil, corruptRing("", "content differs from what was sealed")
	}
	defer clear(content)
	k.slots = slices.Clone(r.slots)
	if problem := k.parseContent(content); problem != "" {
		return nil, corruptRing("", problem)
	}
	return k, nil
}

// signedBy verifies the signature, which must be by one of the slots.
func (r *Ring) signedBy(slots []slot) error {
	if r.Algorithm == Plain {
		return nil
	}
	i := slices.IndexFunc(slots, func(s slot) bool { return s.id == r.signer })
	if i < 0 {
		return corruptRing("", fmt.Sprintf("ring %d is signed by slot %s, which may not", r.Number, r.signer))
	}
	sig := r.raw[len(r.raw)-sumBytes-ed25519.SignatureSize : len(r.raw)-sumBytes]
	if !ed25519.Verify(slots[i].sign, append([]byte(labelRing), r.signed()...), sig) {
		return corruptRing("", fmt.Sprintf("the signature of ring %d differs", r.Number))
	}
	return nil
}

// Found makes the first ring of a bucket's chain. It has one slot, or none in plaintext; then first
// must be the zero NewSlot. Otherwise the error is base.ErrInvalid. Found returns the ring as
// stored in the bucket, and its opened keyring.
func (k *Keyring) Found(first NewSlot, random io.Reader) ([]byte, *Keyring, error) {
	if (k.algorithm == Plain) != first.Master.IsZero() || k.founded {
		return nil, nil, fmt.Errorf("found keyring of %s, master key given: %t: %w", k.algorithm, !first.Master.IsZero(), base.ErrInvalid)
	}
	next := *k
	next.founded = true
	if k.algorithm != Plain {
		s, err := first.make(k.bucket, random)
		if err != nil {
			return nil, nil, err
		}
		next.self, next.slots = first.Master.keysOf(k.bucket, s.id), []slot{s}
	}
	raw, err := next.write(next.self, random)
	if err != nil {
		return nil, nil, err
	}
	return raw, &next, nil
}

// Change describes the difference of the next ring. The zero value changes only the key of the
// ring.
type Change struct {
	// NewDataKey draws another data key, which seals everything written from then on. Removing a
	// slot implies it.
	NewDataKey bool
	// AddSlots are new slots.
	AddSlots []NewSlot
	// RemoveSlots are the ids of slots that no longer open the keyring. The slot with which it was
	// opened cannot be removed.
	RemoveSlots []ID
}

// Next returns the ring after k, as it is stored in the bucket unless that number is taken, and its
// opened keyring. The new key is wrapped for the remaining slots, so that nobody else can open it.
// The slot with which k was opened signs the ring.
//
// Errors: base.ErrInvalid for unknown slots, for labels, for the own slot, for a key that has a
// slot, in plaintext for slots and data keys; base.ErrTooLarge beyond the bounds.
func (k *Keyring) Next(c Change, random io.Reader) ([]byte, *Keyring, error) {
	raw, next, err := k.next(c, random)
	if err != nil {
		return nil, nil, fmt.Errorf("change keyring: %w", err)
	}
	return raw, next, nil
}

func (k *Keyring) next(c Change, random io.Reader) ([]byte, *Keyring, error) {
	next := *k
	next.number++
	next.slots = slices.Clone(k.slots)
	plain := k.algorithm == Plain
	if !k.founded || plain && (c.NewDataKey || len(c.AddSlots)+len(c.RemoveSlots) > 0) {
		return nil, nil, fmt.Errorf("a keyring of %s has no slots and no data keys: %w", k.algorithm, base.ErrInvalid)
	}
	for _, id := range c.RemoveSlots {
		i := slices.IndexFunc(next.slots, func(s slot) bool { return s.id == id })
		if i < 0 {
			return nil, nil, fmt.Errorf("there is no slot %s: %w", id, base.ErrInvalid)
		}
		if id == k.self.id {
			return nil, nil, fmt.Errorf("slot %s is the one that is used here, which only a device with another slot can remove: %w", id, base.ErrInvalid)
		}
		next.slots = slices.Delete(next.slots, i, i+1)
	}
	for _, n := range c.AddSlots {
		s, err := n.make(k.bucket, random)
		if err != nil {
			return nil, nil, err
		}
		if i := slices.IndexFunc(next.slots, func(s slot) bool { return n.Master.opens(k.bucket, &s) }); i >= 0 {
			return nil, nil, fmt.Errorf("slot %s has this key already: %w", next.slots[i].id, base.ErrInvalid)
		}
		next.slots = append(next.slots, s)
	}
	if (c.NewDataKey || len(c.RemoveSlots) > 0) && !plain {
		next.data = append(slices.Clip(k.data), drawKey(random))
	}
	if len(next.slots) > MaxSlots || len(next.data) > MaxDataKeys || next.number >= MaxRings {
		return nil, nil, fmt.Errorf("%d slots, %d data keys, limits %d and %d: %w",
			len(next.slots), len(next.data), MaxSlots, MaxDataKeys, base.ErrTooLarge)
	}
	raw, err := next.write(k.self, random)
	if err != nil {
		return nil, nil, err
	}
	return raw, &next, nil
}

// write returns k as a ring that signer has signed, and sets its hash. Before, k.hash is that of
// the preceding ring.
func (k *Keyring) write(signer *slotKeys, random io.Reader) ([]byte, error) {
	b := append([]byte{ringVersion, byte(k.algorithm)}, byte(len(k.slots)>>8), byte(len(k.slots)))
	b = append(b, k.bucket[:]...)
	b = binary.BigEndian.AppendUint64(b, k.number)
	b = append(b, k.hash[:]...)
	var aead cipher.AEAD = plainAEAD{}
	if k.algorithm == Plain {
		b = append(b, make([]byte, keyBytes)...)
	} else {
		drawn := k.drawKeys(b, random)
		defer clear(drawn)
		ephemeral := must(ecdh.X25519().NewPrivateKey(drawn[keyBytes:]))
		b = append(b, ephemeral.PublicKey().Bytes()...)
		for i := range k.slots {
			wrapped, err := k.slots[i].wrapFor(ephemeral, b[:ringHeadBytes], drawn[:keyBytes])
			if err != nil {
				return nil, err
			}
			b = append(append(b, k.slots[i].fixed[:]...), wrapped...)
		}
		aead = ringAEAD(drawn[:keyBytes], k.bucket)
	}
	content := k.content()
	defer clear(content)
	b = binary.BigEndian.AppendUint32(b, uint32(len(content)))
	b = aead.Seal(b, nonce(kindRing, 0), content, bytes.Clone(b))
	if k.algorithm == Plain {
		b = append(b, make([]byte, signatureBytes)...)
	} else {
		b = append(b, signer.id[:]...)
		b = append(b, ed25519.Sign(signer.signer(), append([]byte(labelRing), b...))...)
	}
	sum := sha256.Sum256(b)
	b = append(b, sum[:]...)
	k.hash = sha256.Sum256(b)
	return b, nil
}

// drawKeys draws the key of a ring and the key that wraps it. The head and the sealed content go
// into them, so that a source of randomness that repeats itself gives no key twice.
func (k *Keyring) drawKeys(head []byte, random io.Reader) []byte {
	drawn, content := draw(random, 2*keyBytes), k.content()
	all := append(drawn, content...)
	defer func() { clear(drawn); clear(content); clear(all) }()
	return derive(all, head, []byte(labelDraw), 2*keyBytes)
}

// content returns the plaintext of a ring's sealed content.
func (k *Keyring) content() []byte {
	b := append(bytes.Clone(k.names.Expose()), k.chunking.Expose()...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(k.data)))
	for _, d := range k.data {
		b = append(b, d.Expose()...)
	}
	for i := range k.slots {
		b = append(append(b, k.slots[i].sign...), k.slots[i].box.Bytes()...)
		b = appendText(b, k.slots[i].label)
	}
	return b
}

// parseContent reads what content wrote. It returns a description of a problem.
func (k *Keyring) parseContent(b []byte) (problem string) {
	take := func(n int) []byte {
		if n > len(b) {
			problem, b = "content ends early", nil
			return make([]byte, n)
		}
		head := b[:n]
		b = b[n:]
		return head
	}
	text := func() string {
		s := string(take(int(binary.BigEndian.Uint16(take(2)))))
		if err := CheckLabel(s); err != nil && problem == "" {
			problem = err.Error()
		}
		return s
	}
	keys := bytes.Clone(take(2 * keyBytes))
	n := binary.BigEndian.Uint32(take(4))
	if (n == 0) != (k.algorithm == Plain) || n > MaxDataKeys {
		return fmt.Sprintf("%d data keys in a bucket of %s", n, k.algorithm)
	}
	keys = append(keys, take(int(n)*keyBytes)...)
	k.setKeys(keys)
	clear(keys)
	for i := range k.slots {
		s := &k.slots[i]
		s.sign = bytes.Clone(take(keyBytes))
		s.box = must(ecdh.X25519().NewPublicKey(take(keyBytes)))
		s.label = text()
	}
	if problem == "" && len(b) > 0 {
		problem = fmt.Sprintf("%d bytes behind the content", len(b))
	}
	return problem
}

// ringAEAD returns the cipher for the content of a ring.
func ringAEAD(ringKey []byte, bucket ID) cipher.AEAD {
	return deriveAEAD(ringKey, bucket[:], []byte(labelWrap))
}
