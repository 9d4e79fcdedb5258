package idb

import (
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/internal/base"
)

// Error is what the errors of this package are, or have behind them. Name says what a script would
// be told, and behind it is the cause: errors.Is knows both, and the sentinels of the module that
// fit.
type Error struct {
	// Name is that of a DOMException, such as ConstraintError, or TypeError.
	Name string
	// Op is what was being done. Sentinels have none.
	Op string
	// Err is the cause, or nil.
	Err error
}

// The sentinels, for errors.Is. Behind the name stands what else such an error matches.
var (
	// ErrAbort: the transaction was aborted. The cause tells why: what a request or the upgrade
	// function failed with, or base.ErrConflict when someone else has committed meanwhile, so that
	// trying again helps.
	ErrAbort error = &Error{Name: "AbortError"}
	// ErrConstraint: the key is taken, a unique index has the key already, a name is taken, or the
	// key generator is at its end. It matches base.ErrConflict.
	ErrConstraint error = &Error{Name: "ConstraintError"}
	// ErrDataClone: the value is none that can be stored. It matches base.ErrInvalid. A stored one
	// of an unknown form has base.ErrUnsupported behind it.
	ErrDataClone error = &Error{Name: "DataCloneError"}
	// ErrData: a key or key range is not valid, or stands where none may. It matches
	// base.ErrInvalid.
	ErrData error = &Error{Name: "DataError"}
	// ErrInvalidAccess: options that exclude each other. It matches base.ErrInvalid.
	ErrInvalidAccess error = &Error{Name: "InvalidAccessError"}
	// ErrInvalidState: the object store, index, connection, transaction or position is not there
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
	// ErrTransactionInactive: the transaction is over. It matches base.ErrTxDone.
	ErrTransactionInactive error = &Error{Name: "TransactionInactiveError"}
	// ErrType: an argument is out of its range. It matches base.ErrInvalid.
	ErrType error = &Error{Name: "TypeError"}
	// ErrUnknown: the store of the rows failed, or ctx ended; the cause tells.
	ErrUnknown error = &Error{Name: "UnknownError"}
	// ErrVersion: the database has a greater version. It matches base.ErrConflict.
	ErrVersion error = &Error{Name: "VersionError"}
)

// sentinels are the errors of the module that match errors by their names.
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

// Is reports whether target is the sentinel with the name of e, or one of the module that fits it.
func (e *Error) Is(target error) bool {
	if s, ok := target.(*Error); ok {
		return s.Name == e.Name && s.Op == "" && s.Err == nil
	}
	return sentinels[e.Name] == target
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// newError makes the error of a kind; why, with its arguments, is the cause. An error among the
// arguments has to stand behind %w.
func newError(kind error, op, why string, args ...any) error {
	e := &Error{Name: kind.(*Error).Name, Op: op}
	if why != "" {
		e.Err = fmt.Errorf(why, args...)
	}
	return e
}

// failed makes the error of a store of rows. What is an Error already is kept.
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
