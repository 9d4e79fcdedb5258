package metabase

import (
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/internal/base"
)

// Sentinels of failed operations. An [*ObjectError] wraps a sentinel that concerns one object. A
// missing object is base.ErrNotFound, which the root package exports as ledger.ErrNotFound.
var (
	// ErrAlreadyRemoved reports an object that has a grave.
	ErrAlreadyRemoved = errors.New("object already removed")
	// ErrExpired reports an object whose expiration epoch has passed.
	ErrExpired = errors.New("object is expired")
	// ErrObjectLocked reports the removal of an object that is locked.
	ErrObjectLocked = errors.New("object is locked")
	// ErrLockRemoval reports the removal of an object that locks others.
	ErrLockRemoval = errors.New("lock object cannot be removed so")
	// ErrLockNonRegular reports the lock of an object that is not of type REGULAR.
	ErrLockNonRegular = errors.New("only regular objects can be locked")
	// ErrLackSplitInfo reports a parent object without split information.
	ErrLackSplitInfo = errors.New("no split information")
	// ErrEndOfListing reports that a listing has no more pages.
	ErrEndOfListing = errors.New("end of object listing")
	// ErrInvalidCursor reports a cursor that does not belong to this search.
	ErrInvalidCursor = fmt.Errorf("invalid cursor: %w", base.ErrInvalid)
	// ErrReadOnlyMode reports a change of a file in mode ReadOnly.
	ErrReadOnlyMode = fmt.Errorf("metabase is in read-only mode: %w", base.ErrReadOnly)
	// ErrDegradedMode reports the use of a file in mode Degraded.
	ErrDegradedMode = fmt.Errorf("metabase is in degraded mode: %w", base.ErrClosed)
	// ErrOldVersion reports a search in a file of an older version that is open in mode ReadOnly.
	ErrOldVersion = fmt.Errorf("the file has no rows for searches before its migration: %w", base.ErrUnsupported)
)

// ObjectError names the operation and the object of an error.
type ObjectError struct {
	// Op is the operation, such as "put".
	Op string
	// Address is the object.
	Address Address
	// Err is the cause: a sentinel, a *SplitInfoError, or an error of the store.
	Err error
}

func (e *ObjectError) Error() string {
	return e.Op + " object " + e.Address.String() + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *ObjectError) Unwrap() error { return e.Err }

func objectError(op string, a Address, err error) error {
	if err == nil {
		return nil
	}
	return &ObjectError{op, a, err}
}

// SplitInfoError reports a virtual object. Info names the parts in which it is stored.
type SplitInfoError struct{ Info SplitInfo }

func (e *SplitInfoError) Error() string { return "object is stored in parts" }

// VersionError reports a metabase of a version that cannot be opened. It matches
// base.ErrUnsupported.
type VersionError struct{ Found, Oldest, Newest uint64 }

func (e *VersionError) Error() string {
	return fmt.Sprintf("metabase has version %d; this program knows versions %d to %d", e.Found, e.Oldest, e.Newest)
}

// Is reports whether target is base.ErrUnsupported.
func (e *VersionError) Is(target error) bool { return target == base.ErrUnsupported }

// QueryError reports what is wrong with a query. It matches base.ErrInvalid.
type QueryError struct {
	// Filter is the index of the wrong filter, from 0; -1 when the error is elsewhere in the query.
	Filter int
	// Reason says what is wrong.
	Reason string
}

func (e *QueryError) Error() string {
	switch e.Filter {
	case -1:
		return "invalid query: " + e.Reason
	case 0:
		return "invalid primary filter: " + e.Reason
	}
	return fmt.Sprintf("invalid filter %d: %s", e.Filter, e.Reason)
}

// Is reports whether target is base.ErrInvalid.
func (e *QueryError) Is(target error) bool { return target == base.ErrInvalid }

// corrupt makes the error of a damaged row: p is its bucket, key its key.
func corrupt(p place, key []byte, want, got string, args ...any) error {
	return &base.CorruptError{Where: "metabase " + p.String(), Key: rowName(key), Want: want, Got: fmt.Sprintf(got, args...)}
}

// rowName returns a key for an error: ids in base58, other keys as up to 32 bytes in hexadecimal.
func rowName(key []byte) string {
	if id, ok := idOf(key); ok {
		return id.String()
	}
	if a, ok := addressOf(key); ok {
		return a.Object.String()
	}
	return fmt.Sprintf("%x", key[:min(len(key), 32)])
}
