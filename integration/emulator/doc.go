// Package emulator has the test that does with the program what README and docs/sync.md tell users
// to do, from making a key to the status of a second device, with a bucket in a directory and with
// one of Google Cloud Storage, emulated. It has no code of its own.
package emulator
