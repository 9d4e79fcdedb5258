package wire

import (
	"fmt"

	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/internal/limits"
)

// Announcement is the object by which other devices learn of a page.
type Announcement struct {
	Ledger string // 1 to limits.MaxLedgerNameBytes
	Name   string // human name of the page, may be empty, at most limits.MaxPageNameBytes
	Page   [16]byte
}

// The layout of an announcement's plaintext:
//
//	offset  bytes  content
//	0       1      format version: 1
//	1       16     id of the page; zeros for the root page
//	17             length (uvarint, 1 to 150) and name of the ledger, length (uvarint, at most
//	               1024) and name of the page
const (
	maxAnnouncementBytes = 1 + 16 + 2 + limits.MaxLedgerNameBytes + 2 + limits.MaxPageNameBytes
	announcementWhere    = "announcement of a page"
)

// RolePage is the role of announcements, which is part of the format.
const RolePage = "page"

// AnnouncementName returns the name of the announcement of a page.
func AnnouncementName(k *seal.Keyring, ledger string, page [16]byte) string {
	return PagesPrefix + k.Name("announcement", []byte(ledger), page[:])
}

// AnnouncementLabel returns the label of the announcement of the given name.
func AnnouncementLabel(name string) seal.Label { return seal.Label{Role: RolePage, Name: name} }

// SealAnnouncement returns the object for the name AnnouncementName. Errors: base.ErrInvalid.
func SealAnnouncement(s *seal.Sealer, a Announcement) ([]byte, error) {
	c := encode(announcementWhere)
	if a.code(c); c.err != nil {
		return nil, c.err
	}
	l := AnnouncementLabel(AnnouncementName(s.Keyring(), a.Ledger, a.Page))
	stored, _, err := s.Seal(l, c.b, seal.Form{Pad: seal.Quarters})
	if err != nil {
		return nil, fmt.Errorf("seal %s %s: %w", l.Role, l.Name, err)
	}
	return stored, nil
}

// OpenAnnouncement opens an announcement and verifies that its page gives the name of the object.
// Errors, with the name of the object: *base.CorruptError, *base.FormatError.
func OpenAnnouncement(s *seal.Sealer, name string, stored []byte) (Announcement, error) {
	l := AnnouncementLabel(name)
	var a Announcement
	if err := a.open(s, l, stored); err != nil {
		return Announcement{}, fmt.Errorf("open %s: %w", l.Name, err)
	}
	return a, nil
}

func (a *Announcement) open(s *seal.Sealer, l seal.Label, stored []byte) error {
	if most := seal.MaxSealed(maxAnnouncementBytes); len(stored) > most {
		return corrupt(announcementWhere, fmt.Errorf("%d bytes, at most %d", len(stored), most))
	}
	plain, _, err := s.Open(l, stored, maxAnnouncementBytes)
	if err != nil {
		return err
	}
	c := decode(announcementWhere, plain)
	a.code(c)
	if err := c.end(); err != nil {
		return err
	}
	if want := AnnouncementName(s.Keyring(), a.Ledger, a.Page); want != l.Name {
		return corrupt(announcementWhere, fmt.Errorf("it announces another page than its name says, which would be %s", want))
	}
	return nil
}

func (a *Announcement) code(c *coder) {
	ledger, name := []byte(a.Ledger), []byte(a.Name)
	c.fixed(a.Page[:])
	c.sized(&ledger, "length of the name of the ledger", 1, limits.MaxLedgerNameBytes)
	if c.sized(&name, "length of the name of the page", 0, limits.MaxPageNameBytes); c.reading {
		a.Ledger, a.Name = string(ledger), string(name)
	}
}
