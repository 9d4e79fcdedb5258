package seal

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/secret"
)

// ErrBadSignature reports a message that the device of the accompanying key did not sign.
var ErrBadSignature = errors.New("the signature differs")

// SignatureBytes is the length of the result of Sealer.Sign: the device's public key, and the
// signature.
const SignatureBytes = ed25519.PublicKeySize + ed25519.SignatureSize

// DeviceKey is the key with which a device signs, by Ed25519. The zero value is no key. It may be
// copied; it does not print.
type DeviceKey struct{ seed secret.Bytes }

// NewDeviceKey draws a key from random; nil means the system's source.
func NewDeviceKey(random io.Reader) DeviceKey { return DeviceKey{drawKey(random)} }

// ParseDeviceKey returns the key of which Bytes gave b: 32 bytes, which are copied. Errors:
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

// ID returns the id of the device, which follows from the key. The key must not be zero.
func (k DeviceKey) ID() ID { return deviceID(k.private().Public().(ed25519.PublicKey)) }

func (k DeviceKey) private() ed25519.PrivateKey { return ed25519.NewKeyFromSeed(k.seed.Expose()) }

// deviceID returns the id of the device with a public key.
func deviceID(public ed25519.PublicKey) ID {
	sum := sha256.Sum256(append([]byte(labelDevice), public...))
	return ID(sum[:IDBytes])
}

// SignAs sets the device key for Sign.
func (s *Sealer) SignAs(key DeviceKey) {
	private := key.private()
	s.signer.Store(&private)
}

// Sign returns the public key of the device, and its signature over the bucket's id and message.
// Without SignAs it draws a key of its own.
func (s *Sealer) Sign(message []byte) [SignatureBytes]byte {
	if s.signer.Load() == nil {
		private := ed25519.NewKeyFromSeed(s.draw(ed25519.SeedSize))
		s.signer.CompareAndSwap(nil, &private)
	}
	private := *s.signer.Load()
	public := private.Public().(ed25519.PublicKey)
	return [SignatureBytes]byte(append(bytes.Clone(public), ed25519.Sign(private, s.Keyring().signedBytes(message))...))
}

// Verify returns the device that has signed a message of the bucket. Errors: ErrBadSignature.
func (k *Keyring) Verify(message []byte, signature [SignatureBytes]byte) (ID, error) {
	public := ed25519.PublicKey(signature[:ed25519.PublicKeySize])
	id := deviceID(public)
	if !ed25519.Verify(public, k.signedBytes(message), signature[ed25519.PublicKeySize:]) {
		return ID{}, fmt.Errorf("device %s: %w", id, ErrBadSignature)
	}
	return id, nil
}

// signedBytes returns the bytes that a device signs.
func (k *Keyring) signedBytes(message []byte) []byte {
	b := append([]byte(labelDevice), k.bucket[:]...)
	return append(b, message...)
}
