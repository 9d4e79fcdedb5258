package replica

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/storage"
)

// Sender is the device that put a commit into the log. The zero value is an unknown device.
type Sender struct {
	Device seal.ID
	// Verified says that the page has read the entry, which the device has signed. Otherwise only
	// the writer of a checkpoint says so.
	Verified bool
}

// Known is what a page records of a device that has put commits into the log.
type Known struct {
	// Name is the device's own name, from its last commit that has one: a claim.
	Name string
	// Last is about when the device put its last commit into the log, to the hour. If a checkpoint
	// says so, it is when that commit was made, by the clock of its maker.
	Last epoch.Time
}

// knownFor is how old Known.Last may get before it is updated.
const knownFor = epoch.Time(time.Hour)

// sees records that a device has put commits into the log.
func (s *State) sees(device seal.ID, name string, at epoch.Time) {
	old, ok := s.Devices[device]
	k := Known{Name: cmp.Or(name, old.Name), Last: max(at, old.Last)}
	if ok && k.Name == old.Name && k.Last < old.Last+knownFor {
		return
	}
	s.Devices = added(s.Devices, map[seal.ID]Known{device: k})
}

// DevicesOf returns the devices that have put commits into the log of the bucket, as far as the
// store has recorded them. Errors: *base.CorruptError for a bad row; those of the store.
func DevicesOf(ctx context.Context, store *storage.Store) (m map[seal.ID]Known, err error) {
	_, err = readPart(ctx, store, rowDevices, &m)
	return m, err
}

// The value of the row of a commit is the id of the device, with one byte more if only a checkpoint
// says so.
const (
	rowSender  = "sender" // with /{short id, 16 hex digits}
	rowDevices = "devices"
	byHearsay  = 1
)

func senderRow(c epoch.Commit) string { return fmt.Sprintf("%s/%016x", rowSender, uint64(c)) }

// SenderOf returns the Sender of a commit of a store. Errors: *base.CorruptError for a bad row;
// those of the store.
func SenderOf(ctx context.Context, store *storage.Store, id commit.ID) (s Sender, err error) {
	row := senderRow(short(id))
	b, err := store.Metadata(ctx, row)
	if err != nil {
		return s, fmt.Errorf("read row %s: %w", row, err)
	}
	if len(b) != 0 && len(b) != len(s.Device) && len(b) != len(s.Device)+1 {
		return s, badRow(row, errors.New("no device"))
	}
	copy(s.Device[:], b)
	s.Verified = len(b) == len(s.Device)
	return s, nil
}

// sender returns the row of a commit. said says that only a checkpoint names the device.
func sender(id commit.ID, device seal.ID, said bool) storage.Metadata {
	value := device[:]
	if said {
		value = append(value, byHearsay)
	}
	return storage.Metadata{Type: senderRow(short(id)), Value: value}
}

// sentBy records the sender of a commit, unless one is recorded: others may have sent it again.
func (s *step) sentBy(ctx context.Context, id commit.ID, device seal.ID, said bool) error {
	old, err := SenderOf(ctx, s.p.o.Store, id)
	if err == nil && old == (Sender{}) && device != (seal.ID{}) {
		s.b.Metadata = append(s.b.Metadata, sender(id, device, said))
	}
	return err
}
