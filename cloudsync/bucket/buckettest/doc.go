// Package buckettest is the conformance suite for implementations of bucket.Bucket, and a set of
// liars: buckets that break one promise each, which bucket.Probe must catch.
//
// It imports only cloudsync/bucket and internal/base of the module, no store, and is for tests
// only. Run waits for all goroutines that it starts. The package may change with any release.
package buckettest
