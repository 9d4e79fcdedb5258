package pagelog

import (
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/internal/base"
)

// ForkError proves that the bucket has shown two logs: two entries of one number, of which each was
// signed for it. It has lost the one and taken the other, or shows one log to some devices and
// another one to others. It matches base.ErrCorrupt.
type ForkError struct {
	Epoch  epoch.ID
	Number uint64
	// Have is the head of the entry that was applied here, and Found that of the one that the
	// bucket shows now. Their bytes prove it to every member: see wire.OpenHead.
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

// forked returns what is wrong where the entry at the position, which begins with found, is another
// one than the one that was applied: a *ForkError where there is a proof.
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

// took notes the head of an entry that was applied, nil where an epoch was entered, and with which
// data key that was sealed. What stands behind it is sealed with the same one or a later one, since
// its writer has read what is before it: so nobody who was shut out goes on with a log in which
// somebody has written since.
func (l *Log) took(head []byte, key uint32) { l.o.Head, l.key = head, key }

// tooOld returns an error for what is sealed with an older data key than what it follows.
func (l *Log) tooOld(key uint32) error {
	if key >= l.key {
		return nil
	}
	return &base.CorruptError{Where: "log", Err: fmt.Errorf("it is sealed with data key %d, and what is before it with %d", key, l.key)}
}
