package seal

import (
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/internal/base"
)

// Sentinels, beside those of internal/base. They are matched with errors.Is.
var (
	// ErrWrongKey reports a master key with which the bucket's keys were not wrapped, or none where
	// one is needed. It is base.ErrWrongKey.
	ErrWrongKey = base.ErrWrongKey
	// ErrPlaintext reports a bucket that is not sealed, though a master key was given: it was never
	// sealed, or somebody wants it to look so.
	ErrPlaintext = errors.New("bucket is plaintext")
	// ErrShutOut reports a key with which the bucket's keys could once be opened, and that was
	// removed since. It is base.ErrShutOut, and matches ErrWrongKey.
	ErrShutOut = base.ErrShutOut
	// ErrUnknownKey reports a key index that the keyring does not have: the object is damaged, or
	// sealed by a device that has a newer keyring.
	ErrUnknownKey = errors.New("unknown key index")
	// ErrOldFormat reports the keyring of a bucket that an older version has made. It matches
	// base.ErrUnsupported.
	ErrOldFormat = fmt.Errorf("the bucket has the format of an older version, which this one neither reads nor changes: "+
		"set the cloud to another, empty place on a device that has everything, and delete the old bucket: %w", base.ErrUnsupported)
)
