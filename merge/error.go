package merge

import (
	"fmt"

	"github.com/ledgerd/ledger/commit"
)

// Error says which heads could not be merged. It wraps errors of the app's code.
type Error struct {
	Left, Right commit.ID
	Err         error
}

// Error implements error.
func (e *Error) Error() string {
	return fmt.Sprintf("merge %s and %s: %v", e.Left.Short(), e.Right.Short(), e.Err)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
