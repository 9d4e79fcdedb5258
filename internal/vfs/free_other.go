//go:build !linux && !darwin && !freebsd && !dragonfly && !windows

package vfs

import (
	"fmt"

	"github.com/ledgerd/ledger/internal/base"
)

// FreeBytes returns base.ErrUnsupported: this system does not report free space.
func FreeBytes(dir string) (int64, error) {
	return 0, fmt.Errorf("look for free space in %s: %w", dir, base.ErrUnsupported)
}
