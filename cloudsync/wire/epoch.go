package wire

import (
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/internal/base"
)

// MaxEpochBytes bounds the plaintext of an epoch, and so the commits that one epoch erases to 1
// million.
const MaxEpochBytes = 8 << 20

const epochWhere = "epoch"

// The layout of an epoch, integers as uvarints unless stated otherwise:
//
//	1   version
//	1   kind
//	16  id, 16 id of the parent, 16 id of the last renewal, 16 id of the checkpoint
//	32  hash of the checkpoint
//	    base number; 32 base hash
//	    the number after the greatest that its writer saw
//	    number of erased commits; 8 for each, ascending
//
// The author follows: see author.go.

// checkEpoch returns an error for bad fields of a proposal.
func checkEpoch(x *epoch.Proposal) error {
	none := epoch.ID{}
	switch {
	case x.ID == none:
		return errors.New("an epoch without an id")
	case x.Kind < epoch.Found || x.Kind > epoch.Deleted:
		return fmt.Errorf("kind %d", x.Kind)
	case x.Kind == epoch.Found && x.Parent != none || x.Parent == x.ID:
		return errors.New("a first epoch has a parent, or an epoch is its own one")
	case x.Parent == none && x.Kind != epoch.Found && x.Kind != epoch.Renewal:
		return fmt.Errorf("kind %d without a parent", x.Kind)
	case (x.Parent == none) != (x.BaseHash == epoch.Hash{}) || x.Parent == none && x.Base > 0:
		return fmt.Errorf("an epoch with the parent %s begins behind entry %d", x.Parent, x.Base)
	case (x.Kind == epoch.Cut || x.Kind == epoch.Renewal) != (x.Checkpoint != none):
		return fmt.Errorf("checkpoint %s for kind %d", x.Checkpoint, x.Kind)
	case (x.Checkpoint == none) != (x.CheckpointHash == epoch.Hash{}):
		return fmt.Errorf("checkpoint %s with hash %x", x.Checkpoint, x.CheckpointHash[:4])
	case (x.Kind == epoch.Renewal) != (x.Renewed == x.ID) || x.Kind == epoch.Found && x.Renewed != none:
		return errors.New("last renewal is another one")
	case x.Kind != epoch.Renewal && x.Behind != 0:
		return errors.New("an epoch that repairs nothing says what it saw")
	case len(x.Erased) > 0 && x.Checkpoint == none:
		return errors.New("an epoch without a checkpoint erases commits")
	}
	return nil
}

func codeEpoch(c *coder, x *epoch.Proposal) {
	c.byte((*byte)(&x.Kind))
	c.fixed(x.ID[:], x.Parent[:], x.Renewed[:], x.Checkpoint[:], x.CheckpointHash[:])
	c.number(&x.Base, "number of an entry", 0, MaxNumber)
	c.fixed(x.BaseHash[:])
	c.number(&x.Behind, "number of an epoch", 0, MaxNumber)
	c.commits(&x.Erased, 0, MaxEpochBytes/8)
	if err := checkEpoch(x); err != nil {
		c.failf("%w", err)
	}
}

// EncodeEpoch returns the plaintext of an epoch; Hash is not part of it. Errors: base.ErrInvalid,
// base.ErrTooLarge.
func EncodeEpoch(x *epoch.Proposal) ([]byte, error) {
	c := encode(epochWhere)
	codeEpoch(c, x)
	if len(c.b) > MaxEpochBytes {
		return nil, fmt.Errorf("encode %s of %d bytes, at most %d: %w", epochWhere, len(c.b), MaxEpochBytes, base.ErrTooLarge)
	}
	return c.b, c.err
}

// ParseEpoch reads what EncodeEpoch wrote. Errors: *base.CorruptError, *base.FormatError.
func ParseEpoch(b []byte) (*epoch.Proposal, error) {
	c := decode(epochWhere, b)
	x := &epoch.Proposal{}
	codeEpoch(c, x)
	return x, c.end()
}

// SealEpoch returns the object of an epoch, and sets x.Hash to its hash. Errors: as EncodeEpoch.
func SealEpoch(s *seal.Sealer, n Names, x *epoch.Proposal) ([]byte, error) {
	plain, err := EncodeEpoch(x)
	if err != nil {
		return nil, err
	}
	sealed, _, err := s.Seal(n.EpochLabel(), sign(s, epochWhere, n, nil, plain), seal.Form{Pad: seal.Quarters})
	if err != nil {
		return nil, fmt.Errorf("seal %s: %w", epochWhere, err)
	}
	x.Hash = sha256.Sum256(sealed)
	return sealed, nil
}

// OpenEpoch opens the object of an epoch. Errors: *base.CorruptError, *base.FormatError. They do
// not name the object, which may be in epochs/ or in a closing entry.
func OpenEpoch(s *seal.Sealer, n Names, stored []byte) (*epoch.Proposal, error) {
	sealed, _, err := s.Open(n.EpochLabel(), stored, MaxEpochBytes+authorBytes)
	if err != nil {
		return nil, err
	}
	plain, _, err := verify(s, epochWhere, n, nil, sealed)
	if err != nil {
		return nil, err
	}
	x, err := ParseEpoch(plain)
	if err != nil {
		return nil, err
	}
	x.Hash = sha256.Sum256(stored)
	return x, nil
}
