package metabase

import (
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/internal/base"
)

// Sentinels of what can be wrong with an operation. They come inside of an [*ObjectError] when an
// object is concerned. A missing object is base.ErrNotFound, which the root package exports as
// ledger.ErrNotFound.
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
	// ErrLackSplitInfo reports a parent object about whose parts nothing is known.
	ErrLackSplitInfo = errors.New("no split information")
	// ErrEndOfListing ends the pages of a listing.
	ErrEndOfListing = errors.New("end of object listing")
	// ErrInvalidCursor reports a cursor that is not one of this search.
	ErrInvalidCursor = fmt.Errorf("invalid cursor: %w", base.ErrInvalid)
	// ErrReadOnlyMode reports a change of a file in mode ReadOnly.
	ErrReadOnlyMode = fmt.Errorf("metabase is in read-only mode: %w", base.ErrReadOnly)
	// ErrDegradedMode reports the use of a file in mode Degraded.
	ErrDegradedMode = fmt.Errorf("metabase is in degraded mode: %w", base.ErrClosed)
	// ErrOldVersion reports a search in a file of an older version that is open for reading only.
	ErrOldVersion = fmt.Errorf("the file has no rows for searches before its migration: %w", base.ErrUnsupported)
)

// ObjectError says what was being done to which object.
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

// SplitInfoError reports a virtual object: it is stored in parts, which Info names.
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

// QueryError says what is wrong with a query. It matches base.ErrInvalid.
type QueryError struct {
	// Filter is the number of the filter, from 0; -1 when it is something else.
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

// corrupt makes the error of a row: where names the bucket, key is the row's.
func corrupt(p place, key []byte, want, got string, args ...any) error {
	return &base.CorruptError{Where: "metabase " + p.String(), Key: rowName(key), Want: want, Got: fmt.Sprintf(got, args...)}
}

// rowName prints a key for an error: ids in base58, anything else by its first bytes.
func rowName(key []byte) string {
	if id, ok := idOf(key); ok {
		return id.String()
	}
	if a, ok := addressOf(key); ok {
		return a.Object.String()
	}
	return fmt.Sprintf("%x", key[:min(len(key), 32)])
}
