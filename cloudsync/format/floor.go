package format

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/cloudsync/seal"
)

// Floor is the lowest number that stays, with the checkpoint to begin with. Floors are never
// deleted: who has found floor K looks for K+1.
type Floor struct {
	K   uint64 // 1 for the first one; by the name to which it is bound
	Low uint64 // entries with lesser numbers may be gone
	// Checkpoint stands for everything before Low: it is at least Low-1, and 0 only when Low is 1.
	Checkpoint uint64
	Deleted    bool // the page is deleted for all; Low and Checkpoint are 0
}

// The layout of a floor's plaintext:
//
//	offset  bytes  content
//	0       1      format version: 1
//	1       1      flags: bit 0, the page is deleted; others zero
//	2              low (uvarint), checkpoint (uvarint)
const (
	flagDeleted   = 1 << 0
	maxFloorBytes = 1 + 1 + 2*binary.MaxVarintLen64
	floorWhere    = "floor"
)

func (f *Floor) check() error {
	switch {
	case f.K == 0 || f.K > MaxNumber:
		return fmt.Errorf("number %d is not 1 to 2^62", f.K)
	case f.Deleted && (f.Low != 0 || f.Checkpoint != 0):
		return errors.New("a deleted page keeps something")
	case f.Deleted:
		return nil
	case f.Low == 0 || f.Low > MaxNumber || f.Checkpoint > MaxNumber || f.Checkpoint < f.Low-1:
		return fmt.Errorf("lowest number %d, checkpoint %d", f.Low, f.Checkpoint)
	}
	return nil
}

// SealFloor returns the object of floor f.K. Errors: base.ErrInvalid, those of the source of
// randomness.
func SealFloor(s *seal.Sealer, n PageNames, f Floor) ([]byte, error) {
	if err := f.check(); err != nil {
		return nil, invalid(floorWhere, err)
	}
	b := []byte{formatVersion, 0}
	if f.Deleted {
		b[1] = flagDeleted
	}
	b = binary.AppendUvarint(b, f.Low)
	b = binary.AppendUvarint(b, f.Checkpoint)
	return sealSmall(s, n.FloorLabel(f.K), b)
}

// OpenFloor opens floor k. Errors, with the name of the object: *base.CorruptError,
// *base.FormatError.
func OpenFloor(s *seal.Sealer, n PageNames, k uint64, stored []byte) (Floor, error) {
	f := Floor{K: k}
	err := openSmall(s, n.FloorLabel(k), floorWhere, stored, maxFloorBytes, func(d *decoder) error {
		f.Deleted = d.flags(floorWhere, flagDeleted) != 0
		f.Low = d.uvarint("lowest number", 0, MaxNumber)
		f.Checkpoint = d.uvarint("checkpoint", 0, MaxNumber)
		if err := d.end(); err != nil {
			return err
		}
		if err := f.check(); err != nil {
			return corrupt(floorWhere, err)
		}
		return nil
	})
	if err != nil {
		return Floor{}, err
	}
	return f, nil
}

// sealSmall seals a single object.
func sealSmall(s *seal.Sealer, l seal.Label, plain []byte) ([]byte, error) {
	stored, _, err := s.Seal(l, plain, seal.Form{Pad: seal.Quarters})
	if err != nil {
		return nil, fmt.Errorf("seal %s %s: %w", l.Role, l.Name, err)
	}
	return stored, nil
}

// openSmall opens a single object of at most limit bytes, and lets read read it behind its version.
// Errors have the object's name.
func openSmall(s *seal.Sealer, l seal.Label, where string, stored []byte, limit int, read func(d *decoder) error) error {
	if most := seal.MaxSealed(limit); len(stored) > most {
		return fmt.Errorf("open %s: %w", l.Name, corrupt(where, fmt.Errorf("%d bytes, at most %d", len(stored), most)))
	}
	plain, _, err := s.Open(l, stored, limit)
	if err == nil {
		err = read(decode(where, plain))
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", l.Name, err)
	}
	return nil
}
