package idb

import (
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/internal/base"
)

// Error is the error type of this package. Every error of the package is an Error or wraps one.
// Name is the error name in a script. errors.Is matches the sentinel of that name, the cause, and
// the corresponding sentinels of the module.
type Error struct {
	// Name is the name of a DOMException, such as ConstraintError, or TypeError.
	Name string
	// Op is the operation that failed; empty in sentinels.
	Op string
	// Err is the cause, or nil.
	Err error
}

// The sentinels, for errors.Is. Each comment says which other sentinel such an error matches.
var (
	// ErrAbort: the transaction was aborted. The cause is the error of a request or of the upgrade
	// function. It is base.ErrConflict when another writer has committed since Begin; then a new
	// attempt may succeed.
	ErrAbort error = &Error{Name: "AbortError"}
	// ErrConstraint: the key exists, a unique index has the key already, a name is in use, or the
	// key generator is exhausted. It matches base.ErrConflict.
	ErrConstraint error = &Error{Name: "ConstraintError"}
	// ErrDataClone: the value cannot be stored. It matches base.ErrInvalid. For a stored value of
	// an unknown form, the cause is base.ErrUnsupported.
	ErrDataClone error = &Error{Name: "DataCloneError"}
	// ErrData: a key or key range is not valid, or not allowed in this place. It matches
	// base.ErrInvalid.
	ErrData error = &Error{Name: "DataError"}
	// ErrInvalidAccess: options that exclude each other. It matches base.ErrInvalid.
	ErrInvalidAccess error = &Error{Name: "InvalidAccessError"}
	// ErrInvalidState: the object store, index, connection, transaction or position does not exist
	// any more, or the transaction is no upgrade.
	ErrInvalidState error = &Error{Name: "InvalidStateError"}
	// ErrNotFound: there is no such object store or index. It matches base.ErrNotFound.
	ErrNotFound error = &Error{Name: "NotFoundError"}
	// ErrQuotaExceeded: the disk is full. It matches base.ErrNoSpace.
	ErrQuotaExceeded error = &Error{Name: "QuotaExceededError"}
	// ErrReadOnly: a change in a transaction that only reads. It matches base.ErrReadOnly.
	ErrReadOnly error = &Error{Name: "ReadOnlyError"}
	// ErrSyntax: a key path is not valid. It matches base.ErrInvalid.
	ErrSyntax error = &Error{Name: "SyntaxError"}
	// ErrTransactionInactive: the transaction has ended. It matches base.ErrTxDone.
	ErrTransactionInactive error = &Error{Name: "TransactionInactiveError"}
	// ErrType: an argument is out of its range. It matches base.ErrInvalid.
	ErrType error = &Error{Name: "TypeError"}
	// ErrUnknown: the store of the rows failed, or ctx ended; see the cause.
	ErrUnknown error = &Error{Name: "UnknownError"}
	// ErrVersion: the database has a greater version. It matches base.ErrConflict.
	ErrVersion error = &Error{Name: "VersionError"}
)

// sentinels maps the names of errors to the sentinels of the module that they match.
var sentinels = map[string]error{
	"ConstraintError": base.ErrConflict, "DataCloneError": base.ErrInvalid, "DataError": base.ErrInvalid, "InvalidAccessError": base.ErrInvalid,
	"NotFoundError": base.ErrNotFound, "QuotaExceededError": base.ErrNoSpace, "ReadOnlyError": base.ErrReadOnly, "SyntaxError": base.ErrInvalid,
	"TransactionInactiveError": base.ErrTxDone, "TypeError": base.ErrInvalid, "VersionError": base.ErrConflict,
}

func (e *Error) Error() string {
	s := e.Name
	if e.Op != "" {
		s = e.Op + ": " + s
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Is reports whether target is the sentinel with the name of e, or the corresponding sentinel of
// the module.
func (e *Error) Is(target error) bool {
	if s, ok := target.(*Error); ok {
		return s.Name == e.Name && s.Op == "" && s.Err == nil
	}
	return sentinels[e.Name] == target
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// newError returns an error of a kind. why is the format of the cause. An error among args needs
// the verb %w.
func newError(kind error, op, why string, args ...any) error {
	e := &Error{Name: kind.(*Error).Name, Op: op}
	if why != "" {
		e.Err = fmt.Errorf(why, args...)
	}
	return e
}

// failed wraps an error of the row store as an Error. It returns an err that already is one
// unchanged.
func failed(op string, err error) error {
	var e *Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &e):
		return err
	case errors.Is(err, base.ErrNoSpace):
		return newError(ErrQuotaExceeded, op, "%w", err)
	case errors.Is(err, base.ErrReadOnly):
		return newError(ErrReadOnly, op, "%w", err)
	}
	return newError(ErrUnknown, op, "%w", err)
}
