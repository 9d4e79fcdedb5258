package format

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/ledgerd/ledger/cloudsync/seal"
)

// ID is a random id: of an entry, a pack, a device's fingerprint. The zero ID names nothing.
type ID [16]byte

// String returns the id as 32 lower-case hexadecimal digits.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// IsZero reports whether id is the zero ID.
func (id ID) IsZero() bool { return id == ID{} }

// Hash is the SHA-256 of a log entry up to the end of its sealed head, which has the hash of the
// entry before and that of the sealed body.
type Hash [32]byte

// String returns the hash as 64 lower-case hexadecimal digits.
func (h Hash) String() string { return hex.EncodeToString(h[:]) }

// IsZero reports whether h is the zero Hash, which stands for "none".
func (h Hash) IsZero() bool { return h == Hash{} }

// MaxNumber is the greatest number of an entry, checkpoint or floor, so that sums of two of them
// cannot overflow.
const MaxNumber = 1 << 62

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

// Roles of sealed objects. They are part of the format.
const (
	RoleHead       = "head"
	RoleBody       = "body"
	RolePack       = "pack"
	RoleDiff       = "diff"
	RoleCheckpoint = "checkpoint"
	RoleFloor      = "floor"
	RolePage       = "page"
	RoleDevice     = "device"
)

// Kinds that ParseName returns.
const (
	KindEntry      = "entry"
	KindRange      = "range"
	KindPack       = "pack"
	KindCheckpoint = "checkpoint"
	KindFloor      = "floor"
	KindDevice     = "device"
)

const (
	logDir        = "/log/"
	packsDir      = "/packs/"
	checkpointDir = "/checkpoints/"
	floorDir      = "/floor/"
	devicesDir    = "/devices/"

	numberDigits = 20
	idDigits     = 32
)

// PageNames gives the names of a page's objects. Dir is "{L}/{P}", both by HMAC: L of the ledger, P
// of ledger and page.
type PageNames struct{ Dir string }

// NamesOf returns the names of a page.
func NamesOf(k *seal.Keyring, ledger string, page [16]byte) PageNames {
	return PageNames{Dir: k.Name("ledger", []byte(ledger)) + "/" + k.Name("page", []byte(ledger), page[:])}
}

// AnnouncementName returns the name of the announcement of a page.
func AnnouncementName(k *seal.Keyring, ledger string, page [16]byte) string {
	return PagesPrefix + k.Name("announcement", []byte(ledger), page[:])
}

// Entry returns the name of log entry number.
func (n PageNames) Entry(number uint64) string { return n.Dir + logDir + digits(number) }

// Range returns the name of the range of the entries from to to, both included.
func (n PageNames) Range(from, to uint64) string {
	return n.Dir + logDir + digits(from) + "-" + digits(to)
}

// Pack returns the name of a pack, whose id is that of its sealed object, or of a diff that is an
// object of its own.
func (n PageNames) Pack(id ID) string { return n.Dir + packsDir + id.String() }

// Checkpoint returns the name of the checkpoint that stands for everything up to entry number.
func (n PageNames) Checkpoint(number uint64) string { return n.Dir + checkpointDir + digits(number) }

// Floor returns the name of floor k, 1 for the first one.
func (n PageNames) Floor(k uint64) string { return n.Dir + floorDir + digits(k) }

// Device returns the name of the note that the device with fingerprint fp has read up to entry
// number.
func (n PageNames) Device(fp ID, number uint64) string {
	return n.Dir + devicesDir + fp.String() + "/" + digits(number)
}

// LogPrefix is what the names of all entries and ranges begin with.
func (n PageNames) LogPrefix() string { return n.Dir + logDir }

// PacksPrefix is what the names of all packs begin with.
func (n PageNames) PacksPrefix() string { return n.Dir + packsDir }

// CheckpointsPrefix is what the names of all checkpoints begin with.
func (n PageNames) CheckpointsPrefix() string { return n.Dir + checkpointDir }

// FloorPrefix is what the names of all floors begin with.
func (n PageNames) FloorPrefix() string { return n.Dir + floorDir }

// DevicesPrefix is what the names of all notes of devices begin with.
func (n PageNames) DevicesPrefix() string { return n.Dir + devicesDir }

// HeadLabel says what the first part of log entry number is.
func (n PageNames) HeadLabel(number uint64) seal.Label {
	return seal.Label{Role: RoleHead, Name: n.Entry(number)}
}

// BodyLabel says what the second part of a log entry is: it is bound to page and entry id, and may
// stand at any number.
func (n PageNames) BodyLabel(entry ID) seal.Label {
	return seal.Label{Role: RoleBody, Name: n.Dir + "/" + entry.String()}
}

// PackLabel says what a pack is. All packs of a page have it: what tells them apart is that the id
// of a pack is the id which was drawn when it was sealed. So who opens one compares seal.Reader.Ref
// with the id, and a frame whose place is known opens without the rest of its pack.
func (n PageNames) PackLabel() seal.Label {
	return seal.Label{Role: RolePack, Name: strings.TrimSuffix(n.PacksPrefix(), "/")}
}

// PackLabelOf is PackLabel: all packs of a page share it.
func (n PageNames) PackLabelOf(ID) seal.Label { return n.PackLabel() }

// DiffLabel says what a diff is that is an object of its own.
func (n PageNames) DiffLabel(id ID) seal.Label {
	return seal.Label{Role: RoleDiff, Name: n.Pack(id)}
}

// CheckpointLabel says what a checkpoint is.
func (n PageNames) CheckpointLabel(number uint64) seal.Label {
	return seal.Label{Role: RoleCheckpoint, Name: n.Checkpoint(number)}
}

// FloorLabel says what floor k is.
func (n PageNames) FloorLabel(k uint64) seal.Label {
	return seal.Label{Role: RoleFloor, Name: n.Floor(k)}
}

// DeviceLabel says what a note of a device is.
func (n PageNames) DeviceLabel(fp ID, number uint64) seal.Label {
	return seal.Label{Role: RoleDevice, Name: n.Device(fp, number)}
}

// AnnouncementLabel says what the announcement of the given name is.
func AnnouncementLabel(name string) seal.Label { return seal.Label{Role: RolePage, Name: name} }

// ParseName says what a name below Dir stands for: one of the Kind constants, and its numbers or
// id. from is the number of an entry, checkpoint or floor, the first of a range, or how far a
// device has read; to is the last of a range, else equal to from. ok is false for whatever no
// device writes, such as a range that is not aligned.
func (n PageNames) ParseName(name string) (kind string, from, to uint64, id ID, ok bool) {
	rest, ok := strings.CutPrefix(name, n.Dir)
	if !ok {
		return "", 0, 0, ID{}, false
	}
	switch {
	case strings.HasPrefix(rest, logDir):
		kind, from, to, ok = parseLogName(rest[len(logDir):])
	case strings.HasPrefix(rest, packsDir):
		kind = KindPack
		id, ok = parseID(rest[len(packsDir):])
	case strings.HasPrefix(rest, checkpointDir):
		kind = KindCheckpoint
		from, ok = parseDigits(rest[len(checkpointDir):], 1)
		to = from
	case strings.HasPrefix(rest, floorDir):
		kind = KindFloor
		from, ok = parseDigits(rest[len(floorDir):], 1)
		to = from
	case strings.HasPrefix(rest, devicesDir):
		kind = KindDevice
		id, from, ok = parseDeviceName(rest[len(devicesDir):])
		to = from
	default:
		ok = false
	}
	if !ok {
		return "", 0, 0, ID{}, false
	}
	return kind, from, to, id, true
}

func parseLogName(s string) (kind string, from, to uint64, ok bool) {
	first, last, isRange := strings.Cut(s, "-")
	if from, ok = parseDigits(first, 1); !ok {
		return "", 0, 0, false
	}
	if !isRange {
		return KindEntry, from, from, true
	}
	if to, ok = parseDigits(last, 1); !ok || to < from {
		return "", 0, 0, false
	}
	for _, size := range RangeSizes() {
		if f, t := RangeOf(from, size); f == from && t == to {
			return KindRange, from, to, true
		}
	}
	return "", 0, 0, false
}

func parseDeviceName(s string) (fp ID, number uint64, ok bool) {
	first, last, ok := strings.Cut(s, "/")
	if !ok {
		return ID{}, 0, false
	}
	if fp, ok = parseID(first); !ok {
		return ID{}, 0, false
	}
	number, ok = parseDigits(last, 0)
	return fp, number, ok
}

func digits(number uint64) string { return fmt.Sprintf("%0*d", numberDigits, number) }

// parseDigits reads what digits wrote: least to MaxNumber.
func parseDigits(s string, least uint64) (uint64, bool) {
	if len(s) != numberDigits {
		return 0, false
	}
	v, err := strconv.ParseUint(s, 10, 64)
	return v, err == nil && v >= least && v <= MaxNumber
}

// parseID reads what String wrote; the zero ID is none.
func parseID(s string) (id ID, ok bool) {
	if len(s) != idDigits {
		return ID{}, false
	}
	if _, err := hex.Decode(id[:], []byte(s)); err != nil || id.String() != s {
		return ID{}, false
	}
	return id, !id.IsZero()
}
