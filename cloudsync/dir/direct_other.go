//go:build !linux

package dir

import (
	"errors"
	"os"
)

// setDirect fails: writes go through the page cache.
func setDirect(*os.File, bool) error { return errors.ErrUnsupported }
