package seal_test

import (
	"crypto/sha256"
	"errors"
	"slices"
	"testing"

	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/internal/base"
)

// branch is a keyring with the rings that lead to it.
type branch struct {
	rings [][]byte
	ring  *seal.Keyring
}

// with returns a branch with one ring more, put by who has its keyring open.
func (b branch) with(t *testing.T, c seal.Change, seed uint64) branch {
	t.Helper()
	raw, ring := next(t, b.ring, c, seed)
	return branch{append(slices.Clip(b.rings), raw), ring}
}

func (b branch) chain(t *testing.T) *seal.Chain {
	t.Helper()
	c, err := seal.ParseChain(b.rings)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// fork has the keyring of b take over what other has behind the first n rings.
func (b branch) fork(t *testing.T, other branch, n int) (*seal.Chain, *seal.Keyring, seal.Change, error) {
	t.Helper()
	return b.chain(t).Fork(b.ring, other.rings[n:])
}

func device(id byte) []seal.Device {
	return []seal.Device{{ID: seal.ID{id}, Name: "device", Key: [32]byte{id}}}
}

// TestFork: two devices go on from one ring, since the bucket lost what the first had put. It takes
// the other's rings if its own only added something, and nobody comes back who was shut out.
func TestFork(t *testing.T) {
	mine, his, third := newMaster(t, 200), newMaster(t, 201), newMaster(t, 202)
	first := found(t, newSealer(t, seal.AES256GCM, 203).Keyring(), mine, 204)
	shared := branch{[][]byte{first}, mustOpen(t, mine, first)}.with(t, seal.Change{AddSlots: []seal.NewSlot{{Master: his, Label: "his"}}, AddDevices: device(1)}, 205)
	of := func(m seal.MasterKey, b branch) branch { return branch{b.rings, mustOpen(t, m, b.rings...)} }
	hisSlot, mySlot := shared.ring.Slots()[1].ID, shared.ring.Slots()[0].ID
	other := of(his, shared).with(t, seal.Change{AddDevices: device(2)}, 206).with(t, seal.Change{AddDevices: device(3), NewDataKey: true}, 207)

	t.Run("additions", func(t *testing.T) {
		own := shared.with(t, seal.Change{AddSlots: []seal.NewSlot{{Master: third, Label: "third"}}, AddDevices: device(4)}, 208)
		chain, ring, again, err := own.fork(t, other, 2)
		if err != nil {
			t.Fatal(err)
		}
		if chain.Newest().Hash != other.ring.Hash() || ring.Hash() != other.ring.Hash() || len(ring.Devices()) != 3 || len(again.AddSlots) != 1 {
			t.Errorf("ring %s with %d devices, %d slots to add", ring.Hash(), len(ring.Devices()), len(again.AddSlots))
		}
		sameKeys(t, other.ring, ring)
		after := branch{chain.Rings(), ring}.with(t, again, 209)
		if k := mustOpen(t, third, after.rings...); k.Slots()[2].Label != "third" || !k.Slots()[2].Own {
			t.Errorf("slots are %+v", k.Slots())
		}
		mustOpen(t, his, after.rings...)
		if _, _, again, err := own.fork(t, own, 2); err != nil || len(again.AddSlots) != 0 {
			t.Errorf("the same rings: %+v, %v", again, err)
		}
	})
	shut := of(his, shared).with(t, seal.Change{RemoveSlots: []seal.ID{mySlot}}, 210)
	stolen := of(his, shared).with(t, seal.Change{AddDevices: []seal.Device{{ID: seal.ID{4}, Key: [32]byte{9}}}}, 211)
	none := shared.with(t, seal.Change{AddDevices: device(4)}, 212)
	for _, c := range []struct {
		what  string
		own   branch
		other branch
		from  int
		want  error
	}{
		{"the signer was removed here", shared.with(t, seal.Change{RemoveSlots: []seal.ID{hisSlot}}, 213), other, 2, seal.ErrForked},
		{"a data key was drawn here", shared.with(t, seal.Change{NewDataKey: true}, 214), other, 2, seal.ErrForked},
		{"a device was shut out here", shared.with(t, seal.Change{RemoveDevices: []seal.ID{{1}}}, 215), other, 2, seal.ErrForked},
		{"removed in the middle", shared.with(t, seal.Change{RemoveSlots: []seal.ID{hisSlot}}, 216).with(t, seal.Change{AddDevices: device(5)}, 217), other, 2, seal.ErrForked},
		{"shut out there", none, shut, 2, seal.ErrShutOut},
		{"a device with another key", none, stolen, 2, seal.ErrForked},
		{"a ring is left out", none, other, 3, seal.ErrForked},
		{"no rings", none, other, len(other.rings), seal.ErrForked},
		{"another bucket", none, branch{rings: [][]byte{found(t, newSealer(t, seal.AES256GCM, 218).Keyring(), mine, 219)}}, 0, seal.ErrForked},
	} {
		if _, _, _, err := c.own.fork(t, c.other, c.from); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.what, err)
		}
	}
	forged := of(his, shared).with(t, seal.Change{AddDevices: device(2)}, 206)
	last := slices.Clone(forged.rings[2])
	last[len(last)-40] ^= 1 // in the signature
	sum := sha256.Sum256(last[:len(last)-sha256.Size])
	forged.rings = append(slices.Clip(shared.rings), append(last[:len(last)-sha256.Size], sum[:]...))
	if _, _, _, err := none.fork(t, forged, 2); !errors.Is(err, base.ErrCorrupt) {
		t.Errorf("a signature that was changed: %v", err)
	}

	plain := found(t, newSealer(t, seal.Plain, 220).Keyring(), seal.MasterKey{}, 221)
	open := branch{[][]byte{plain}, mustOpen(t, seal.MasterKey{}, plain)}
	if _, ring, _, err := open.with(t, seal.Change{AddDevices: device(1)}, 222).fork(t, open.with(t, seal.Change{AddDevices: device(2)}, 223), 1); err != nil || len(ring.Devices()) != 1 {
		t.Errorf("plaintext: %v", err)
	}
}

// TestDeviceSignatures: what a device has signed verifies for it, in its bucket, until it is shut
// out, and nothing else does.
func TestDeviceSignatures(t *testing.T) {
	key, err := seal.NewDeviceKey(&randomSource{seed: 230})
	if err != nil {
		t.Fatal(err)
	}
	again, err := seal.ParseDeviceKey(key.Bytes().Expose())
	if err != nil || again.Public() != key.Public() {
		t.Fatalf("key read again: %v", err)
	}
	master := newMaster(t, 231)
	first := found(t, newSealer(t, seal.AES256GCM, 232).Keyring(), master, 233)
	b := branch{[][]byte{first}, mustOpen(t, master, first)}
	id, message := seal.ID{7}, []byte("entry 1")
	s := seal.NewSealer(b.ring, nil)
	if _, err := s.Sign(message); !errors.Is(err, base.ErrInvalid) || s.SignsAs() != (seal.ID{}) {
		t.Errorf("signed without a key: %v", err)
	}
	s.SignAs(id, again)
	signature, err := s.Sign(message)
	if err != nil || s.SignsAs() != id {
		t.Fatalf("signed by %s, %v", s.SignsAs(), err)
	}
	verify := func(k *seal.Keyring, index uint32, message string, signature [seal.SignatureBytes]byte, want error) {
		t.Helper()
		if err := k.Verify(id, index, []byte(message), signature); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", message, err, want)
		}
	}
	verify(b.ring, 0, "entry 1", signature, seal.ErrUnknownDevice)
	b = b.with(t, seal.Change{AddDevices: []seal.Device{{ID: id, Key: key.Public()}}}, 234)
	verify(b.ring, 0, "entry 1", signature, nil)
	verify(b.ring, 0, "entry 2", signature, seal.ErrBadSignature)
	changed := signature
	changed[9] ^= 1
	verify(b.ring, 0, "entry 1", changed, seal.ErrBadSignature)
	b = b.with(t, seal.Change{RemoveDevices: []seal.ID{id}}, 235)
	verify(b.ring, 0, "entry 1", signature, nil)
	verify(b.ring, 1, "entry 1", signature, seal.ErrBadSignature)
	elsewhere := found(t, newSealer(t, seal.AES256GCM, 236).Keyring(), master, 237)
	o := branch{[][]byte{elsewhere}, mustOpen(t, master, elsewhere)}.with(t, seal.Change{AddDevices: []seal.Device{{ID: id, Key: key.Public()}}}, 238)
	verify(o.ring, 0, "entry 1", signature, seal.ErrBadSignature)
	if _, err := seal.ParseDeviceKey(make([]byte, 31)); !errors.Is(err, base.ErrInvalid) {
		t.Errorf("a short key: %v", err)
	}
}
