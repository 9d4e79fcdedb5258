package wire_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/internal/base"
)

func TestAnnouncement(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, s *seal.Sealer) {
		long := strings.Repeat("é", 512)
		for _, a := range []wire.Announcement{{Ledger: "l"}, {Ledger: long[:150], Name: long, Page: pageID}, {Ledger: "\xff\x00", Name: "name"}} {
			name := wire.AnnouncementName(s.Keyring(), a.Ledger, a.Page)
			stored, err := wire.SealAnnouncement(s, a)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := wire.OpenAnnouncement(s, name, stored); err != nil || got != a {
				t.Errorf("%v is %v, %v", a, got, err)
			}
			_, err = wire.OpenAnnouncement(s, name+"0", stored)
			mustRefuse(t, "other name", name+"0", err)
			// A member may seal the announcement of a page under the name of another one.
			other := wire.AnnouncementName(s.Keyring(), a.Ledger+"2", a.Page)
			plain, _, err := s.Open(wire.AnnouncementLabel(name), stored, 4096)
			if err != nil {
				t.Fatal(err)
			}
			_, err = wire.OpenAnnouncement(s, other, sealAs(t, s, wire.AnnouncementLabel(other), plain))
			mustRefuse(t, "other page", other, err)
			_, err = wire.OpenAnnouncement(s, strings.Repeat("x", 5000), stored)
			mustRefuse(t, "long name", strings.Repeat("x", 5000), err)
		}
		for _, a := range []wire.Announcement{{}, {Ledger: long[:151]}, {Ledger: "l", Name: long + "x"}} {
			if _, err := wire.SealAnnouncement(s, a); !errors.Is(err, base.ErrInvalid) && !errors.Is(err, base.ErrTooLarge) {
				t.Errorf("%d bytes of ledger, %d of page: %v", len(a.Ledger), len(a.Name), err)
			}
		}
	})
}

// sealAs seals what no encoder would write.
func sealAs(t testing.TB, s *seal.Sealer, l seal.Label, plain []byte) []byte {
	t.Helper()
	stored, _, err := s.Seal(l, plain, seal.Form{})
	if err != nil {
		t.Fatal(err)
	}
	return stored
}

// FuzzDecodeAnnouncement has announcements behind the seal.
func FuzzDecodeAnnouncement(f *testing.F) {
	s := newSealer(f, seal.Plain, 1)
	name := wire.AnnouncementName(s.Keyring(), "l", [16]byte{})
	f.Add([]byte{1})
	f.Add(append(make([]byte, 17), 1, 'l', 0))
	f.Add(append(append([]byte{1}, make([]byte, 16)...), 1, 'l', 0))
	f.Add(append(append([]byte{1}, make([]byte, 16)...), 1, 'l', 2, 'p', 'q'))
	f.Fuzz(func(t *testing.T, plain []byte) {
		if len(plain) > seal.MaxObjectBytes {
			return
		}
		l := wire.AnnouncementLabel(name)
		a, err := wire.OpenAnnouncement(s, name, sealAs(t, s, l, plain))
		if err != nil {
			mustRefuse(t, "announcement", name, err)
			return
		}
		stored, err := wire.SealAnnouncement(s, a)
		if err != nil {
			t.Fatal(err)
		}
		if got, _, err := s.Open(l, stored, 4096); err != nil || !bytes.Equal(got, plain) {
			t.Errorf("accepted %x, encodes as %x, %v", plain, got, err)
		}
	})
}
