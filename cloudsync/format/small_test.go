package format_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/internal/base"
)

func TestPosition(t *testing.T) {
	for _, p := range []format.Position{{Bucket: id(1)}, {Bucket: id(2), Number: 7, Hash: hash(3)}} {
		b := p.Encode()
		if got, err := format.ParsePosition(b); err != nil || got != p || len(b) != 56 {
			t.Errorf("%v is %v, %v", p, got, err)
		}
		for n := range b {
			_, err := format.ParsePosition(b[:n])
			mustRefuse(t, "cut", "position", err)
		}
		_, err := format.ParsePosition(append(b, 0))
		mustRefuse(t, "more", "position", err)
	}
	for _, p := range []format.Position{{}, {Number: 1, Hash: hash(1)}, {Bucket: id(1), Number: 1}, {Bucket: id(1), Hash: hash(1)}, {Bucket: id(1), Number: format.MaxNumber + 1, Hash: hash(1)}} {
		_, err := format.ParsePosition(p.Encode())
		mustRefuse(t, "values", "position", err)
	}
}

func FuzzDecodePosition(f *testing.F) {
	f.Add(format.Position{Bucket: id(2), Number: 7, Hash: hash(3)}.Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, err := format.ParsePosition(b); err != nil {
			mustRefuse(t, "position", "position", err)
		} else if again := p.Encode(); !bytes.Equal(again, b) {
			t.Errorf("accepted %x, encodes as %x", b, again)
		}
	})
}

func TestFloor(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, s *seal.Sealer) {
		n := namesOf(s)
		for _, f := range []format.Floor{{K: 1, Low: 1}, {K: 2, Low: 41, Checkpoint: 40}, {K: 3, Low: 41, Checkpoint: 90}, {K: format.MaxNumber, Deleted: true}} {
			stored, err := format.SealFloor(s, n, f)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := format.OpenFloor(s, n, f.K, stored); err != nil || got != f {
				t.Errorf("%v is %v, %v", f, got, err)
			}
			_, err = format.OpenFloor(s, n, f.K-1, stored)
			mustRefuse(t, "other number", n.Floor(f.K-1), err)
		}
		for _, f := range []format.Floor{{}, {Low: 1}, {K: 1}, {K: 1, Low: 42, Checkpoint: 40}, {K: 1, Low: 2, Deleted: true}, {K: 1, Checkpoint: 1, Deleted: true}, {K: 1, Low: 1, Checkpoint: 1 << 63}, {K: 1, Low: 1 << 63, Checkpoint: 1 << 63}, {K: 1 << 63, Low: 1}} {
			if _, err := format.SealFloor(s, n, f); !errors.Is(err, base.ErrInvalid) {
				t.Errorf("%v: %v", f, err)
			}
		}
	})
}

func TestDevice(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, s *seal.Sealer) {
		n := namesOf(s)
		for _, d := range []format.DevicePosition{{Fingerprint: id(1)}, {Fingerprint: id(1), Number: format.MaxNumber}} {
			stored, err := format.SealDevice(s, n, d)
			if err != nil {
				t.Fatal(err)
			}
			if err := format.OpenDevice(s, n, d.Fingerprint, d.Number, stored); err != nil {
				t.Error(err)
			}
			mustRefuse(t, "other number", n.Device(id(1), 3), format.OpenDevice(s, n, id(1), 3, stored))
			mustRefuse(t, "other device", n.Device(id(2), d.Number), format.OpenDevice(s, n, id(2), d.Number, stored))
		}
		for _, d := range []format.DevicePosition{{}, {Fingerprint: id(1), Number: 1 << 63}} {
			if _, err := format.SealDevice(s, n, d); !errors.Is(err, base.ErrInvalid) {
				t.Errorf("%v: %v", d, err)
			}
			stored := sealAs(t, s, n.DeviceLabel(d.Fingerprint, d.Number), []byte{1})
			mustRefuse(t, "bounds", n.Device(d.Fingerprint, d.Number), format.OpenDevice(s, n, d.Fingerprint, d.Number, stored))
		}
	})
}

func TestAnnouncement(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, s *seal.Sealer) {
		long := strings.Repeat("é", 512)
		for _, a := range []format.Announcement{{Ledger: "l"}, {Ledger: long, Name: long, Page: pageID}, {Ledger: "\xff\x00", Name: "name"}} {
			name := format.AnnouncementName(s.Keyring(), a.Ledger, a.Page)
			stored, err := format.SealAnnouncement(s, a)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := format.OpenAnnouncement(s, name, stored); err != nil || got != a {
				t.Errorf("%v is %v, %v", a, got, err)
			}
			_, err = format.OpenAnnouncement(s, name+"0", stored)
			mustRefuse(t, "other name", name+"0", err)
			// A member may seal the announcement of a page under the name of another one.
			other := format.AnnouncementName(s.Keyring(), a.Ledger+"2", a.Page)
			plain, _, err := s.Open(format.AnnouncementLabel(name), stored, 4096)
			if err != nil {
				t.Fatal(err)
			}
			_, err = format.OpenAnnouncement(s, other, sealAs(t, s, format.AnnouncementLabel(other), plain))
			mustRefuse(t, "other page", other, err)
			_, err = format.OpenAnnouncement(s, strings.Repeat("x", 5000), stored)
			mustRefuse(t, "long name", "announcement", err)
		}
		for _, a := range []format.Announcement{{}, {Ledger: long + "x"}, {Ledger: "l", Name: long + "x"}} {
			if _, err := format.SealAnnouncement(s, a); !errors.Is(err, base.ErrInvalid) && !errors.Is(err, base.ErrTooLarge) {
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

// FuzzDecodeSmall has floors, announcements and notes of devices behind the seal.
func FuzzDecodeSmall(f *testing.F) {
	s := newSealer(f, seal.Plain, 1)
	n := namesOf(s)
	name := format.AnnouncementName(s.Keyring(), "l", [16]byte{})
	f.Add([]byte{1})
	f.Add([]byte{1, 0, 41, 40})
	f.Add([]byte{1, 1, 0, 0})
	f.Add(append(make([]byte, 17), 1, 'l', 0))
	f.Add(append(append([]byte{1}, make([]byte, 16)...), 1, 'l', 0))
	f.Add(append(append([]byte{1}, make([]byte, 16)...), 1, 'l', 2, 'p', 'q'))
	f.Fuzz(func(t *testing.T, plain []byte) {
		if len(plain) > seal.MaxObjectBytes {
			return
		}
		again := func(what string, l seal.Label, stored []byte, err error) {
			if err != nil {
				t.Fatal(err)
			}
			if got, _, err := s.Open(l, stored, 4096); err != nil || !bytes.Equal(got, plain) {
				t.Errorf("%s: accepted %x, encodes as %x, %v", what, plain, got, err)
			}
		}
		l := n.FloorLabel(2)
		if floor, err := format.OpenFloor(s, n, 2, sealAs(t, s, l, plain)); err != nil {
			mustRefuse(t, "floor", l.Name, err)
		} else {
			stored, err := format.SealFloor(s, n, floor)
			again("floor", l, stored, err)
		}
		l = format.AnnouncementLabel(name)
		if a, err := format.OpenAnnouncement(s, name, sealAs(t, s, l, plain)); err != nil {
			mustRefuse(t, "announcement", name, err)
		} else {
			stored, err := format.SealAnnouncement(s, a)
			again("announcement", l, stored, err)
		}
		l = n.DeviceLabel(id(1), 5)
		if err := format.OpenDevice(s, n, id(1), 5, sealAs(t, s, l, plain)); err != nil {
			mustRefuse(t, "note", l.Name, err)
		} else if !bytes.Equal(plain, []byte{1}) {
			t.Errorf("note %x", plain)
		}
	})
}
