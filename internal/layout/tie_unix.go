//go:build unix

package layout

import (
	"os"
	"syscall"
)

// fileNumber returns the inode number of a file, 0 when unknown.
func fileNumber(path string) uint64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(s.Ino)
	}
	return 0
}
