package seal_test

import (
	"errors"
	"testing"

	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/internal/base"
)

// TestDeviceSignatures: what a device has signed verifies as its own, in its bucket, and nothing
// else does.
func TestDeviceSignatures(t *testing.T) {
	key := seal.NewDeviceKey(&randomSource{seed: 230})
	again, err := seal.ParseDeviceKey(key.Bytes().Expose())
	if err != nil || again.ID() != key.ID() {
		t.Fatalf("key read again: %v", err)
	}
	s, elsewhere := newSealer(t, seal.AES256GCM, 231), newSealer(t, seal.AES256GCM, 232)
	s.SignAs(again)
	signature := s.Sign([]byte("entry 1"))
	verify := func(what string, k *seal.Keyring, message string, signature [seal.SignatureBytes]byte, want error) {
		t.Helper()
		id, err := k.Verify([]byte(message), signature)
		if !errors.Is(err, want) || want == nil && id != key.ID() {
			t.Errorf("%s: device %s, %v", what, id, err)
		}
	}
	verify("signed", s.Keyring(), "entry 1", signature, nil)
	verify("another message", s.Keyring(), "entry 2", signature, seal.ErrBadSignature)
	verify("another bucket", elsewhere.Keyring(), "entry 1", signature, seal.ErrBadSignature)
	for i := range signature { // each byte counts, of the key too
		changed := signature
		changed[i] ^= 1
		verify("changed", s.Keyring(), "entry 1", changed, seal.ErrBadSignature)
	}
	if _, err := seal.ParseDeviceKey(make([]byte, 31)); !errors.Is(err, base.ErrInvalid) {
		t.Errorf("a short key: %v", err)
	}

	// Without a key of a device each Sealer has one of its own.
	var ids []seal.ID
	for range 2 {
		s := seal.NewSealer(s.Keyring(), nil)
		for range 2 {
			signature := s.Sign([]byte("entry 1"))
			id, err := s.Keyring().Verify([]byte("entry 1"), signature)
			if err != nil {
				t.Error(err)
			}
			ids = append(ids, id)
		}
	}
	if ids[0] != ids[1] || ids[2] != ids[3] || ids[0] == ids[2] {
		t.Errorf("devices %s", ids)
	}
}
