package format

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/ledgerd/ledger/cloudsync/seal"
)

// ID is a random id: of an entry, a pack, a bucket. The zero ID names nothing.
type ID [16]byte

// String returns the id as 32 lower-case hexadecimal digits.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// IsZero reports whether id is the zero ID.
func (id ID) IsZero() bool { return id == ID{} }

// What the names of rings of the keyring, and of announcements of pages, begin with.
const (
	KeysPrefix  = "keys/"
	PagesPrefix = "pages/"
)

// OldFormatName is the name of the object by which a bucket of the format before this one is known.
const OldFormatName = "format"

// FirstRing is the name of the first ring of the keyring, which every bucket has.
const FirstRing = KeysPrefix + "00000000"

// RingName returns the name of ring number of a bucket's keyring. All but the first one carry the
// bucket's id, so that a device that takes one bucket for another neither finds the next ring there
// nor puts one.
func RingName(bucket ID, number uint64) string {
	if number == 0 {
		return FirstRing
	}
	return fmt.Sprintf("%s%08d.%s", KeysPrefix, number, bucket)
}

// ParseRingName says which ring of a bucket's keyring has a name; ok is false for a name of
// anything else.
func ParseRingName(bucket ID, name string) (number uint64, ok bool) {
	s, _, _ := strings.Cut(strings.TrimPrefix(name, KeysPrefix), ".")
	number, err := strconv.ParseUint(s, 10, 64)
	return number, err == nil && number < seal.MaxRings && RingName(bucket, number) == name
}

// RolePage is the role of announcements, which is part of the format.
const RolePage = "page"

// AnnouncementName returns the name of the announcement of a page.
func AnnouncementName(k *seal.Keyring, ledger string, page [16]byte) string {
	return PagesPrefix + k.Name("announcement", []byte(ledger), page[:])
}

// AnnouncementLabel says what the announcement of the given name is.
func AnnouncementLabel(name string) seal.Label { return seal.Label{Role: RolePage, Name: name} }
