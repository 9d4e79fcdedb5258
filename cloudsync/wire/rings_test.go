package wire_test

import (
	"strings"
	"testing"

	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/cloudsync/wire"
)

// TestRingNames parses what RingName writes, and nothing else.
func TestRingNames(t *testing.T) {
	id := seal.ID{1}
	for _, n := range []uint64{0, 1, seal.MaxRings - 1} {
		if got, ok := wire.ParseRingName(id, wire.RingName(id, n)); !ok || got != n {
			t.Errorf("ring %d is %d, %t", n, got, ok)
		}
	}
	for _, name := range []string{"", "keys/", "keys/1", wire.RingName(seal.ID{2}, 1), wire.RingName(id, 1) + "0", wire.RingName(id, seal.MaxRings), "keys/00000001"} {
		if n, ok := wire.ParseRingName(id, name); ok {
			t.Errorf("%q is ring %d", name, n)
		}
	}
}

// TestAnnouncementNamesTellNothing: names are made by HMAC, of ledger and page.
func TestAnnouncementNamesTellNothing(t *testing.T) {
	k, other := newSealer(t, seal.AES256GCM, 1).Keyring(), newSealer(t, seal.AES256GCM, 2).Keyring()
	seen := map[string]bool{}
	for _, name := range []string{
		wire.AnnouncementName(k, "a", [16]byte{}), wire.AnnouncementName(k, "a", [16]byte{1}), wire.AnnouncementName(k, "b", [16]byte{}), wire.AnnouncementName(other, "a", [16]byte{}),
	} {
		p, ok := strings.CutPrefix(name, wire.PagesPrefix)
		if !ok || len(p) != seal.NameDigits || seen[p] {
			t.Errorf("name %q", name)
		}
		seen[p] = true
	}
}
