package ledger

import (
	"fmt"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/internal/base"
)

// The errors of this package, matched with errors.Is. The errors that carry them say what was being
// done. An answer of a bucket, or that none came, is a *bucket.Error of package cloudsync/bucket,
// and matches fs.ErrPermission, ErrNoSpace, ErrNetwork and others, by its class.
var (
	// ErrNotFound reports that a key, page, ledger, commit or tag does not exist.
	ErrNotFound = base.ErrNotFound
	// ErrConflict reports that a condition does not hold: a PutIf whose entry is otherwise, a
	// commit on a base that is no longer a head, or what else stands in the way of a call, such as
	// an *EvictError or ErrCloudReplaced: each call says what.
	ErrConflict = base.ErrConflict
	// ErrLocked reports that the repository is held by another opener; see LockedError.
	ErrLocked = base.ErrLocked
	// ErrCorrupt reports bytes that are not what was written; see CorruptError.
	ErrCorrupt = base.ErrCorrupt
	// ErrNeedsFetch reports a value that is in the cloud and not held here.
	ErrNeedsFetch = base.ErrNeedsFetch
	// ErrNetwork reports that the cloud could not be reached.
	ErrNetwork = base.ErrNetwork
	// ErrGone reports something that existed and was given up by retention.
	ErrGone = base.ErrGone
	// ErrClosed reports the use of something after its Close.
	ErrClosed = base.ErrClosed
	// ErrReadOnly reports a change of something that is open for reading only, or that has become
	// so because a write or sync failed.
	ErrReadOnly = base.ErrReadOnly
	// ErrTooLarge reports an argument beyond its limit; the error names the limit.
	ErrTooLarge = base.ErrTooLarge
	// ErrInvalid reports an argument that can never be right.
	ErrInvalid = base.ErrInvalid
	// ErrNoSpace reports a full disk.
	ErrNoSpace = base.ErrNoSpace
	// ErrUnsupported reports a format that this library does not know; see FormatError.
	ErrUnsupported = base.ErrUnsupported
	// ErrTxDone reports the use of a transaction after its Commit or Rollback.
	ErrTxDone = base.ErrTxDone
	// ErrNoRepository reports that a directory holds no repository.
	ErrNoRepository = base.ErrNoRepository
	// ErrWrongKey reports a key file or passphrase that is not the one with which the cloud is
	// sealed, or none where one is needed.
	ErrWrongKey = base.ErrWrongKey
	// ErrKeyFilePassphrase reports a key file that is under a passphrase, and none is given. It
	// matches ErrWrongKey.
	ErrKeyFilePassphrase = seal.ErrKeyFilePassphrase
	// ErrShutOut reports that the key which is used here, or this device, was removed from the
	// cloud's keyring: what was written since cannot be read, and nothing is sent. What is here
	// stays. It matches ErrWrongKey.
	ErrShutOut = base.ErrShutOut
	// ErrNoCloud reports that the repository has no cloud; see Repository.SetCloud.
	ErrNoCloud = base.ErrNoCloud
	// ErrCloudRolledBack reports a bucket that is in an older state than this device has seen:
	// something in it was deleted, or it was restored from a copy. See admin.Reupload. It
	// matches ErrConflict.
	ErrCloudRolledBack = cloudsync.ErrBucketRolledBack
	// ErrCloudReplaced reports a bucket with another history than this device has seen. It matches
	// ErrConflict.
	ErrCloudReplaced = cloudsync.ErrBucketReplaced
	// ErrCloudDamaged reports that something in the bucket is missing or damaged without which a
	// page cannot be synced; the error names it. See admin.Reupload. It comes with ErrCorrupt,
	// ErrGone or ErrNotFound.
	ErrCloudDamaged = cloudsync.ErrBucketDamaged
	// ErrDeleted reports a page that was deleted for all devices; see DeleteOptions.Everywhere.
	// What this device has of it stays here until it is deleted here, too.
	ErrDeleted = cloudsync.ErrDeleted
)

// CorruptError says which bytes are not what was written. It matches ErrCorrupt.
type CorruptError = base.CorruptError

// PageError says about which page an error is, of a call that is about several. It matches what Err
// matches.
type PageError struct {
	// Page is the page.
	Page PageRef
	// Name is its human name, "" when it has none or that is not known.
	Name string
	// Err is what was wrong.
	Err error
}

// Error implements error.
func (e *PageError) Error() string {
	return fmt.Sprintf("page %s: %v", base.PageName(e.Page.Ledger, e.Name, e.Page.ID), e.Err)
}

// Unwrap returns Err.
func (e *PageError) Unwrap() error { return e.Err }

// LockedError says who holds a repository. It matches ErrLocked.
type LockedError = base.LockedError

// FormatError names a format version that is not supported. It matches ErrUnsupported.
type FormatError = base.FormatError

// Kind tells a caller what to do about an error.
type Kind = base.Kind

// The kinds of errors. They are only ever added to.
const (
	KindInternal    = base.Internal    // a defect, or something unforeseen
	KindInvalid     = base.Invalid     // mend the argument
	KindNotFound    = base.NotFound    // it is not there
	KindConflict    = base.Conflict    // read again and decide anew
	KindUnavailable = base.Unavailable // try again later
	KindNoSpace     = base.NoSpace     // make room
	KindCorrupt     = base.Corrupt     // run check
	KindClosed      = base.Closed      // it was closed
	KindUnsupported = base.Unsupported // use a newer program
	KindPermission  = base.Permission  // not allowed, or read-only
	KindNone        = base.None        // there is no error
)

// KindOf classifies err. It returns KindNone for nil, and KindInternal for errors that it does not
// know.
func KindOf(err error) Kind { return base.KindOf(err) }
