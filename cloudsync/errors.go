package cloudsync

import (
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/pack"
	"github.com/ledgerd/ledger/cloudsync/pagelog"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/internal/base"
)

// In these states of a bucket nothing is sent to it, and nothing local is changed: see
// Page.Reupload. ErrBucketRolledBack, ErrBucketReplaced and ErrBucketWiped match base.ErrConflict.
var (
	// ErrBucketRolledBack reports a bucket that is in an older state than this device has seen.
	ErrBucketRolledBack = fmt.Errorf("the bucket is in an older state than this device has seen: %w", base.ErrConflict)
	// ErrBucketReplaced reports a bucket with another keyring than this device has seen.
	ErrBucketReplaced = fmt.Errorf("the bucket is another one than this device has seen: %w", base.ErrConflict)
	// ErrBucketWiped reports a bucket without a keyring, such as an empty one. It matches
	// ErrBucketRolledBack too.
	ErrBucketWiped = fmt.Errorf("the bucket has no keyring: it is empty, or not one of Ledger: %w", ErrBucketRolledBack)
	// ErrBucketDamaged reports a missing or damaged object without which sync of a page cannot go
	// on, and which this device cannot repair; the error names the object. Page.Reupload repairs it
	// on a device that has the content. The error comes with base.ErrCorrupt, base.ErrGone or
	// base.ErrNotFound.
	ErrBucketDamaged = pack.ErrDamaged
	// ErrShutOut reports that the key of this device, or the device itself, was removed from the
	// keyring.
	ErrShutOut = seal.ErrShutOut
	// ErrDeleted reports a page that was deleted for all devices: see Syncer.DeleteEverywhere.
	ErrDeleted = pagelog.ErrDeleted
)

// errPaused ends a round of the background when sync is paused.
var errPaused = errors.New("sync is paused")

// needsUser reports whether only the user can help and waiting cannot.
func needsUser(err error) bool {
	return err != nil && (bucket.ClassOf(err).NeedsUser() || wrongBucket(err) || errors.Is(err, ErrDeleted) ||
		errors.Is(err, base.ErrUnsupported) || errors.Is(err, base.ErrWrongKey))
}

// wrongBucket reports whether the bucket differs from the one that the device has seen.
func wrongBucket(err error) bool {
	return errors.Is(err, ErrBucketRolledBack) || errors.Is(err, ErrBucketReplaced)
}

// damagedIf makes an error of reading an object match ErrBucketDamaged if it says that the object
// is corrupt.
func damagedIf(err error) error {
	if errors.Is(err, base.ErrCorrupt) {
		return pack.AsDamaged(err)
	}
	return err
}
