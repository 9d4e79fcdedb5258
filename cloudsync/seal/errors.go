package seal

import (
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/internal/base"
)

// Sentinels, beside those of internal/base. They are matched with errors.Is.
var (
	// ErrWrongKey reports a master key that does not open the bucket's keys, or a missing one where
	// one is needed. It is base.ErrWrongKey.
	ErrWrongKey = base.ErrWrongKey
	// ErrPlaintext reports a bucket that is not sealed, though a master key was given. It was never
	// sealed, or an attacker makes it look so.
	ErrPlaintext = errors.New("bucket is plaintext")
	// ErrShutOut reports a key that once opened the bucket's keys and was removed since. It is
	// base.ErrShutOut, and matches ErrWrongKey.
	ErrShutOut = base.ErrShutOut
	// ErrUnknownKey reports a key index that the keyring does not have: the object is damaged, or a
	// device with a newer keyring has sealed it.
	ErrUnknownKey = errors.New("unknown key index")
	// ErrOldFormat reports the keyring of a bucket made by an older version. It matches
	// base.ErrUnsupported.
	ErrOldFormat = fmt.Errorf("the bucket has the format of an older version, which this one neither reads nor changes: "+
		"set the cloud to another, empty place on a device that has everything, and delete the old bucket: %w", base.ErrUnsupported)
)
