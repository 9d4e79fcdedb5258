//go:build !linux

package dir

import (
	"errors"
)

// setDirect fails: writes go through the page cache.
func setDirect(file, bool) error { return errors.ErrUnsupported }
