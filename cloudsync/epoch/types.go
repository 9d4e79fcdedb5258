package epoch

import (
	"encoding/hex"
	"time"
)

// ID is a random id: of an epoch, a pack or a checkpoint. The zero ID stands for none.
type ID [16]byte

// String returns the id as 32 lower-case hexadecimal digits.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// Hash is the hash of all bytes of an object. The zero Hash stands for none.
type Hash [32]byte

// Commit is the first 8 bytes of a commit's id, which is a hash.
type Commit uint64

// Time is a moment by the bucket's clock, in nanoseconds since 1970. 0 is an unknown moment.
type Time int64

// Add returns the moment d later.
func (t Time) Add(d time.Duration) Time { return t + Time(d) }

// Ages are differences between times of the bucket's clock.
const (
	// Freshness is how long a look holds. An entry created after that needs another look.
	Freshness = 24 * time.Hour
	// Grace is the least time that the objects of a past epoch stay.
	Grace = 30 * 24 * time.Hour
)

// Kind says why an epoch began.
type Kind uint8

// The kinds of epochs.
const (
	// Found is the first epoch of a page. It has no checkpoint.
	Found Kind = iota + 1
	// Cut gives up what retention or erasing names.
	Cut
	// Renewal repairs a bucket that has lost objects. It keeps everything that its writer has.
	Renewal
	// Deleted ends the page for all devices. It has no checkpoint, and no epoch follows.
	Deleted
)

// Proposal is an epoch. A closing entry proposes it; as epochs/{k} it counts. It is immutable.
type Proposal struct {
	// ID is the id of the new epoch, and Parent that of the epoch in which it was written.
	ID, Parent ID
	Kind       Kind
	// Renewed is the id of the last Renewal among this epoch and its ancestors, zero for none.
	Renewed ID
	// Base is the number of the last entry for which the checkpoint stands, and BaseHash its hash.
	Base     uint64
	BaseHash Hash
	// Checkpoint is the id of the checkpoint, which is in the directory of ID; CheckpointHash is
	// the hash of its object. Both are zero for none.
	Checkpoint     ID
	CheckpointHash Hash
	// Erased are commits that this epoch gives up and that no lineage may restore. The checkpoint
	// lists the other commits that were given up.
	Erased Set
	// Behind is set in a Renewal: the number after the greatest in epochs/ when its writer read
	// there which commits were erased.
	Behind uint64
	// Hash is the hash of the bytes of the proposal.
	Hash Hash
}

// Position says how far a device has read. The zero value has read nothing.
type Position struct {
	// K and Epoch name the epoch: epochs/{K} has the id Epoch.
	K     uint64
	Epoch ID
	// Number and Hash are those of the last entry applied. Before the first entry of the epoch they
	// are the Base and the hash of the epoch's object.
	Number uint64
	Hash   Hash
	// Looked is not later than the last look that found Epoch to be the newest.
	Looked Time
	// Renewed is that of the epoch. Deleted reports an epoch of kind Deleted.
	Renewed ID
	Deleted bool
}

// Joined reports whether the device is in an epoch.
func (p Position) Joined() bool { return p.Epoch != ID{} }

// At returns the position at the beginning of x, which is epochs/{k}, after a look at looked.
func (x *Proposal) At(k uint64, looked Time) Position {
	return Position{
		K: k, Epoch: x.ID, Number: x.Base, Hash: x.Hash, Looked: looked, Renewed: x.Renewed, Deleted: x.Kind == Deleted,
	}
}

// Adopts reports whether a device at p, before it enters x, reads the entries after p in the log of
// its own epoch. It takes the commits there as its own unsynced ones, as far as it has what they
// build on. The checkpoint of a cut contains the log that the cut closed. The writer of a renewal
// may have been unable to read all of the log.
func (p Position) Adopts(x *Proposal) bool { return p.Joined() && p.Renewed != x.Renewed }
