package wire

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/ledgerd/ledger/cloudsync/seal"
)

// The prefixes of the names of the keyring's rings and of announcements.
const (
	KeysPrefix  = "keys/"
	PagesPrefix = "pages/"
)

// OldFormatName is the name of an object by which a bucket of the former format is recognized.
const OldFormatName = "format"

// FirstRing is the name of the first ring of the keyring, which every bucket has.
const FirstRing = KeysPrefix + "00000000"

// RingName returns the name of ring number of a bucket's keyring. All but the first have the
// bucket's id. So a device that takes one bucket for another neither finds the next ring there nor
// puts one.
func RingName(bucket seal.ID, number uint64) string {
	if number == 0 {
		return FirstRing
	}
	return fmt.Sprintf("%s%08d.%s", KeysPrefix, number, bucket)
}

// ParseRingName returns the number of the ring with a name; ok is false for any other name.
func ParseRingName(bucket seal.ID, name string) (number uint64, ok bool) {
	s, _, _ := strings.Cut(strings.TrimPrefix(name, KeysPrefix), ".")
	number, err := strconv.ParseUint(s, 10, 64)
	return number, err == nil && number < seal.MaxRings && RingName(bucket, number) == name
}
