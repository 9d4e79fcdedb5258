// Package multihash computes the SHA-256 of many messages at once.
//
// Where the processor has AVX-512 but no instructions for SHA-256, 16 messages side by side take a
// tenth of the time that they take one after another; elsewhere they are summed one after another
// by crypto/sha256. Objects are cut into pieces and trees into nodes that do not depend on one
// another, so that there are many messages most of the time.
//
// The package imports the standard library and golang.org/x/sys/cpu only. It starts no goroutines.
// Its functions may be called concurrently.
package multihash

//go:generate go run gen.go
