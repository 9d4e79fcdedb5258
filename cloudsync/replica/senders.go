package replica

import (
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/storage"
)

// Sender is the device that put a commit into the log. The zero value says that nobody knows.
type Sender struct {
	Device seal.ID
	// Verified says that the page has read the entry, which the device has signed. Else whoever
	// made a checkpoint says so.
	Verified bool
}

// The value of the row of a commit is the id of the device, and a byte more where a checkpoint says
// it.
const (
	rowSender = "sender" // with /{short id, 16 hex digits}
	byHearsay = 1
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

// sender returns the row of a commit. said says that a checkpoint names the device.
func sender(id commit.ID, device seal.ID, said bool) storage.Metadata {
	value := device[:]
	if said {
		value = append(value, byHearsay)
	}
	return storage.Metadata{Type: senderRow(short(id)), Value: value}
}

// sentBy notes who sent a commit that is here, unless that is known: others may have sent it again.
func (s *step) sentBy(ctx context.Context, id commit.ID, device seal.ID, said bool) error {
	old, err := SenderOf(ctx, s.p.o.Store, id)
	if err == nil && old == (Sender{}) && device != (seal.ID{}) {
		s.b.Metadata = append(s.b.Metadata, sender(id, device, said))
	}
	return err
}
