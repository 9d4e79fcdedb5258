// Package emulator has the test that follows the instructions of README and docs/sync.md, from
// making a key to the status of a second device. It runs with a bucket in a directory and with an
// emulated bucket of Google Cloud Storage. It has no code of its own.
package emulator
