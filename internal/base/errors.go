package base

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"time"
)

// Sentinels, to be matched with errors.Is. A returned error adds what the call was doing.
var (
	// ErrNotFound reports that a key, page, ledger, commit, tag or piece does not exist.
	ErrNotFound = errors.New("not found")
	// ErrConflict reports an unmet condition on the present state, such as a commit on a base that
	// is no longer the head.
	ErrConflict = errors.New("conflict")
	// ErrLocked reports that another process holds the repository; see LockedError.
	ErrLocked = errors.New("locked by another process")
	// ErrCorrupt reports bytes that differ from what was written; see CorruptError.
	ErrCorrupt = errors.New("corrupt data")
	// ErrNeedsFetch reports a value that is in the cloud and not on this device.
	ErrNeedsFetch = errors.New("value is not held on this device")
	// ErrNetwork reports that the cloud could not be reached.
	ErrNetwork = errors.New("network error")
	// ErrGone reports data that existed and that retention has given up.
	ErrGone = errors.New("no longer kept")
	// ErrClosed reports the use of an object after its Close.
	ErrClosed = errors.New("closed")
	// ErrReadOnly reports a change to an object that was opened for reading only, or that became
	// read-only after a failed write or sync.
	ErrReadOnly = errors.New("read-only")
	// ErrTooLarge reports an argument beyond its limit.
	ErrTooLarge = errors.New("too large")
	// ErrInvalid reports an argument that can never be right.
	ErrInvalid = errors.New("invalid argument")
	// ErrNoSpace reports a full disk.
	ErrNoSpace = errors.New("no space left")
	// ErrUnsupported reports a format that this library cannot read; see FormatError.
	ErrUnsupported = errors.New("unsupported format")
	// ErrTxDone reports the use of a transaction after its Commit or Rollback.
	ErrTxDone = errors.New("transaction is over")
	// ErrNoRepository reports that a directory holds no repository.
	ErrNoRepository = errors.New("no repository")
	// ErrWrongKey reports a missing key, or a key or passphrase that does not open the cloud.
	ErrWrongKey = errors.New("wrong key")
	// ErrShutOut reports a key or device that was shut out of the cloud: it cannot read later
	// writes. It matches ErrWrongKey.
	ErrShutOut = fmt.Errorf("this key or device was shut out of the cloud: %w", ErrWrongKey)
	// ErrNoCloud reports that the repository has no cloud.
	ErrNoCloud = errors.New("no cloud is set")
	// ErrDeleted reports a page that was deleted for all devices.
	ErrDeleted = errors.New("the page was deleted for all devices")
)

// WithClass returns an error with the text of err that also matches class.
func WithClass(err, class error) error { return &classed{err, class} }

type classed struct{ err, class error }

func (e *classed) Error() string   { return e.err.Error() }
func (e *classed) Unwrap() []error { return []error{e.err, e.class} }

// CorruptError names the damaged bytes. It matches ErrCorrupt.
type CorruptError struct {
	// Where is the place: a file with an offset, or a row family.
	Where string
	// Key names the row or object, shortened to 64 characters; it never has a user's key or value.
	Key string
	// Want and Got say what was expected and found; either may be empty.
	Want, Got string
	// Err is the cause, or nil.
	Err error
}

func (e *CorruptError) Error() string {
	s := "corrupt " + e.Where
	if e.Key != "" {
		k := e.Key
		if len(k) > 70 {
			k = k[:70] + "..."
		}
		s += " " + k
	}
	switch {
	case e.Want != "" && e.Got != "":
		s += fmt.Sprintf(": want %s, got %s", e.Want, e.Got)
	case e.Want != "":
		s += ": want " + e.Want
	case e.Got != "":
		s += ": " + e.Got
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Is reports whether target is ErrCorrupt.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// Unwrap returns the cause.
func (e *CorruptError) Unwrap() error { return e.Err }

// LockedError names the holder of a repository. It matches ErrLocked.
type LockedError struct {
	// Path is the lock file.
	Path string
	// PID is the process id of the holder, 0 when unknown.
	PID int
	// Waited is the time spent waiting for the lock.
	Waited time.Duration
}

func (e *LockedError) Error() string {
	who := "another process"
	if e.PID != 0 {
		who = fmt.Sprintf("process %d", e.PID)
	}
	s := fmt.Sprintf("repository is locked by %s (%s)", who, e.Path)
	if e.Waited > 0 {
		s += fmt.Sprintf(" after waiting %s", e.Waited.Round(time.Millisecond))
	}
	return s
}

// Is reports whether target is ErrLocked.
func (e *LockedError) Is(target error) bool { return target == ErrLocked }

// FormatError names a format version that is not supported. It matches ErrUnsupported.
type FormatError struct {
	// What is the thing with the format: "repository", "segment", "commit".
	What string
	// Found is its version and Supported the (newest) version that this library supports.
	Found, Supported uint64
}

func (e *FormatError) Error() string {
	if e.Found < e.Supported {
		return fmt.Sprintf("%s has the old format version %d; this program knows version %d and cannot convert it", e.What, e.Found, e.Supported)
	}
	return fmt.Sprintf("%s has format version %d; this program knows versions up to %d: use a newer one", e.What, e.Found, e.Supported)
}

// Is reports whether target is ErrUnsupported.
func (e *FormatError) Is(target error) bool { return target == ErrUnsupported }

// Kind says what a caller can do about an error. Kinds are append-only; their numbers are part of
// the daemon's protocol.
type Kind uint8

// The kinds.
const (
	Internal    Kind = iota // a defect, or an unforeseen error
	Invalid                 // correct the argument
	NotFound                // it does not exist
	Conflict                // read again and decide again
	Unavailable             // try again later
	NoSpace                 // make room
	Corrupt                 // run check
	Closed                  // it was closed
	Unsupported             // use a newer program
	Permission              // not allowed, or read-only
	None                    // there is no error
)

// KindOf classifies err. It returns None for nil, and Internal for unlisted errors.
func KindOf(err error) Kind {
	if err == nil {
		return None
	}
	for _, c := range []struct {
		err  error
		kind Kind
	}{
		{ErrCorrupt, Corrupt}, {ErrNoSpace, NoSpace}, {syscall.ENOSPC, NoSpace}, {syscall.EDQUOT, NoSpace}, {ErrNotFound, NotFound}, {ErrGone, NotFound},
		{ErrNoRepository, NotFound}, {ErrNoCloud, NotFound}, {ErrDeleted, NotFound}, {ErrConflict, Conflict}, {ErrLocked, Unavailable}, {ErrNeedsFetch, Unavailable}, {ErrNetwork, Unavailable},
		{context.Canceled, Unavailable}, {context.DeadlineExceeded, Unavailable}, {ErrClosed, Closed}, {ErrTxDone, Closed},
		{ErrReadOnly, Permission}, {ErrWrongKey, Permission}, {fs.ErrPermission, Permission}, {syscall.EROFS, Permission},
		{ErrTooLarge, Invalid}, {ErrInvalid, Invalid}, {ErrUnsupported, Unsupported},
	} {
		if errors.Is(err, c.err) {
			return c.kind
		}
	}
	return Internal
}
