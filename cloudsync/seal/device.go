package seal

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/secret"
)

// SignatureBytes is the length of a device's signature.
const SignatureBytes = ed25519.SignatureSize

// Errors of signatures.
var (
	// ErrUnknownDevice reports something signed by a device that the keyring does not have: it is
	// forged, or the keyring is not the newest.
	ErrUnknownDevice = errors.New("device is not in the keyring")
	// ErrBadSignature reports something that the device did not sign of which it says so, or that
	// was sealed after the device was shut out.
	ErrBadSignature = errors.New("signature does not count")
)

// DeviceKey is the key with which a device signs. The zero value is none. It may be copied; it does
// not print.
type DeviceKey struct{ seed secret.Bytes }

// NewDeviceKey draws a key from random; nil means the system's source.
func NewDeviceKey(random io.Reader) (DeviceKey, error) {
	b, err := draw(random, ed25519.SeedSize)
	if err != nil {
		return DeviceKey{}, fmt.Errorf("draw key of device: %w", err)
	}
	defer clear(b)
	return DeviceKey{secret.New(b)}, nil
}

// ParseDeviceKey returns the key that Bytes gave: 32 bytes, which are copied. Errors:
// base.ErrInvalid.
func ParseDeviceKey(b []byte) (DeviceKey, error) {
	if len(b) != ed25519.SeedSize {
		return DeviceKey{}, fmt.Errorf("key of device has %d bytes, want %d: %w", len(b), ed25519.SeedSize, base.ErrInvalid)
	}
	return DeviceKey{secret.New(b)}, nil
}

// Bytes returns the key itself.
func (k DeviceKey) Bytes() secret.Bytes { return k.seed }

// IsZero reports whether there is no key.
func (k DeviceKey) IsZero() bool { return k.seed.IsZero() }

// Public returns what verifies its signatures. The key must not be zero.
func (k DeviceKey) Public() [ed25519.PublicKeySize]byte {
	return [ed25519.PublicKeySize]byte(ed25519.NewKeyFromSeed(k.seed.Expose()).Public().(ed25519.PublicKey))
}

// signer is the device for which a Sealer signs.
type signer struct {
	device ID
	key    ed25519.PrivateKey
}

// SignAs has Sign sign for a device, with its key.
func (s *Sealer) SignAs(device ID, key DeviceKey) {
	s.signer.Store(&signer{device, ed25519.NewKeyFromSeed(key.seed.Expose())})
}

// SignsAs returns the device that SignAs has named, the zero ID for none.
func (s *Sealer) SignsAs() ID {
	if by := s.signer.Load(); by != nil {
		return by.device
	}
	return ID{}
}

// Sign returns the signature of that device over the bucket's id and message. Errors:
// base.ErrInvalid where SignAs was not called.
func (s *Sealer) Sign(message []byte) ([SignatureBytes]byte, error) {
	by := s.signer.Load()
	if by == nil {
		return [SignatureBytes]byte{}, fmt.Errorf("sign: there is no key of a device: %w", base.ErrInvalid)
	}
	return [SignatureBytes]byte(ed25519.Sign(by.key, s.Keyring().signedBytes(message))), nil
}

// Verify verifies the signature of a device over something that is sealed with data key keyIndex.
// Errors: ErrUnknownDevice, ErrBadSignature.
func (k *Keyring) Verify(device ID, keyIndex uint32, message []byte, signature [SignatureBytes]byte) error {
	d, ok := k.Device(device)
	switch {
	case !ok:
		return fmt.Errorf("device %s: %w", device, ErrUnknownDevice)
	case d.Until > 0 && keyIndex >= d.Until:
		return fmt.Errorf("device %s was shut out before: %w", device, ErrBadSignature)
	case !ed25519.Verify(d.Key[:], k.signedBytes(message), signature[:]):
		return fmt.Errorf("device %s has not signed it: %w", device, ErrBadSignature)
	}
	return nil
}

// signedBytes is what a device signs.
func (k *Keyring) signedBytes(message []byte) []byte {
	b := append([]byte(labelDevice), k.bucket[:]...)
	return append(b, message...)
}
