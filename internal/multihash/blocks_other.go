//go:build !amd64

package multihash

const available = false

// blocks16 is never called where it is not available.
func blocks16(*[8][lanes]uint32, *[lanes]*byte, int) {}
