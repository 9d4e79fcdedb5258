package ledger

import (
	"fmt"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/internal/base"
)

// The errors of this package, to be matched with errors.Is. A returned error adds what the call was
// doing. A failed or unanswered request to a bucket is a *bucket.Error of package cloudsync/bucket;
// by its class it matches fs.ErrPermission, ErrNoSpace, ErrNetwork and others.
var (
	// ErrNotFound reports that a key, page, ledger, commit or tag does not exist.
	ErrNotFound = base.ErrNotFound
	// ErrConflict reports an unmet condition: a commit on a base that is no longer a head, or an
	// obstacle that the doc comment of the call names, such as an *EvictError or ErrCloudReplaced.
	ErrConflict = base.ErrConflict
	// ErrLocked reports that another opener holds the repository; see LockedError.
	ErrLocked = base.ErrLocked
	// ErrCorrupt reports bytes that differ from what was written; see CorruptError.
	ErrCorrupt = base.ErrCorrupt
	// ErrNeedsFetch reports a value that is in the cloud and not on this device.
	ErrNeedsFetch = base.ErrNeedsFetch
	// ErrNetwork reports that the cloud could not be reached.
	ErrNetwork = base.ErrNetwork
	// ErrGone reports data that existed and that retention has given up.
	ErrGone = base.ErrGone
	// ErrClosed reports the use of an object after its Close.
	ErrClosed = base.ErrClosed
	// ErrReadOnly reports a change to an object that was opened for reading only, or that became
	// read-only after a failed write or sync.
	ErrReadOnly = base.ErrReadOnly
	// ErrTooLarge reports an argument beyond its limit; the error names the limit.
	ErrTooLarge = base.ErrTooLarge
	// ErrInvalid reports an argument that can never be right.
	ErrInvalid = base.ErrInvalid
	// ErrNoSpace reports a full disk.
	ErrNoSpace = base.ErrNoSpace
	// ErrUnsupported reports a format that this library cannot read; see FormatError.
	ErrUnsupported = base.ErrUnsupported
	// ErrTxDone reports the use of a transaction after its Commit or Rollback.
	ErrTxDone = base.ErrTxDone
	// ErrNoRepository reports that a directory holds no repository.
	ErrNoRepository = base.ErrNoRepository
	// ErrWrongKey reports a missing key, or a key file or passphrase that does not open the cloud.
	ErrWrongKey = base.ErrWrongKey
	// ErrKeyFilePassphrase reports that a key file needs a passphrase, and none or another one was
	// given. It matches ErrWrongKey.
	ErrKeyFilePassphrase = seal.ErrKeyFilePassphrase
	// ErrShutOut reports that this device, or the key that it uses, was removed from the cloud's
	// keyring. The device can read nothing written since, and sends nothing. Local data stays. It
	// matches ErrWrongKey.
	ErrShutOut = base.ErrShutOut
	// ErrNoCloud reports that the repository has no cloud; see Repository.SetCloud.
	ErrNoCloud = base.ErrNoCloud
	// ErrCloudRolledBack reports a bucket in an older state than this device has seen: objects were
	// deleted, or the bucket was restored from a copy. See admin.Reupload. It matches ErrConflict.
	ErrCloudRolledBack = cloudsync.ErrBucketRolledBack
	// ErrCloudReplaced reports a bucket whose history differs from the one that this device has
	// seen. It matches ErrConflict.
	ErrCloudReplaced = cloudsync.ErrBucketReplaced
	// ErrCloudDamaged reports a missing or damaged object in the bucket that a page needs to sync;
	// the error names it. See admin.Reupload. The error also matches ErrCorrupt, ErrGone or
	// ErrNotFound.
	ErrCloudDamaged = cloudsync.ErrBucketDamaged
	// ErrDeleted reports a page that was deleted for all devices; see DeleteOptions.Everywhere.
	// This device keeps its copy until the page is deleted here, too.
	ErrDeleted = cloudsync.ErrDeleted
)

// CorruptError names the damaged bytes. It matches ErrCorrupt. Its fields are Where (a file with an
// offset, or a row family), Key (of the row or object, or ""; never a user's key), Want and Got
// (the expected and the found value, or ""), and Err, the cause or nil.
type CorruptError = base.CorruptError

// PageError names the page of an error, for a call on several pages. It matches what Err matches.
type PageError struct {
	// Page is the page.
	Page PageRef
	// Name is its human name, "" when it has none or the name is not recorded.
	Name string
	// Err is the cause.
	Err error
}

// Error implements error.
func (e *PageError) Error() string {
	return fmt.Sprintf("page %s: %v", base.PageName(e.Page.Ledger, e.Name, e.Page.ID), e.Err)
}

// Unwrap returns Err.
func (e *PageError) Unwrap() error { return e.Err }

// LockedError names the holder of a repository. It matches ErrLocked. Its fields are Path (the lock
// file), PID (the process id of the holder, 0 if unknown) and Waited, the time spent waiting.
type LockedError = base.LockedError

// FormatError names a format version that is not supported. It matches ErrUnsupported. Its fields
// are What (such as "repository" or "segment"), Found (its version) and Supported, the newest
// version that this program supports.
type FormatError = base.FormatError

// Kind says what a caller can do about an error.
type Kind = base.Kind

// The kinds of errors. New versions may add kinds, but never remove one.
const (
	KindInternal    = base.Internal    // a defect, or an unforeseen error
	KindInvalid     = base.Invalid     // correct the argument
	KindNotFound    = base.NotFound    // it does not exist
	KindConflict    = base.Conflict    // read again and decide again
	KindUnavailable = base.Unavailable // try again later
	KindNoSpace     = base.NoSpace     // make room
	KindCorrupt     = base.Corrupt     // run check
	KindClosed      = base.Closed      // it was closed
	KindUnsupported = base.Unsupported // use a newer program
	KindPermission  = base.Permission  // not allowed, or read-only
	KindNone        = base.None        // there is no error
)

// KindOf classifies err. It returns KindNone for nil, and KindInternal for unlisted errors.
func KindOf(err error) Kind { return base.KindOf(err) }
