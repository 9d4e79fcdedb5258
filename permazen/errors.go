package permazen

import (
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/permazen/encoding"
)

// ObjID is the id of an object.
type ObjID = encoding.ObjID

// Sentinel errors, for errors.Is.
var (
	// ErrNoObject reports an object that does not exist. It is also base.ErrNotFound.
	ErrNoObject = fmt.Errorf("no such object: %w", base.ErrNotFound)
	// ErrNoType reports an object whose type is not in the schema of the transaction.
	ErrNoType = errors.New("object type is not in the schema")
	// ErrNoField reports that a type has no field or index of a name. It is also base.ErrInvalid.
	ErrNoField = fmt.Errorf("no such field or index: %w", base.ErrInvalid)
	// ErrReferenced reports an object that cannot be deleted; see ReferencedError. It is also
	// base.ErrConflict.
	ErrReferenced = fmt.Errorf("object is still referenced: %w", base.ErrConflict)
	// ErrBadReference reports a reference to an object that does not exist or whose type the field
	// does not allow. It is also base.ErrInvalid.
	ErrBadReference = fmt.Errorf("invalid reference: %w", base.ErrInvalid)
	// ErrInvalidObject reports an object that Validate refused.
	ErrInvalidObject = errors.New("object is not valid")
)

// ReferencedError reports a field that refers to an object and forbids the deletion. It matches
// ErrReferenced and base.ErrConflict.
type ReferencedError struct {
	// ID is the object to delete. By is the object that refers to it in Field.
	ID, By ObjID
	Field  string
}

func (e *ReferencedError) Error() string {
	return fmt.Sprintf("delete object %s: field %s of object %s refers to it", e.ID, e.Field, e.By)
}

// Is reports whether e matches target.
func (e *ReferencedError) Is(target error) bool {
	return target == ErrReferenced || target == base.ErrConflict
}
