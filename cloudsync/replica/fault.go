package replica

import (
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/internal/base"
)

// fault describes damage in the bucket. It matches base.ErrCorrupt.
type fault struct {
	object string // its name; empty while unknown
	err    error
}

// Error implements error.
func (f *fault) Error() string {
	if f.object == "" {
		return f.err.Error()
	}
	return f.object + ": " + f.err.Error()
}

// Unwrap returns the cause.
func (f *fault) Unwrap() error { return f.err }

// Is reports whether target is base.ErrCorrupt.
func (f *fault) Is(target error) bool { return target == base.ErrCorrupt }

// bad returns a fault of the object that is being read.
func bad(format string, args ...any) error { return &fault{err: fmt.Errorf(format, args...)} }

func isFault(err error) bool {
	var f *fault
	return errors.As(err, &f)
}

// badObject returns the error of reading an object: a fault when the object is missing or damaged.
func badObject(name string, err error) error {
	if isFault(err) || !errors.Is(err, base.ErrCorrupt) && !errors.Is(err, base.ErrNotFound) {
		return err
	}
	return &fault{object: name, err: err}
}

// diskError is an error of this device that must not be taken for damage in the bucket. It matches
// what its cause matches, except base.ErrCorrupt.
type diskError struct{ err error }

// Error implements error.
func (e *diskError) Error() string { return e.err.Error() }

// Is implements errors.Is.
func (e *diskError) Is(target error) bool {
	return target != base.ErrCorrupt && errors.Is(e.err, target)
}

// As implements errors.As.
func (e *diskError) As(target any) bool { return errors.As(e.err, target) }

// blame returns the error of applying an object. A fault names the object. No other error matches
// base.ErrCorrupt.
func blame(name string, err error) error {
	var f *fault
	switch {
	case errors.As(err, &f):
		if f.object != "" {
			return err
		}
		return &fault{object: name, err: err}
	case errors.Is(err, base.ErrCorrupt):
		return &diskError{err}
	}
	return err
}
