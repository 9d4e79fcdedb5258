package wire

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/seal"
)

// MaxNumber is the greatest number of an epoch or of an entry, so that sums of two cannot overflow.
const MaxNumber = 1 << 62

// Names gives the names and labels of the objects of one page. Dir is their common prefix without
// the slash.
type Names struct{ Dir string }

// NamesOf returns the names of a page of a ledger.
func NamesOf(k *seal.Keyring, ledger string, page [16]byte) Names {
	return Names{Dir: k.Name("ledger", []byte(ledger)) + "/" + k.Name("page", []byte(ledger), page[:])}
}

// Kind is the kind of an object.
type Kind uint8

// The kinds of objects.
const (
	KindEpoch Kind = iota + 1
	KindEntry
	KindPack
	KindCheckpoint // also a run of one
)

// The directories of a page, and the widths of numbers and ids in names.
const (
	epochsDir      = "/epochs/"
	logDir         = "/log/"
	packsDir       = "/packs/"
	checkpointsDir = "/checkpoints/"

	numberDigits = 20
	idDigits     = 32
)

// Epochs returns the prefix of the names of all epochs.
func (n Names) Epochs() string { return n.Dir + epochsDir }

// Epoch returns the name of epoch k.
func (n Names) Epoch(k uint64) string { return n.Epochs() + digits(k) }

// Logs returns the prefix of the names of all entries.
func (n Names) Logs() string { return n.Dir + logDir }

// Log returns the prefix of the names of all entries of an epoch.
func (n Names) Log(e epoch.ID) string { return n.Logs() + e.String() + "/" }

// Entry returns the name of an entry.
func (n Names) Entry(e epoch.ID, number uint64) string { return n.Log(e) + digits(number) }

// Packs returns the prefix of the names of all packs of an epoch.
func (n Names) Packs(e epoch.ID) string { return n.Dir + packsDir + e.String() + "/" }

// Pack returns the name of a pack.
func (n Names) Pack(e, id epoch.ID) string { return n.Packs(e) + id.String() }

// Checkpoints returns the prefix of the names of all checkpoints and runs of an epoch.
func (n Names) Checkpoints(e epoch.ID) string { return n.Dir + checkpointsDir + e.String() + "/" }

// Checkpoint returns the name of a checkpoint, or of a run.
func (n Names) Checkpoint(e, id epoch.ID) string { return n.Checkpoints(e) + id.String() }

// Name is the parsed name of an object.
type Name struct {
	Kind Kind
	// Epoch is the epoch in whose directory the object is; zero for an epoch.
	Epoch epoch.ID
	// ID is that of a pack, a checkpoint or a run.
	ID epoch.ID
	// Number is that of an epoch or of an entry.
	Number uint64
}

// kinds are the kinds of objects, by the directory of the page in which they are.
var kinds = map[string]Kind{epochsDir: KindEpoch, logDir: KindEntry, packsDir: KindPack, checkpointsDir: KindCheckpoint}

// Parse parses a name. ok is false for a name that no device gives to an object of the page.
func (n Names) Parse(name string) (out Name, ok bool) {
	parts := strings.Split(strings.TrimPrefix(name, n.Dir+"/"), "/")
	last := parts[len(parts)-1]
	out.Kind = kinds["/"+parts[0]+"/"]
	switch {
	case out.Kind == 0 || !strings.HasPrefix(name, n.Dir+"/"):
	case out.Kind == KindEpoch && len(parts) == 2:
		out.Number, ok = parseDigits(last)
	case out.Kind != KindEpoch && len(parts) == 3:
		if out.Epoch, ok = parseID(parts[1]); !ok {
			break
		}
		if out.Kind == KindEntry {
			out.Number, ok = parseDigits(last)
		} else {
			out.ID, ok = parseID(last)
		}
	}
	if !ok {
		return Name{}, false
	}
	return out, true
}

// Roles of sealed objects. They are part of the format.
const (
	roleEpoch      = "epoch"
	roleEntry      = "entry"
	roleBody       = "body"
	roleCheckpoint = "checkpoint"
	roleRun        = "run"
	rolePack       = "pack"
	roleDiff       = "diff"
)

// EpochLabel returns the label of an epoch. It has no number: the device that helps sets it.
func (n Names) EpochLabel() seal.Label { return seal.Label{Role: roleEpoch, Name: n.Dir} }

// EntryLabel returns the label of an entry.
func (n Names) EntryLabel(e epoch.ID, number uint64) seal.Label {
	return seal.Label{Role: roleEntry, Name: n.Entry(e, number)}
}

// LongBodyLabel returns the label of a body that is an object of its own.
func (n Names) LongBodyLabel(e, id epoch.ID) seal.Label {
	return seal.Label{Role: roleBody, Name: n.Pack(e, id)}
}

// CheckpointLabel returns the label of a checkpoint.
func (n Names) CheckpointLabel(e, id epoch.ID) seal.Label {
	return seal.Label{Role: roleCheckpoint, Name: n.Checkpoint(e, id)}
}

// RunLabel returns the label of a run.
func (n Names) RunLabel(e, id epoch.ID) seal.Label {
	return seal.Label{Role: roleRun, Name: n.Checkpoint(e, id)}
}

// DiffLabel returns the label of a difference that is an object among the packs of an epoch.
func (n Names) DiffLabel(e, id epoch.ID) seal.Label {
	return seal.Label{Role: roleDiff, Name: n.Pack(e, id)}
}

// PackLabel returns the label of a pack. All packs of an epoch share it: the id of a pack is drawn
// when it is sealed, and a reader of a frame compares the ids.
func (n Names) PackLabel(e epoch.ID) seal.Label {
	return seal.Label{Role: rolePack, Name: strings.TrimSuffix(n.Packs(e), "/")}
}

func digits(number uint64) string { return fmt.Sprintf("%0*d", numberDigits, number) }

// parseDigits reads what digits writes, up to MaxNumber.
func parseDigits(s string) (uint64, bool) {
	if len(s) != numberDigits {
		return 0, false
	}
	v, err := strconv.ParseUint(s, 10, 64)
	return v, err == nil && v <= MaxNumber
}

// parseID reads what ID.String writes. It refuses the zero ID.
func parseID(s string) (id epoch.ID, ok bool) {
	if len(s) != idDigits {
		return epoch.ID{}, false
	}
	if _, err := hex.Decode(id[:], []byte(s)); err != nil || id.String() != s {
		return epoch.ID{}, false
	}
	return id, id != epoch.ID{}
}
