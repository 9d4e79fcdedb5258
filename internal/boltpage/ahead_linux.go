package boltpage

import "golang.org/x/sys/unix"

// willNeed asks the kernel to read pages of a mapping ahead. bbolt maps its file for random access,
// so that each page would be read and waited for alone.
func willNeed(b []byte) {
	_ = unix.Madvise(b, unix.MADV_WILLNEED) // only advice
}
