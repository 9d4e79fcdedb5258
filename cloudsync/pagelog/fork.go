package pagelog

import (
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/internal/base"
)

// ForkError proves that the bucket has shown two logs: two entries with one number, each signed for
// it. The bucket has lost one and accepted the other, or shows different logs to different devices.
// It matches base.ErrCorrupt.
type ForkError struct {
	Epoch  epoch.ID
	Number uint64
	// Have is the head of the entry that was applied here. Found is that of the entry that the
	// bucket shows now. Their bytes prove the fork to every member: see wire.OpenHead.
	Have, Found wire.Head
}

// Error implements error.
func (e *ForkError) Error() string {
	return fmt.Sprintf("the bucket has shown two entries %d: %x, signed by device %s, and now %x, signed by device %s",
		e.Number, e.Have.Hash[:4], e.Have.Device, e.Found.Hash[:4], e.Found.Device)
}

// Is reports whether target is base.ErrCorrupt.
func (e *ForkError) Is(target error) bool { return target == base.ErrCorrupt }

var errOther = errors.New("it is another entry than the one that was there")

// forked returns the error for an entry at the position that differs from the applied one: a
// *ForkError if there is a proof. found has the beginning of the entry in the bucket.
func (l *Log) forked(found []byte) error {
	open := func(b []byte) (wire.Head, error) {
		return wire.OpenHead(l.o.Sealer, l.o.Names, l.at.Epoch, l.at.Number, b)
	}
	have, err := open(l.o.Head)
	if err != nil || have.Hash != l.at.Hash {
		return errOther
	}
	other, err := open(found)
	if err != nil {
		return errOther
	}
	return &ForkError{Epoch: l.at.Epoch, Number: l.at.Number, Have: have, Found: other}
}

// took records the head of an applied entry, nil after entering an epoch, and the data key with
// which it was sealed. Later objects are sealed with the same key or a later one, since their
// writer has read all before. So a device that was shut out cannot continue a log in which a member
// has written since.
func (l *Log) took(head []byte, key uint32) { l.o.Head, l.key = head, key }

// tooOld returns an error for an object sealed with an older data key than its predecessor.
func (l *Log) tooOld(key uint32) error {
	if key >= l.key {
		return nil
	}
	return &base.CorruptError{Where: "log", Err: fmt.Errorf("it is sealed with data key %d, and what is before it with %d", key, l.key)}
}
