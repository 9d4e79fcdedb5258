// Package s3_test runs the suite of buckets, and the story of two devices, against a real server of
// S3's protocol, a gateway to files. It is a separate module, so that builds and tests of Ledger do
// not fetch the server.
package s3_test
