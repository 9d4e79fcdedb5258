package format_test

import (
	"strings"
	"testing"

	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/seal"
)

// TestRingNames parses what RingName writes, and nothing else.
func TestRingNames(t *testing.T) {
	id := format.ID{1}
	for _, n := range []uint64{0, 1, seal.MaxRings - 1} {
		if got, ok := format.ParseRingName(id, format.RingName(id, n)); !ok || got != n {
			t.Errorf("ring %d is %d, %t", n, got, ok)
		}
	}
	for _, name := range []string{"", "keys/", "keys/1", format.RingName(format.ID{2}, 1), format.RingName(id, 1) + "0", format.RingName(id, seal.MaxRings), "keys/00000001"} {
		if n, ok := format.ParseRingName(id, name); ok {
			t.Errorf("%q is ring %d", name, n)
		}
	}
}

// TestAnnouncementNamesTellNothing: names are made by HMAC, of ledger and page.
func TestAnnouncementNamesTellNothing(t *testing.T) {
	k, other := newSealer(t, seal.AES256GCM, 1).Keyring(), newSealer(t, seal.AES256GCM, 2).Keyring()
	seen := map[string]bool{}
	for _, name := range []string{
		format.AnnouncementName(k, "a", [16]byte{}), format.AnnouncementName(k, "a", [16]byte{1}), format.AnnouncementName(k, "b", [16]byte{}), format.AnnouncementName(other, "a", [16]byte{}),
	} {
		p, ok := strings.CutPrefix(name, format.PagesPrefix)
		if !ok || len(p) != seal.NameDigits || seen[p] {
			t.Errorf("name %q", name)
		}
		seen[p] = true
	}
}
