//go:build !linux

package index

// prefetch does nothing: there is no advice to give on this system.
func prefetch([]byte) {}
