// Package gcs is a bucket in Google Cloud Storage, gs://bucket/prefix.
//
// A put is an upload with ifGenerationMatch=0: one request for objects up to 16 MiB. Larger ones
// take a resumable upload in chunks of 16 MiB, held in memory one at a time. The put compares the
// checksum that the server has computed. A get is one request, and so is a list of up to 1000
// names. The retries of the client library are switched off: bucket.Retry retries, and counts.
//
// Credentials are the application default ones, or those of a service account file. With
// STORAGE_EMULATOR_HOST in the environment, as in the client library, requests go to that host
// without credentials.
//
// Get returns creation times in whole seconds, List and bucket.WithCreated in milliseconds.
// ServerTime is the Date of the answer. Google accepts one write a second for each name; more is
// answered with 429, which is bucket.ClassBusy.
//
// The package imports cloudsync/bucket and internal/base of the module. Only programs that need it
// import it, as it links the large client library. Invariants: G1: no request changes an object
// that exists. G2: one call of Get makes one request, and a second one only for a range of an empty
// object. A Bucket is safe for concurrent use. It starts no goroutines but those of the client
// library, which end with the calls and with Close. The package may change with any release.
package gcs
