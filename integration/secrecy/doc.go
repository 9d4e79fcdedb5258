// Package secrecy has the test that plants secrets in all input of a device, syncs, and searches
// for them in all output: the bytes and names in the bucket, logs, errors, states, metrics, output
// and temporary files (promise 7 of README.md; docs/security.md). It has no code of its own.
package secrecy
