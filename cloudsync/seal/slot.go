package seal

import (
	"bytes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/hmac"
	"encoding/binary"
	"fmt"
	"io"
	"unicode"
	"unicode/utf8"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/secret"
)

// These are bounds of a keyring's lists.
const (
	// MaxSlots is how many slots a keyring may have.
	MaxSlots = 64
	// MaxLabelBytes is the greatest length of the label of a slot.
	MaxLabelBytes = 128
)

// SlotKind is the kind of a slot's secret. The numbers are part of the format and append-only.
type SlotKind uint8

// The kinds of slots.
const (
	SlotKeyFile    SlotKind = 1
	SlotPassphrase SlotKind = 2
	SlotWords      SlotKind = 3
)

// String returns "key file", "passphrase" or "recovery words".
func (k SlotKind) String() string {
	switch k {
	case SlotKeyFile:
		return "key file"
	case SlotPassphrase:
		return "passphrase"
	case SlotWords:
		return "recovery words"
	}
	return fmt.Sprintf("slot kind %d", uint8(k))
}

// SlotInfo describes a slot.
type SlotInfo struct {
	// ID is random and public.
	ID ID
	// Kind is the kind of its secret.
	Kind SlotKind
	// Label is the name given by its maker; see CheckLabel.
	Label string
	// Own reports that this slot opened the keyring.
	Own bool
}

// CheckLabel returns an error that matches base.ErrInvalid unless s is a valid label of a slot: at
// most MaxLabelBytes of UTF-8, all of it printable.
func CheckLabel(s string) error {
	if len(s) > MaxLabelBytes || !utf8.ValidString(s) {
		return fmt.Errorf("label of %d bytes, want at most %d of UTF-8: %w", len(s), MaxLabelBytes, base.ErrInvalid)
	}
	for _, c := range s {
		if !unicode.IsPrint(c) {
			return fmt.Errorf("label %q has a character that cannot be printed: %w", s, base.ErrInvalid)
		}
	}
	return nil
}

// slot is a slot of a keyring. Its fixed part never changes.
type slot struct {
	fixed [slotFixedBytes]byte // as stored in a ring; see ring.go
	id    ID
	kind  SlotKind
	label string
	sign  ed25519.PublicKey
	box   *ecdh.PublicKey
}

func (s *slot) info() SlotInfo { return SlotInfo{ID: s.id, Kind: s.kind, Label: s.label} }

// The layout of the fixed part of a slot; the table is in docs/format/sealed.md.
const (
	slotKDFAt      = 4 + IDBytes
	slotCheckAt    = slotKDFAt + kdfBytes
	slotFixedBytes = slotCheckAt + checkBytes
	checkBytes     = 16
)

// slotKeys are the keys derived from the secret of a slot. They do not print.
type slotKeys struct {
	id   ID
	sign secret.Bytes // seed of the key that signs rings
	box  secret.Bytes // X25519 private key, for which keys of rings are wrapped
}

// keysOf derives the keys of the slot id of a bucket.
func (m MasterKey) keysOf(bucket, id ID) *slotKeys {
	key := func(label string) secret.Bytes {
		b := m.derive(bucket, id, label, keyBytes)
		defer clear(b)
		return secret.New(b)
	}
	return &slotKeys{id: id, sign: key(labelSign), box: key(labelBox)}
}

func (m MasterKey) derive(bucket, id ID, label string, n int) []byte {
	return derive(m.key.Expose(), append(bytes.Clone(bucket[:]), id[:]...), []byte(label), n)
}

// check returns the bytes that distinguish a wrong master key from a damaged keyring, and reveal
// nothing else about the key.
func (m MasterKey) check(bucket, id ID) []byte { return m.derive(bucket, id, labelCheck, checkBytes) }

// opens reports whether m is the secret of the slot.
func (m MasterKey) opens(bucket ID, s *slot) bool {
	return hmac.Equal(m.check(bucket, s.id), s.fixed[slotCheckAt:])
}

func (k *slotKeys) signer() ed25519.PrivateKey { return ed25519.NewKeyFromSeed(k.sign.Expose()) }

func (k *slotKeys) unboxer() *ecdh.PrivateKey {
	return must(ecdh.X25519().NewPrivateKey(k.box.Expose()))
}

// NewSlot is a slot to be added to a keyring.
type NewSlot struct {
	// Master is its secret: a key from NewMasterKey, NewRecoveryWords or KDF.Derive.
	Master MasterKey
	// Label is its name; see CheckLabel.
	Label string
}

// make draws an id for the slot and derives its public keys.
func (n NewSlot) make(bucket ID, random io.Reader) (slot, error) {
	if n.Master.IsZero() {
		return slot{}, fmt.Errorf("add slot: it has no key: %w", base.ErrInvalid)
	}
	if err := CheckLabel(n.Label); err != nil {
		return slot{}, fmt.Errorf("add slot: %w", err)
	}
	s := slot{id: ID(draw(random, IDBytes)), kind: n.Master.Kind(), label: n.Label}
	keys := n.Master.keysOf(bucket, s.id)
	s.sign, s.box = keys.signer().Public().(ed25519.PublicKey), keys.unboxer().PublicKey()
	fixed := append([]byte{byte(s.kind), 0, 0, 0}, s.id[:]...)
	fixed = n.Master.kdf.appendBytes(fixed)
	s.fixed = [slotFixedBytes]byte(append(fixed, n.Master.check(bucket, s.id)...))
	return s, nil
}

// parseSlot reads the fixed part of a slot. It returns a description of a problem.
func parseSlot(b []byte) (s slot, problem string) {
	s = slot{fixed: [slotFixedBytes]byte(b), kind: SlotKind(b[0]), id: ID(b[4:slotKDFAt])}
	kdf := parseKDF(b[slotKDFAt:])
	switch {
	case s.kind < SlotKeyFile || s.kind > SlotWords || b[1] != 0 || b[2] != 0 || b[3] != 0:
		return s, fmt.Sprintf("slot of kind %d %d %d %d", b[0], b[1], b[2], b[3])
	case s.kind == SlotPassphrase:
		return s, kdf.check()
	case kdf != (KDF{}):
		return s, "parameters of a KDF that is not used"
	}
	return s, ""
}

// kdf returns the parameters for deriving the secret of a slot from a passphrase.
func (s *slot) kdf() KDF { return parseKDF(s.fixed[slotKDFAt:]) }

// wrapFor returns the key of a ring, wrapped for the slot: only the slot's secret can unwrap it.
// head is that of the ring.
func (s *slot) wrapFor(ephemeral *ecdh.PrivateKey, head, ringKey []byte) ([]byte, error) {
	shared, err := ephemeral.ECDH(s.box)
	if err != nil {
		return nil, fmt.Errorf("wrap key for slot %s: %w", s.id, err)
	}
	return s.wrapping(shared, head, s.box).Seal(nil, nonce(kindSlot, 0), ringKey, s.fixed[:]), nil
}

// unwrap is the opposite of wrapFor, with the keys of the slot.
func (s *slot) unwrap(keys *slotKeys, head, wrapped []byte) ([]byte, error) {
	private := keys.unboxer()
	shared, err := private.ECDH(must(ecdh.X25519().NewPublicKey(head[ringEphemeralAt:ringHeadBytes])))
	if err != nil {
		return nil, err
	}
	return s.wrapping(shared, head, private.PublicKey()).Open(nil, nonce(kindSlot, 0), wrapped, s.fixed[:])
}

// wrapping derives the wrapping key from a shared secret, which it clears, and its context: the
// head of the ring and the public key of the slot.
func (s *slot) wrapping(shared, head []byte, box *ecdh.PublicKey) cipher.AEAD {
	defer clear(shared)
	info := append([]byte(labelSlot), head[ringNumberAt:ringNumberAt+8]...)
	info = append(info, head[ringEphemeralAt:ringHeadBytes]...)
	info = append(info, box.Bytes()...)
	return deriveAEAD(shared, append(bytes.Clone(head[ringBucketAt:ringBucketAt+IDBytes]), s.id[:]...), info)
}

// appendText appends a label after its length in two bytes.
func appendText(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(s))), s...)
}
