// Package gcs is a bucket in Google Cloud Storage, gs://bucket/prefix.
//
// A put is an upload with ifGenerationMatch=0: one request for objects up to 16 MiB, and a
// resumable upload in chunks of 16 MiB, which are held in memory one at a time, for larger ones.
// The checksum that the server has computed is compared. A get is one request, and so is a list of
// up to 1000 names. The retries of the client library are switched off: bucket.Retry does that, and
// counts.
//
// Credentials are the application default ones, or those of a service account file. With
// STORAGE_EMULATOR_HOST in the environment, as the client library has it, requests go to that host
// without credentials.
//
// Get tells creation times in whole seconds, List and bucket.WithCreated in milliseconds.
// ServerTime is the Date of the answer. Google takes one write a second for each name; more is
// answered with 429, which is bucket.ClassBusy.
//
// The package imports cloudsync/bucket and internal/base of the module, and is imported by none of
// them but the programs that want it, as it links the large client library: nobody pays for it who
// does not use it. Invariants: G1: no request changes an object that exists. G2: one call of Get
// makes one request, and a second one only for a range of an empty object. A Bucket is safe for
// concurrent use. It starts no goroutines but those of the client library, which end with the calls
// and with Close. It may change with any release.
package gcs
