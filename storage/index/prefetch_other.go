//go:build !linux

package index

// prefetch does nothing: this system has no such advice.
func prefetch([]byte) {}
