package index

import "golang.org/x/sys/unix"

// prefetch asks the kernel to read pages of the mapping ahead. bbolt maps its file for random
// access, so that each page would be read and waited for alone.
func prefetch(b []byte) {
	_ = unix.Madvise(b, unix.MADV_WILLNEED) // only advice
}
