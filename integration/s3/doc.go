// Package s3_test runs the suite of buckets, and the story of two devices, against a real server of
// S3's protocol, a gateway to files. It is a module of its own, so that nobody who builds or tests
// Ledger has to fetch the server.
package s3_test
