package wire

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/ledgerd/ledger/cloudsync/seal"
)

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
func RingName(bucket seal.ID, number uint64) string {
	if number == 0 {
		return FirstRing
	}
	return fmt.Sprintf("%s%08d.%s", KeysPrefix, number, bucket)
}

// ParseRingName says which ring of a bucket's keyring has a name; ok is false for a name of
// anything else.
func ParseRingName(bucket seal.ID, name string) (number uint64, ok bool) {
	s, _, _ := strings.Cut(strings.TrimPrefix(name, KeysPrefix), ".")
	number, err := strconv.ParseUint(s, 10, 64)
	return number, err == nil && number < seal.MaxRings && RingName(bucket, number) == name
}
