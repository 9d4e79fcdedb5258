// Package secrecy has the test that plants secrets in everything a device is given, syncs, and
// looks for them in everything that leaves it: the bytes and the names in the bucket, logs, errors,
// states, metrics, output and temporary files (promise 7 of README.md; docs/security.md). It
// has no code of its own.
package secrecy
