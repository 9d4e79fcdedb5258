package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"testing"
)

// TestUnwritable tells errors for which a verb that reads makes do with what is here.
func TestUnwritable(t *testing.T) {
	for err, want := range map[error]bool{
		&fs.PathError{Op: "open", Path: "lock.pid", Err: syscall.EROFS}: true,
		fmt.Errorf("open: %w", fs.ErrPermission):                        true,
		errors.New("anything else"):                                     false,
		&fs.PathError{Op: "open", Path: "lock.pid", Err: syscall.EIO}:   false,
	} {
		if unwritable(err) != want {
			t.Errorf("%v: %t", err, !want)
		}
	}
}
