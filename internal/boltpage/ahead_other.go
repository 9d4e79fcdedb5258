//go:build !linux

package boltpage

// willNeed does nothing: this system has no such advice.
func willNeed([]byte) {}
